"""A collector beside the engine adds nothing to a trace: same Python frames, same threads, with it and without."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from launched import SMALL, events, folder, launch, lines, traces

SIZES = [8, 7, 6, 5, 4, 3, 2, 1]
FRAME = re.compile(r"^(?:.*/)?(?P<file>[^/]+\.py)\(\d+\): (?P<function>.+)$")


def collecting() -> Any:
    path = Path(__file__).parents[2] / "bench/collecting.py"
    spec = importlib.util.spec_from_file_location("shapetrace_bench_collecting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def frames(trace: dict[str, Any]) -> set[str]:
    """Names of Python calls without the folder and the line; addresses of objects are not names."""
    found = set()
    for event in events(trace, "python_function"):
        match = FRAME.match(event["name"])
        found.add(f"{match['file']}: {match['function']}" if match else re.sub("0x[0-9a-f]+", "0x", event["name"]))
    return found


def threads(trace: dict[str, Any]) -> int:
    return len({(event["pid"], event["tid"]) for event in events(trace, "python_function")})


@pytest.mark.timeout(600)
def test_a_trace_made_beside_a_collector_has_no_frame_that_one_made_without_lacks(torch: Any, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    launch(alone, SMALL, sizes=SIZES, stacks="All")
    expected = {record["tag"]: trace for record, trace in traces(alone)}
    assert len(expected) == len(SIZES)

    beside = tmp_path / "beside"
    with collecting().collector(beside) as attempt:
        launch(beside / "spool", SMALL, sizes=SIZES, stacks="All", drain_seconds=200)
        stored = {record["tag"]: record["key"] for record in lines(folder(beside / "spool") / "uploaded.jsonl")}
    assert set(stored) == set(expected)
    for tag, key in stored.items():
        trace = json.loads(gzip.decompress((attempt / key).read_bytes()))
        assert frames(trace) - frames(expected[tag]) == set(), f"{tag}: frames that are foreign to the capture"
        assert frames(trace) == frames(expected[tag])
        assert threads(trace) == threads(expected[tag]) == 1
