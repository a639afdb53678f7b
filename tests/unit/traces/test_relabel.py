"""Rightly named copies: complete where evidence is there, refused where it is not, and DIR as it was."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_traces.foreign import Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.plan import Names, Plan, make_plan
from shapetrace_traces.foreign.relabel import RelabelError, Written, relabel
from shapetrace_traces.foreign.scan import base_of, read_details
from shapetrace_traces.foreign.slip import find_slip
from shapetrace_traces.index import index_trace
from shapetrace_traces.judge.fit import Series
from shapetrace_traces.judge.padding import is_explained, is_explained_with_limit

from . import kineto
from .kineto import DENSE_SPARSE, Events, PerSize0518, Work, graphs

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


def look(place: Path) -> Report:
    paths = list_files(place)
    base = base_of(place)
    return make_report([read_file(base, path) for path in paths], read_details(base, paths))


def copy(place: Path, out: Path, names: Names = "tag") -> tuple[Plan, list[Written]]:
    plan = make_plan(look(place), names)
    return plan, relabel(base_of(place), plan, out, lambda count: None)


def state(folder: Path) -> dict[str, Any]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


@pytest.mark.parametrize("names", ["tag", "upstream"])
def test_the_copies_of_a_mislabelled_directory_are_complete(tmp_path: Path, names: Names) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    truth = {}
    for rank in range(2):
        truth |= PerSize0518(source, SIZES, rank, 2).capture(graphs(SIZES, DENSE_SPARSE))
    before = state(source)
    plan, written = copy(source, out, names)
    assert (plan.refused, len(written)) == ({}, 16)
    assert state(source) == before
    report = look(out)
    assert (report.verdict, report.reasons) == (Standing.COMPLETE, ())
    assert {item.size for item in report.findings} == {"proven"}
    for item in written:
        assert item.copy.shape.size == truth[item.copy.finding.capture.file].size
        assert index_trace((out / item.copy.target).read_bytes())["metadata"]["tag"] == item.copy.shape.tag
    expected = {
        "tag": "traces/rank-00001/DecodeCudaGraphRunner__bs_8__attention-sparse.json.gz",
        "upstream": "DecodeCudaGraphRunner_bs_8_sparse_rank1.json.gz",
    }
    assert (out / expected[names]).exists()


def test_a_copy_is_the_same_trace_with_metadata_at_its_head(tmp_path: Path) -> None:
    PerSize0518(tmp_path / "in", SIZES).capture(graphs(SIZES, DENSE_SPARSE))
    _, written = copy(tmp_path / "in", tmp_path / "out")
    for item in written:
        old = gzip.decompress((tmp_path / "in" / item.copy.finding.capture.file).read_bytes())
        new = gzip.decompress((tmp_path / "out" / item.copy.target).read_bytes())
        assert new.endswith(old.lstrip().removeprefix(b"{"))
        metadata = json.loads(new)["shapetrace"]
        assert metadata["shape"]["size"] == item.copy.shape.size
        assert metadata["relabelled"]["from"] == item.copy.finding.capture.file


def test_bare_events_become_an_object(tmp_path: Path) -> None:
    events = Events()
    events.capture(Work(4), span="capture_4_DECODE")
    kineto.write(tmp_path / "in/bs_4_rank0.json", json.dumps(events.events).encode())
    _, written = copy(tmp_path / "in", tmp_path / "out")
    value = load(tmp_path / "out" / written[0].copy.target)
    assert value["traceEvents"] == events.events
    assert value["shapetrace"]["shape"]["size"] == 4


@pytest.mark.parametrize("vendor", [kineto.AMD, kineto.NVIDIA], ids=["amd", "nvidia"])
@pytest.mark.parametrize("names", ["tag", "upstream"])
def test_a_combined_file_becomes_one_file_a_window(tmp_path: Path, vendor: kineto.Vendor, names: Names) -> None:
    path = kineto.write_combined(tmp_path / "in", graphs(SIZES), rank=3, world=8, vendor=vendor)
    whole = load(path)
    _, written = copy(path, tmp_path / "out", names)
    assert [item.copy.shape.size for item in written] == list(SIZES)
    report = look(tmp_path / "out")
    assert (report.verdict, report.reasons) == (Standing.COMPLETE, ())
    assert {item.size for item in report.findings} == {"consistent"}  # their names were made from their rows
    assert {item.rank for item in report.findings} == {3}
    identities = set()
    for item in written:
        value = load(tmp_path / "out" / item.copy.target)
        index = index_trace(json.dumps(value).encode())
        window = item.copy.finding.capture.index
        assert (len(index["windows"]), index["launchesInWindows"]) == (1, window["launches"])
        for name in ("operators", "gemms", "sequenceSha256"):
            assert index[name] == window[name]
        assert (index["gpuInWindows"], index["gpuOutsideWindows"]) == (0, 0)
        assert {key: value[key] for key in whole if key not in ("traceEvents", "trace_id")} == {
            key: whole[key] for key in whole if key not in ("traceEvents", "trace_id")
        }
        frames = [event["name"] for event in value["traceEvents"] if event.get("cat") == "python_function"]
        assert "sglang/srt/model_executor/runner.py(1043): capture" in frames
        assert value["traceEvents"][0]["ph"] == "M"
        identities.add(value["trace_id"])
    assert len(identities) == 8


def test_what_has_its_name_already_is_copied_byte_for_byte(tmp_path: Path) -> None:
    PerSize0518(tmp_path / "in", SIZES).capture(graphs(SIZES, DENSE_SPARSE))
    copy(tmp_path / "in", tmp_path / "out")
    _, written = copy(tmp_path / "out", tmp_path / "again")
    for item in written:
        old, new = (tmp_path / folder / item.copy.target for folder in ("out", "again"))
        assert gzip.decompress(old.read_bytes()) == gzip.decompress(new.read_bytes())


@pytest.mark.parametrize("where", ["in", "in/below", "."])
def test_nothing_is_written_into_what_is_read(tmp_path: Path, where: str) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    before = state(tmp_path)
    with pytest.raises(RelabelError):
        copy(tmp_path / "in", tmp_path / where)
    assert state(tmp_path) == before


def test_a_folder_with_something_in_it_is_kept(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    with pytest.raises(RelabelError, match="not empty"):
        copy(tmp_path / "in", tmp_path / "out")
    (tmp_path / "out/mine").unlink()
    copy(tmp_path / "in", tmp_path / "out")
    assert len(list_files(tmp_path / "out")) == 2


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    plan = make_plan(look(tmp_path / "in"), "tag")
    (tmp_path / "in/DecodeCudaGraphRunner_bs_2_rank0.json.gz").unlink()
    with pytest.raises(FileNotFoundError):
        relabel(tmp_path / "in", plan, tmp_path / "out", lambda count: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_the_copies_can_be_read_by_whoever_reads_new_files(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    copy(tmp_path / "in", tmp_path / "out")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("half", "ends early"),
        ("twice", "the same recording"),
        ("no shapes", "were shapes recorded"),
        ("indistinct", "nothing tells them apart"),
    ],
)
def test_what_cannot_be_named_is_refused(tmp_path: Path, what: str, why: str) -> None:
    source = tmp_path / "in"
    if what in ("half", "twice"):
        kineto.write_tagged(source, graphs((2, 4)))
        four = source / "DecodeCudaGraphRunner_bs_4_rank0.json.gz"
        if what == "half":
            four.write_bytes(four.read_bytes()[: four.stat().st_size // 2])
        else:
            (source / "DecodeCudaGraphRunner_bs_3_rank0.json.gz").write_bytes(four.read_bytes())
    elif what == "no shapes":
        kineto.write_combined(source, graphs((2, 4), shapes=False))
    else:
        kineto.write_vllm(source, [*graphs((4, 8)), *graphs((4, 8))])
    plan = make_plan(look(source), "tag")
    assert plan.refused
    assert all(why in text for text in plan.refused.values())


def test_more_windows_than_are_written_at_once_have_identities_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapetrace_traces.foreign.relabel.MAX_OPEN_FILES", 3)
    path = kineto.write_combined(tmp_path / "in", graphs(SIZES, layers=1))
    _, written = copy(path, tmp_path / "out")
    assert len({load(tmp_path / "out" / item.copy.target)["trace_id"] for item in written}) == 8
    report = look(tmp_path / "out")
    assert (report.verdict, report.reasons) == (Standing.COMPLETE, ())


def test_windows_beyond_what_is_read_are_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapetrace_traces.index.MAX_SPLIT_WINDOWS", 5)
    path = kineto.write_combined(tmp_path / "in", graphs(SIZES))
    report = look(path)
    assert (report.verdict, len(report.findings)) == (Standing.PARTIAL, 5)
    expected = {path.name: "is too large to judge: of its 8 stream captures 3 were left out"}
    plan = make_plan(report, "tag")
    assert (dict(plan.refused), len(plan.copies)) == (expected, 5)


@pytest.mark.parametrize("gone", range(4))
@pytest.mark.parametrize("mark", ["Begin", "End"])
def test_a_window_without_its_begin_or_end_costs_no_other(tmp_path: Path, gone: int, mark: str) -> None:
    path = kineto.write_combined(tmp_path / "in", graphs((1, 2, 4, 8)))
    value = load(path)
    marks = [event for event in value["traceEvents"] if event["name"] == f"hipStream{mark}Capture"]
    value["traceEvents"].remove(marks[gone])
    kineto.write(path, json.dumps(value).encode())
    report = look(path)
    assert report.verdict is Standing.PARTIAL
    assert "1 begins or ends of a stream capture have no partner" in report.reasons[0]
    plan = make_plan(report, "tag")
    assert list(plan.refused) == [path.name]
    assert sorted(item.shape.size for item in plan.copies) == sorted({8, 4, 2, 1} - {(8, 4, 2, 1)[gone]})


def test_a_combined_file_of_two_captures_keeps_the_whole_one(tmp_path: Path) -> None:
    path = kineto.write_combined(tmp_path / "in", graphs((2, 4)))
    value = load(path)
    last = [event for event in value["traceEvents"] if event["name"] == "hipStreamEndCapture"][-1]
    value["traceEvents"].remove(last)
    kineto.write(path, json.dumps(value).encode())
    plan = make_plan(look(path), "tag")
    assert [item.shape.size for item in plan.copies] == [4]


@pytest.mark.parametrize("where", ["metadata", "distributedInfo"])
def test_a_rank_that_no_key_can_hold_is_refused(tmp_path: Path, where: str) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    path = tmp_path / "DecodeCudaGraphRunner_bs_2_rank0.json.gz"
    value = load(path)
    if where == "metadata":
        value["shapetrace"] = {"v": 1, "tag": "DecodeCudaGraphRunner__bs_2", "rank": 10**9, "stage": "capture"}
    else:
        value["distributedInfo"]["rank"] = 10**12
    kineto.write(path, json.dumps(value).encode())
    plan = make_plan(look(tmp_path), "tag")
    assert "is outside 0..99999" in plan.refused[path.name]
    assert len(plan.copies) == 1


@pytest.mark.timeout(60)
def test_a_source_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    plan = make_plan(look(tmp_path / "in"), "tag")
    path = tmp_path / "in/DecodeCudaGraphRunner_bs_2_rank0.json.gz"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="it is a named pipe"):
        relabel(tmp_path / "in", plan, tmp_path / "out", lambda count: None)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["in"]


# ---- properties


@st.composite
def slipped(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int], int, list[Series]]:
    """Labels, what the traces hold, captures a size, products: as the cursor of SGLang 0.5.18 names them."""
    sizes = sorted(draw(st.sets(st.integers(1, 512), min_size=4, max_size=20)), reverse=True)
    each = draw(st.integers(2, 4))
    labels = {f"t{number}": size for number, size in enumerate(sizes)}
    held = {f"t{number}": sizes[number // each] for number in range(len(sizes))}
    factors = draw(st.lists(st.sampled_from([1, 1, 2, 4, 8, 32]), min_size=1, max_size=4))
    series = [
        Series(f"p{number}", {trace: factor * size for trace, size in held.items()}, draw(st.integers(1, 50)))
        for number, factor in enumerate([1, *factors])
    ]
    return labels, held, each, series


@given(slipped(), st.booleans())
def test_a_slip_is_found_wherever_rows_vary(
    case: tuple[dict[str, int], dict[str, int], int, list[Series]], are_distinct: bool
) -> None:
    labels, held, each, series = case
    signatures = dict.fromkeys(labels) if not are_distinct else {f"t{n}": n % each for n in range(len(labels))}
    found = find_slip(labels, series, signatures=signatures)
    sizes = list(held.values())
    if len(set(sizes)) < 2:
        assert found is None, "one size only: nothing varies"
    elif not are_distinct and len(sizes) < each + 2:
        assert found is None, "one capture below the largest size: rows that stop growing look like that"
    elif not are_distinct and any(is_explained_with_limit(labels, item.rows) for item in series):
        assert found is None, "rows that were padded and stop growing look like that"
    else:
        assert found is not None
        assert (dict(found.held), found.each) == (held, each)


@st.composite
def correct(draw: st.DrawFn) -> tuple[dict[str, int], list[Series]]:
    """Right labels: rows are a factor times the size, padded to a multiple, to powers of two or to chosen sizes."""
    sizes = draw(st.sets(st.integers(1, 512), min_size=2, max_size=20))
    labels = {f"t{size}": size for size in sizes}
    factor = draw(st.sampled_from([1, 2, 4, 8]))
    kind = draw(st.sampled_from(["exact", "multiple", "power", "chosen"]))
    multiple = draw(st.sampled_from([2, 4, 8, 64]))
    chosen = sorted({*draw(st.sets(st.integers(1, 600), max_size=6)), 1024})

    def padded(size: int) -> int:
        if kind == "multiple":
            return -(-size // multiple) * multiple
        if kind == "power":
            return 1 << math.ceil(math.log2(size))
        return next(limit for limit in chosen if limit >= size) if kind == "chosen" else size

    return labels, [Series("p", {trace: factor * padded(size) for trace, size in labels.items()}, 4)]


@given(correct())
def test_right_labels_never_slipped(case: tuple[dict[str, int], list[Series]]) -> None:
    labels, series = case
    assert is_explained(labels, series[0].rows)
    assert find_slip(labels, series) is None


@given(
    correct(), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans(), st.booleans(), st.data()
)
def test_rows_that_stop_growing_never_slipped(
    case: tuple[dict[str, int], list[Series]],
    limit: int,
    factor: int,
    is_padded: bool,
    has_steps: bool,
    is_first_gone: bool,
    data: st.DataObject,
) -> None:
    """Also with the steps of the profiler, which every right family of these versions has, and where small sizes call
    other operators."""
    labels, series = case
    order = sorted(labels, key=lambda trace: -labels[trace])
    steps: dict[str, int | None] = {trace: 3 * number + 2 for number, trace in enumerate(order)} if has_steps else {}
    left = {trace: labels[trace] for trace in (order[1:] if is_first_gone else order)}
    rows = {trace: min(series[0].rows[trace] if is_padded else factor * size, limit) for trace, size in left.items()}
    small = data.draw(st.sampled_from([0, *left.values()]))
    operators = {trace: size <= small for trace, size in left.items()}
    assert find_slip(left, [Series("p", rows)], {trace: steps.get(trace) for trace in left}, operators) is None


def test_padding_is_explained_by_the_smallest_factor_too() -> None:
    assert is_explained({"a": 3, "b": 5}, {"a": 2, "b": 4})
    assert not is_explained({"a": 1, "b": 2}, {"a": 4, "b": 2})
    assert Fraction(1, 2) < 1


@settings(max_examples=12)
@given(
    sizes=st.sets(st.integers(1, 64), min_size=4, max_size=8),
    width=st.sampled_from([1, 1, 2, 4]),
    vendor=st.sampled_from([kineto.AMD, kineto.NVIDIA]),
    names=st.sampled_from(["tag", "upstream"]),
)
def test_the_copies_of_any_slipped_directory_are_complete(
    tmp_path_factory: pytest.TempPathFactory, sizes: set[int], width: int, vendor: kineto.Vendor, names: Names
) -> None:
    place = tmp_path_factory.mktemp("slipped")
    truth = PerSize0518(place / "in", sorted(sizes), vendor=vendor).capture(
        graphs(sizes, DENSE_SPARSE, width=width, layers=1)
    )
    assert look(place / "in").verdict is Standing.MISLABELLED
    _, written = copy(place / "in", place / "out", names)
    assert {item.copy.finding.capture.file: item.copy.shape.size for item in written} == {
        name: work.size for name, work in truth.items()
    }
    report = look(place / "out")
    assert (report.verdict, report.reasons) == (Standing.COMPLETE, ())


@settings(max_examples=12)
@given(
    sizes=st.sets(st.integers(1, 64), min_size=3, max_size=8),
    chance=st.randoms(use_true_random=False),
    layout=st.sampled_from(["tagged", "per size"]),
)
def test_any_exchange_of_names_is_found(
    tmp_path_factory: pytest.TempPathFactory, sizes: set[int], chance: random.Random, layout: str
) -> None:
    place = tmp_path_factory.mktemp("swapped")
    truth = kineto.write_tagged(
        place / "in", graphs(sizes, DENSE_SPARSE if layout == "tagged" else [("", ())], layers=1)
    )
    left, right = chance.sample(sorted(sizes), 2)
    suffix = "_dense" if layout == "tagged" else ""
    low, high = (place / f"in/DecodeCudaGraphRunner_bs_{size}{suffix}_rank0.json.gz" for size in (left, right))
    low.rename(place / "x")
    high.rename(low)
    (place / "x").rename(high)
    report = look(place / "in")
    assert report.verdict is Standing.MISLABELLED
    assert {item.capture.file for item in report.findings if item.wrong} == {low.name, high.name}
    _, written = copy(place / "in", place / "out")
    assert len(written) == len(truth)
    assert look(place / "out").verdict is Standing.COMPLETE
