"""Directories of traces that others recorded on real GPUs, read in place."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest
from shapetrace_traces.foreign import Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.plan import make_plan
from shapetrace_traces.foreign.relabel import relabel
from shapetrace_traces.foreign.scan import base_of, read_details
from shapetrace_traces.index import index_trace

# test data of github.com/AMD-AGI/TraceLens and github.com/facebookresearch/HolisticTraceAnalysis (both MIT)
SAMPLES = Path(os.environ.get("SHAPETRACE_SAMPLES") or Path(__file__).parents[4].joinpath("shared", "samples"))


def place(name: str) -> Path:
    if not (SAMPLES / name).is_dir():
        pytest.skip(f"no real traces {name}: SHAPETRACE_SAMPLES may name a folder with tracelens/ and hta/")
    return SAMPLES / name


def look(root: Path) -> Report:
    paths = list_files(root)
    base = base_of(root)
    return make_report([read_file(base, path) for path in paths], read_details(base, paths))


@pytest.mark.parametrize(
    ("name", "tag", "launches"),
    [("sglang_decode", "unknown__bs_32", 544), ("vllm_decode_full", "unknown__tok_32__mode-FULL", 421)],
)
def test_a_real_capture_beside_its_replay(name: str, tag: str, launches: int) -> None:
    report = look(place(f"tracelens/{name}"))
    assert (report.verdict, report.reasons, report.damaged) == (Standing.COMPLETE, (), {})
    (item,) = report.findings
    assert item.shape is not None
    assert (item.shape.tag, item.rank, item.capture.launches, item.capture.rows) == (tag, 0, launches, 32)
    assert sorted(role.value for role in report.roles.values()) == ["capture", "replay"]


@pytest.mark.parametrize("name", ["tracelens/h100", "tracelens/mi300", "tracelens/torch_compile_triton", "hta"])
def test_real_work_without_graphs_is_eager(name: str) -> None:
    report = look(place(name))
    assert (report.verdict, report.findings, report.damaged) == (Standing.EAGER, (), {})


def test_a_real_capture_under_a_wrong_name(tmp_path: Path) -> None:
    source = place("tracelens/sglang_decode") / "capture_traces/bs_32_rank0.json.gz"
    shutil.copyfile(source, tmp_path / "bs_16_rank0.json.gz")
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert report.reasons == ("bs_16_rank0.json.gz holds size 32 (its span capture_32_DECODE)",)
    (written,) = relabel(tmp_path, make_plan(report, "upstream"), tmp_path.with_name("out"), lambda count: None)
    copy = tmp_path.with_name("out") / written.copy.target
    assert copy.name == "bs_32_rank0.json.gz"
    old, new = (json.loads(gzip.decompress(path.read_bytes())) for path in (source, copy))
    assert new.pop("shapetrace")["tag"] == "unknown__bs_32"
    assert new == old


def test_half_of_a_real_capture_is_named(tmp_path: Path) -> None:
    body = (place("tracelens/sglang_decode") / "capture_traces/bs_32_rank0.json.gz").read_bytes()
    (tmp_path / "bs_32_rank0.json.gz").write_bytes(body[: len(body) // 2])
    report = look(tmp_path)
    assert (report.verdict, list(report.damaged)) == (Standing.PARTIAL, ["bs_32_rank0.json.gz"])


def test_a_real_capture_is_cut_out_of_what_lies_around_it(tmp_path: Path) -> None:
    """As if a combined file held this one window: what its window holds, and nothing else, is in the copy."""
    from shapetrace_traces.foreign.rewrite import Packer, Piece, split_trace

    source = place("tracelens/vllm_decode_full") / "capture_traces"
    (path,) = source.glob("graph_capture_rank_0.*.json.gz")
    whole = index_trace(path.read_bytes(), by_window=True)
    (window,) = whole["windows"]
    with path.open("rb") as stream, (tmp_path / "a.json.gz").open("wb") as sink, Packer(sink) as packer:
        begin, end = window["beginMicroseconds"], window["endMicroseconds"]
        split_trace(stream, [Piece(0, begin, end, tuple(window["thread"]), packer, {"tag": "x"})])
    found = index_trace((tmp_path / "a.json.gz").read_bytes())
    assert (found["error"], found["launches"], found["launchesInWindows"]) == (None, 421, 421)
    for name in ("operators", "gemms", "sequenceSha256"):
        assert found[name] == window[name]
    for name in ("device", "gpus", "versions", "flags", "distributed", "baseTimeNanoseconds"):
        assert found[name] == whole[name]
