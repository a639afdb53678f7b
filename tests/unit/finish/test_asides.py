"""What a run that ended well lacks of what it was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Runner, Shape
from shapetrace_finish.asides import find_asides
from shapetrace_traces.manifest import ManifestTrace, NotPlanned, Support

SHAPE = Shape(Runner("DecodeRunner"), "bs", 64, {"lora": "lora"})
UNMET = NotPlanned(shape=SHAPE.to_json(), reason="DecodeRunner plans the sizes 1, 2 (bs)", ranks=[0])


def trace(**more: Any) -> ManifestTrace:
    support = Support(size="proven", variants={})
    named = {
        "key": "traces/x",
        "alias": "x",
        "tag": SHAPE.tag,
        "shape": SHAPE.to_json(),
        "rank": 0,
        "stage": "capture",
        "epoch": 1,
    }
    return ManifestTrace(**named, sha256="0" * 64, bytes=1, raw_bytes=1, support=support, **more)


@pytest.mark.parametrize("device", ["cuda", "rocm"])
def test_a_trace_from_a_gpu_without_a_graph_is_told(device: str) -> None:
    traces = [trace(device=device, graph=False), trace(device=device, graph=True), trace(device=device)]
    (said,) = find_asides(Verdict.COMPLETE, "cuda", traces, [])
    assert said.startswith("1 of 3 traces hold no graph")


def test_graphs_and_a_run_that_asks_for_a_cpu_need_no_words() -> None:
    assert find_asides(Verdict.COMPLETE, "cuda", [trace(device="cuda", graph=True)], []) == []
    assert find_asides(Verdict.COMPLETE, "cpu", [trace(device="cpu", graph=False)], []) == []


@pytest.mark.parametrize(
    ("not_planned", "said"),
    [
        ([UNMET], f"1 declared shape is not captured by the engine, first {SHAPE.tag}: {UNMET.reason}"),
        ([UNMET] * 3, f"3 declared shapes are not captured by the engine, first {SHAPE.tag}: {UNMET.reason}"),
        (
            [NotPlanned(shape="?", reason="none", ranks=[])],
            "1 declared shape is not captured by the engine, first one that cannot be read: none",
        ),
        (
            [NotPlanned(shape=None, reason="none", ranks=[])],
            "1 declared shape is not captured by the engine, first one that cannot be read: none",
        ),
    ],
)
def test_declared_shapes_that_the_engine_does_not_capture_are_told(not_planned: Any, said: str) -> None:
    assert find_asides(Verdict.COMPLETE, "cuda", [], not_planned) == [said]
    assert find_asides(Verdict.EAGER, "cuda", [], not_planned) == []
