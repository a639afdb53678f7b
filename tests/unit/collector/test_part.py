from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from shapetrace_collector import part
from shapetrace_collector.record import parse
from shapetrace_contract.tag import Runner, Shape


def record(size: int, file: str | None, epoch: int = 1, error: str | None = None):
    shape = Shape(Runner("Decode"), "bs", size, epoch=epoch)
    line = {"tag": shape.tag, "shape": shape.to_json(), "stage": "capture", "epoch": epoch, "file": file}
    return parse(0, {**line, "error": error, "seq": size, "dirty": [], "witnesses": {}, "timesSeconds": {}})


def stored(item):
    hashes = {"sha256": "a" * 64, "rawSha256": "b" * 64}
    return {**item.line, **hashes, "key": item.key, "bytes": 1, "rawBytes": 2, "index": {"v": 1}}


def build(records, kept):
    return part.build(
        0,
        record=None,
        processes=[],
        plan=[],
        done=None,
        stopped=None,
        records=records,
        stored={item.file: stored(item) for item in kept},
        refusals={},
        orphans=[],
        missing=len([item for item in records if item.file]) - len(kept),
    )


@given(
    st.lists(st.tuples(st.integers(1, 20), st.booleans(), st.booleans()), unique_by=lambda item: item[0]), st.randoms()
)
def test_every_record_is_a_trace_or_lost_and_the_order_of_records_changes_nothing(items, random) -> None:
    records = [record(size, f"{size:06d}.json" if file else None) for size, file, _ in items]
    kept = [item for item, (_, file, put) in zip(records, items, strict=True) if file and put]
    whole = build(records, kept)
    named = [entry["tag"] for entry in whole["traces"] + whole["lost"]]
    assert sorted(named) == sorted(item.tag for item in records)
    assert all(entry["error"] for entry in whole["lost"])
    random.shuffle(records)
    assert part.to_bytes(build(records, kept)) == part.to_bytes(whole)


def test_the_fields_of_a_trace() -> None:
    item = record(4, "000004.json", error="rows differ")
    (trace,) = build([item], [item])["traces"]
    assert set(trace) == {
        *("key", "sha256", "bytes", "rawSha256", "rawBytes", "tag", "shape", "rank", "stage", "epoch", "seq"),
        *("witnesses", "dirty", "timesSeconds", "index", "error"),
    }
    assert trace["key"] == "traces/rank-00000/Decode__bs_4.json.gz"


def test_a_part_is_strict_json_on_one_line() -> None:
    body = part.to_bytes(build([record(1, None)], []))
    assert body.count(b"\n") == 1
    assert json.loads(body)["lost"][0]["error"]
