"""Claims of a trace that disagree, and labels that nobody wrote: events decide, and what they leave open stays open."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_traces.foreign import Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.plan import Plan, make_plan
from shapetrace_traces.foreign.relabel import relabel
from shapetrace_traces.foreign.scan import base_of, read_details

from . import kineto
from .kineto import Events, Graph, Work, graphs

RUNNER = "DecodeCudaGraphRunner"


def look(place: Path, **more: Any) -> Report:
    paths = list_files(place)
    base = base_of(place)
    return make_report([read_file(base, path) for path in paths], read_details(base, paths), **more)


def write_own(folder: Path, said: Mapping[str, tuple[str, int]], **more: Any) -> None:
    """Traces of a run of ours: tag of the file -> the tag of its metadata, and the size that it holds."""
    for number, (name, (tag, size)) in enumerate(said.items()):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(Work(size, **more), span=more.get("span", ""))
        value = json.loads(events.text(identity=f"{number:032X}"))
        metadata = {"v": 1, "tag": tag, "rank": 0, "stage": "capture"}
        text = json.dumps({"shapetrace": metadata, **value}).encode()
        kineto.write(folder / f"traces/rank-00000/{name}.json.gz", text)


def tag(size: int, runner: str = RUNNER) -> str:
    return f"{runner}__bs_{size}"


def sizes(report: Report) -> dict[str, int | None]:
    """Label -> size that it holds, None where nobody knows."""
    return {
        Path(item.capture.file).name.removesuffix(".json.gz"): None if item.shape is None else item.shape.size
        for item in report.findings
    }


def words(report: Report) -> set[str]:
    return {item.size for item in report.findings}


# ---- name and metadata


def test_metadata_that_changed_places_does_not_rename_what_the_rows_prove(tmp_path: Path) -> None:
    write_own(tmp_path, {tag(n): (tag({8: 4, 4: 8}.get(n, n)), n) for n in (1, 2, 4, 8)})
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert sizes(report) == {tag(n): n for n in (1, 2, 4, 8)}
    assert {item.shape.size for item in report.findings if item.shape is not None and item.wrong} == {4, 8}
    refused = make_plan(report, "tag").refused
    assert {Path(path).name for path in refused} == {f"{tag(4)}.json.gz", f"{tag(8)}.json.gz"}
    assert all("by its metadata" in item.wrong[0] for item in report.findings if item.wrong)


def test_names_that_changed_places_are_set_right_by_rows_and_metadata(tmp_path: Path) -> None:
    write_own(tmp_path, {tag({8: 4, 4: 8}.get(n, n)): (tag(n), n) for n in (1, 2, 4, 8)})
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert sizes(report) == {tag(1): 1, tag(2): 2, tag(4): 8, tag(8): 4}
    assert make_plan(report, "tag").refused == {}


def test_of_a_name_and_metadata_the_one_that_rows_prove_is_right(tmp_path: Path) -> None:
    """bs_5 was never captured: its metadata says 8, and with 8 the rows of all traces are what is claimed."""
    write_own(tmp_path, {tag(5 if n == 8 else n): (tag(n), n) for n in (1, 2, 4, 8)})
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert sizes(report)[tag(5)] == 8
    assert make_plan(report, "tag").refused == {}


def test_of_a_name_and_metadata_that_rows_do_not_tell_apart_neither_is_believed(tmp_path: Path) -> None:
    write_own(tmp_path, {tag(8): (tag(4), 8)})
    report = look(tmp_path)
    assert (report.verdict, sizes(report)) == (Standing.MISLABELLED, {tag(8): None})
    refused = make_plan(report, "tag").refused
    assert list(refused) == [f"traces/rank-00000/{tag(8)}.json.gz"]
    assert "DecodeCudaGraphRunner__bs_4 by its metadata" in "".join(refused.values())


def test_metadata_of_another_runner_is_told_and_not_copied(tmp_path: Path) -> None:
    write_own(tmp_path, {tag(n): (tag(n, "OtherRunner") if n == 8 else tag(n), n) for n in (1, 2, 8)})
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert sizes(report) == {tag(1): 1, tag(2): 2, tag(8): None}
    assert len(make_plan(report, "tag").refused) == 1


def test_a_span_of_ours_that_says_another_shape_is_no_proof_either(tmp_path: Path) -> None:
    events = Events()
    events.capture(Work(8), span=tag(4))
    kineto.write(tmp_path / f"{RUNNER}_bs_8_rank0.json.gz", events.text())
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert [item.shape for item in report.findings] == [None]


@settings(max_examples=25)
@given(
    held=st.sets(st.integers(1, 32), min_size=1, max_size=5),
    named=st.lists(st.integers(1, 32), min_size=5, max_size=5, unique=True),
    told=st.lists(st.integers(1, 32), min_size=5, max_size=5),
    pad=st.sampled_from([1, 1, 4]),
)
def test_no_copy_is_called_proven_and_has_other_rows(
    tmp_path_factory: pytest.TempPathFactory, held: set[int], named: list[int], told: list[int], pad: int
) -> None:
    """Any names and any metadata: what is written as proven has the rows that its name claims."""
    place = tmp_path_factory.mktemp("claims")
    content = {tag(name): (tag(said), size) for name, said, size in zip(named, told, sorted(held), strict=False)}
    write_own(place, content, layers=1, rows=lambda tokens: -(-tokens // pad) * pad)
    for copy in make_plan(look(place), "tag").copies:
        if copy.finding.size == "proven":
            assert copy.finding.capture.rows == copy.shape.size
        own = copy.finding.capture.metadata
        assert own is not None
        assert own == copy.shape


# ---- labels that nobody wrote


def test_a_label_made_from_rows_is_not_proven_by_them(tmp_path: Path) -> None:
    """Four rows a request, and nobody said so: bs 8 reads as 32."""
    kineto.write_combined(tmp_path, graphs((1, 2, 4, 8), width=4))
    report = look(tmp_path)
    assert (report.verdict, words(report)) == (Standing.COMPLETE, {"consistent"})
    assert all("no label" in item.evidence[0] for item in report.findings)


def test_a_copy_that_was_named_after_its_rows_is_not_proven_by_them_either(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path / "in", graphs((1, 2, 4, 8), width=4))
    plan: Plan = make_plan(look(tmp_path / "in"), "tag")
    relabel(tmp_path / "in", plan, tmp_path / "out", lambda count: None)
    report = look(tmp_path / "out")
    assert (report.verdict, len(report.findings), words(report)) == (Standing.COMPLETE, 4, {"consistent"})
    again = make_plan(report, "tag")
    relabel(tmp_path / "out", again, tmp_path / "again", lambda count: None)
    assert words(look(tmp_path / "again")) == {"consistent"}


def write_spans(folder: Path, captured: list[Graph], factor: int = 1) -> None:
    for number, graph in enumerate(captured):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(graph.work, span=f"capture_{factor * graph.work.size}_FULL")
        name = f"graph_capture_rank_0.{1773709742341309550 + number}.pt.trace.json.gz"
        kineto.write(folder / name, events.text(identity=f"{number:032X}"))


def test_a_span_is_no_witness_of_the_label_that_it_gave(tmp_path: Path) -> None:
    write_spans(tmp_path, graphs((8, 16, 32)), factor=2)
    assert words(look(tmp_path)) == {"consistent"}


def test_a_span_is_no_witness_of_a_name_that_came_from_the_same_number(tmp_path: Path) -> None:
    for number, size in enumerate((8, 16, 32)):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(Work(size), span=f"capture_{2 * size}_DECODE")
        kineto.write(tmp_path / f"bs_{2 * size}_rank0.json.gz", events.text(identity=f"{number:032X}"))
    assert words(look(tmp_path)) == {"consistent"}


def test_rows_prove_the_label_that_a_span_gave(tmp_path: Path) -> None:
    write_spans(tmp_path, graphs((8, 16, 32)))
    assert words(look(tmp_path)) == {"proven"}


def test_a_label_made_from_rows_is_never_called_wrong(tmp_path: Path) -> None:
    """Two products that disagree: nobody claimed anything, so nothing is mislabelled."""
    events = Events()
    for size, other in ((8, 2), (4, 8), (2, 4)):
        events.call("hipStreamBeginCapture")
        for _ in range(3):
            events.operator("aten::mm", [size, 64], [64, 64])
            events.operator("aten::mm", [other, 64], [64, 128])
            events.operator("aten::mm", [other, 64], [64, 192])
        events.call("hipStreamEndCapture")
    kineto.write(tmp_path / "profile.json.gz", events.text())
    report = look(tmp_path)
    assert not [item for item in report.findings if item.wrong]
    assert "proven" not in words(report)


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def test_a_copy_says_what_its_label_came_from(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path / "in", graphs((1, 2)))
    kineto.write_tagged(tmp_path / "named", graphs((1, 2)))
    for folder, source in (("in", "rows"), ("named", "its name")):
        out = tmp_path / f"out-{folder}"
        relabel(tmp_path / folder, make_plan(look(tmp_path / folder), "tag"), out, lambda count: None)
        said = [load(out / path)["shapetrace"]["relabelled"]["label"] for path in list_files(out)]
        assert said == [source, source]


# ---- labels that claim more rows than there are


def write_named(folder: Path, held: Mapping[int, int], **more: Any) -> None:
    """``{Runner}_bs_<label>_rank0``: label -> what it holds."""
    for number, (label, size) in enumerate(held.items()):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(Work(size, **more))
        kineto.write(folder / f"{RUNNER}_bs_{label}_rank0.json.gz", events.text(identity=f"{number:032X}"))


USUAL = (1, 2, 4, 8, 12, 16, 24, 32)


@pytest.mark.parametrize("wrong", [{8: 5, 24: 20}, {8: 5, 12: 9, 24: 20}, {32: 2}, {8: 7, 24: 23}])
def test_labels_with_fewer_rows_than_they_claim_are_refused_and_the_others_stay_proven(
    tmp_path: Path, wrong: dict[int, int]
) -> None:
    write_named(tmp_path, {size: wrong.get(size, size) for size in USUAL})
    report = look(tmp_path)
    short = {f"{RUNNER}_bs_{size}_rank0.json.gz" for size in wrong}
    assert report.verdict is Standing.PARTIAL
    assert {item.capture.file for item in report.findings if item.shape is None} == short
    assert {item.size for item in report.findings if item.capture.file not in short} == {"proven"}
    assert all("fewer than the" in reason for reason in report.reasons)
    assert make_plan(report, "tag").refused.keys() == short
    measured = {item["file"]: item["measured"] for item in report.to_json()["captures"]}
    assert {file for file, shape in measured.items() if shape is None} == short


def test_labels_that_all_slipped_to_the_next_smaller_size_are_refused(tmp_path: Path) -> None:
    write_named(tmp_path, dict(zip(USUAL[1:], USUAL, strict=False)))
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert len(make_plan(report, "tag").refused) == 7


def test_a_span_that_repeats_the_label_does_not_protect_it_from_its_rows(tmp_path: Path) -> None:
    for number, size in enumerate(USUAL):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(Work({8: 5, 24: 20}.get(size, size)), span=f"capture_{size}_DECODE")
        kineto.write(tmp_path / f"bs_{size}_rank0.json.gz", events.text(identity=f"{number:032X}"))
    assert make_plan(look(tmp_path), "tag").refused.keys() == {"bs_8_rank0.json.gz", "bs_24_rank0.json.gz"}


# ---- a file of many captures that is named as one


def test_a_name_of_one_size_on_a_file_of_many_captures_is_contradicted(tmp_path: Path) -> None:
    name = f"{RUNNER}_bs_8_rank0.json.gz"
    kineto.write_combined(tmp_path, graphs((1, 2, 4, 8))).rename(tmp_path / name)
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    held = {item.capture.window: None if item.shape is None else item.shape.size for item in report.findings}
    assert held == {0: 8, 1: 4, 2: 2, 3: 1}
    assert {item.capture.window for item in report.findings if item.wrong} == {1, 2, 3}
    assert {item.claimed.size for item in report.findings if item.claimed is not None} == {8}
    assert "one of 4 captures in a file whose name says DecodeCudaGraphRunner__bs_8" in report.reasons[0]
    assert words(report) == {"consistent"}


def test_a_list_that_gives_one_size_to_a_file_of_many_captures_is_contradicted(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path, graphs((2, 8))).rename(tmp_path / "capture_rank_0.json.gz")
    (tmp_path / "execution_details.json").write_text(json.dumps([{"file": "capture_rank_0.json.gz", "batch_size": 8}]))
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert "execution_details.json says" in report.reasons[0]


@pytest.mark.parametrize("padded", [4, 16])
def test_pieces_of_one_capture_whose_experts_have_other_rows_are_one_capture(tmp_path: Path, padded: int) -> None:
    """Each piece is a layer, and its experts get the tokens that the router sends them."""
    for number, size in enumerate((4, 8)):
        events = Events(start=4909733316064.125 + 1e6 * number)
        for layer in range(3):
            events.call("hipStreamBeginCapture")
            rows = -(-size // padded) * padded
            for weight in (64, 192, 256):
                events.operator("aten::mm", [rows, 64], [64, weight])
            events.operator("aten::mm", [1 + layer, 64], [64, 512])
            events.operator("aten::mm", [1 + layer, 512], [512, 64])
            events.call("hipStreamEndCapture")
        kineto.write(tmp_path / f"{RUNNER}_bs_{size}_rank0.json.gz", events.text(identity=f"{number:032X}"))
    report = look(tmp_path)
    assert (report.verdict, len(report.findings)) == (Standing.COMPLETE, 2)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_label_made_from_rows_speaks_for_or_against_no_name(tmp_path: Path, width: int) -> None:
    """The captures of one run, in files of their own and in one file; names of the former changed places."""
    kineto.write_tagged(tmp_path / "each", graphs((2, 4, 8), width=width))
    four, eight = (tmp_path / f"each/{RUNNER}_bs_{size}_rank0.json.gz" for size in (4, 8))
    four.rename(tmp_path / "x")
    eight.rename(four)
    (tmp_path / "x").rename(eight)

    def named(report: Report) -> dict[int | None, Any]:
        return {i.capture.name.size: (i.shape, i.size, i.wrong) for i in report.findings if i.claimed is not None}

    alone = named(look(tmp_path / "each"))
    kineto.write_combined(tmp_path / "all", graphs((2, 4, 8), width=width))
    assert named(look(tmp_path)) == alone
    assert [shape.size for shape, _, wrong in alone.values() if wrong] == [8, 4]
