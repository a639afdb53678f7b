"""Whatever an engine wrote into its records and traces, its run is judged: a finish that dies commits nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_collector import part
from shapetrace_collector.record import parse
from shapetrace_contract import keys
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.settings import EngineSettings, RunId
from shapetrace_contract.tag import Runner, Shape
from shapetrace_finish.__main__ import main
from shapetrace_finish.compose import compose_environment, compose_manifest
from shapetrace_finish.gather import _is_whole
from shapetrace_finish.report import report
from shapetrace_traces.index import index_trace
from shapetrace_traces.judge import judge
from shapetrace_traces.manifest import Manifest

RUN = RunId("team", "run", "uid", 1)
SHAPES = [Shape(Runner("Decode"), "bs", size, {"lora": lora}) for size in (1, 2) for lora in ("lora", "nolora")]

numbers = st.integers() | st.integers(10**300, 10**301) | st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def some(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any value in some of these fields."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, anything))


def line(number: int, label: Shape) -> dict[str, Any]:
    return {
        "seq": number,
        "tag": label.tag,
        "shape": label.to_json(),
        "stage": "capture",
        "epoch": 1,
        "file": f"{number:06d}.json",
        "witnesses": {"rows": label.size},
        "dirty": [],
        "error": None,
    }


def raw_trace(label: Shape, **metadata: Any) -> bytes:
    metadata = {"v": 1, "tag": label.tag, "rank": 0, "stage": "capture", **metadata}
    return json.dumps({"shapetrace": metadata, "traceEvents": []}).encode()


@settings(max_examples=80)
@given(
    records=st.tuples(*[some("shape", "seq", "stage", "epoch", "witnesses", "dirty", "error", "file")] * 4),
    metadata=st.tuples(*[some("rank", "stage", "epoch", "shape", "tag")] * 4),
    plan=st.lists(some("runner", "epoch", "unit", "shapes", "notPlanned"), max_size=2),
    done=some("records", "ok", "reason", "eager", "captureBegin"),
    record=some("rank", "tp", "pp", "dp", "ep", "node", "hooks", "asked"),
    stopped=some("reason", "rank", "exitCode", "signal", "message"),
    processes=st.lists(some("pid", "errors"), max_size=2),
)
def test_any_json_in_any_field_is_judged(records, metadata, plan, done, record, stopped, processes) -> None:
    parsed, stored = [], {}
    for number, (label, more) in enumerate(zip(SHAPES, records, strict=True)):
        item = parse(0, {**line(number, label), **more})
        parsed.append(item)
        if item.file is not None:
            index = index_trace(raw_trace(label, **metadata[number]))
            uploaded = {"key": item.key, "sha256": "0" * 64, "bytes": 9, "rawSha256": f"{number:064d}", "rawBytes": 9}
            stored[item.file] = {**item.line, **uploaded, "index": index}
    body = part.to_bytes(
        part.build(
            0,
            record=record,
            processes=processes,
            plan=plan,
            done=done,
            stopped=stopped,
            records=parsed,
            stored=stored,
            refusals={},
            orphans=[],
            missing=0,
        )
    )
    read = json.loads(body)
    assert _is_whole(read)
    engine = EngineSettings(name="torch")
    verdicts = judge([read], engine="torch", ranks=[0])
    written = compose_manifest(RUN, engine, [read], verdicts, strict=True).to_bytes()
    json.loads(written, parse_constant=pytest.fail)
    report(Manifest.from_bytes(written), "s3://b/manifest.json", "0" * 64).encode()
    json.loads(compose_environment(RUN, engine, [read]), parse_constant=pytest.fail)


ODD = ["\ud800", float("nan"), float("inf"), 10**4000, ["\udfff"], {"\ud800": 1}]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: ascii(value)[:20])
@pytest.mark.parametrize("name", ["rank", "stage", "tag", "more"])
def test_a_trace_that_is_indexed_here_may_say_anything_of_itself(attempt: Any, name: str, odd: Any) -> None:
    label = attempt.shapes[0]
    attempt.put_trace(label, raw_trace(label, **{name: odd}), 0)
    assert main(attempt.environment) == 0
    json.loads(attempt.store.get(keys.MANIFEST), parse_constant=pytest.fail)
    assert attempt.manifest.verdict in (Verdict.PARTIAL, Verdict.MISLABELLED)


@pytest.mark.parametrize("change", ["removed", "cut"])
def test_what_a_part_lists_and_the_store_does_not_have_is_never_complete(attempt: Any, change: str) -> None:
    """A record of ``uploaded.jsonl`` may be the engine's own, and an object may be removed before the finish."""
    attempt.put_rank(0)
    attempt.put_rank(1)
    key = keys.trace_key(1, attempt.shapes[3].tag)
    body = attempt.store.get(key)
    attempt.store.delete(key)
    if change == "cut":
        attempt.store.put(key, body[:-1])
    assert main(attempt.environment) == 0
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert any(attempt.shapes[3].tag in text for text in attempt.manifest.reasons)
