"""A trace whose capture made a graph on a GPU holds it, or it is dirty."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import Verdicts, judge

SIZES = (1, 2, 4)
GRAPH = {"graph": True, "graphs": 1, "device": "cuda"}
WINDOW = {"beginMicroseconds": 1.0, "endMicroseconds": 9.0, "launches": 40, "nodes": 50}
WHOLE = {"windows": [WINDOW], "launchesInWindows": 40, "nodesInWindows": 50, "gpuInWindows": 0, "unpairedWindows": 0}
NOTHING = {"windows": [], "launchesInWindows": 0, "nodesInWindows": 0}


def entry(size: int, index: dict[str, Any], witnesses: dict[str, Any]) -> dict[str, Any]:
    tag = Shape(Runner("DecodeRunner"), "bs", size).tag
    rows = {"operators": {"aten::mm": 4}, "gemmRows": {"aten::mm": {str(size): 4}}}
    index = {"v": 1, "error": None, **rows, **WHOLE, **index}
    return {"key": f"traces/{tag}", "tag": tag, "bytes": 1, "index": index, "witnesses": GRAPH | witnesses}


def judged(index: dict[str, Any], **witnesses: Any) -> Verdicts:
    """A rank that did all it planned."""
    traces = [entry(size, index, witnesses) for size in SIZES]
    plan = [{"epoch": 1, "shapes": [item["tag"] for item in traces]}]
    done = {"records": len(traces), "ok": True, "reason": "Done", "eager": None}
    record = {"rank": 0, "hooks": {"the engine": "applied"}}
    return judge([{"v": 1, "rank": 0, "record": record, "plan": plan, "done": done, "traces": traces}], ranks=[0])


@pytest.mark.parametrize(
    ("index", "witnesses"),
    [
        ({}, {}),
        ({"windows": [WINDOW] * 3, "unpairedWindows": 0}, {"graphs": 3}),
        ({"windows": [WINDOW] * 64, "leftOut": {"windows": 10}}, {"graphs": 74}),  # the index lists 64
        ({"windows": [WINDOW] * 2}, {}),  # a library may capture a stream of its own
        (NOTHING, {"graph": False, "graphs": 0}),
        (NOTHING, {"graphs": 0, "graph": False, "device": "cpu"}),
        (NOTHING, {"device": "cpu"}),
        (dict.fromkeys(WHOLE), {}),  # too many launches: what lies in windows is not known
        (NOTHING, {"graph": None}),
        # a backward pass is launched by a thread of autograd's, and captured by the one that waits for it
        ({"launchesInWindows": 0, "nodesInWindows": 0, "nodesElsewhere": 40}, {}),
    ],
)
def test_a_trace_with_its_graph_or_without_one_to_have_is_clean(index: Any, witnesses: Any) -> None:
    found = judged(index, **witnesses)
    assert found.verdict is Verdict.COMPLETE
    assert found.unproven == ()


@pytest.mark.parametrize(
    ("index", "witnesses", "said"),
    [
        (NOTHING, {}, "it holds 0 stream captures of 1"),
        ({}, {"graphs": 3}, "it holds 1 stream captures of 3"),
        ({"windows": [WINDOW] * 64}, {"graphs": 74}, "it holds 64 stream captures of 74"),
        ({"launchesInWindows": 0, "nodesInWindows": 0}, {}, "nothing was launched in its stream captures"),
        ({**NOTHING, "unpairedWindows": 1}, {}, "1 stream captures in it have no begin or no end"),
        ({"gpuInWindows": 7}, {}, "7 GPU activities were launched in its stream captures and ran"),
        ({"windows": "none", "leftOut": []}, {}, "it holds 0 stream captures of 1"),
    ],
)
def test_a_trace_that_lacks_its_graph_is_dirty_and_proves_nothing(index: Any, witnesses: Any, said: str) -> None:
    found = judged(index, **witnesses)
    assert found.verdict is Verdict.PARTIAL
    assert all(said in reason for reason in found.reasons), found.reasons
    assert len(found.reasons) == len(SIZES)
    assert {item.size for item in found.traces.values()} == {"unproven"}
