"""Directories of capture traces that others wrote: what each file holds, and what that makes of the directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shapetrace_traces.foreign import Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.scan import base_of, read_details

from . import kineto
from .kineto import DENSE, DENSE_SPARSE, LORA, NVIDIA, SPARSE, Events, PerSize0518, Work, graphs

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
FOUR = [
    ("_dense_lora", (*DENSE, *LORA)),
    ("_dense_nolora", DENSE),
    ("_sparse_lora", (*SPARSE, *LORA)),
    ("_sparse_nolora", SPARSE),
]


def look(place: Path, **more: Any) -> Report:
    paths = list_files(place)
    base = base_of(place)
    return make_report([read_file(base, path) for path in paths], read_details(base, paths), **more)


def held(report: Report) -> dict[str, str]:
    """Key -> what it holds, in short."""
    found = {}
    for item in report.findings:
        assert item.shape is not None, item
        found[item.capture.key] = "/".join([str(item.shape.size), *item.shape.variants.values()])
    return found


def words(report: Report) -> set[str]:
    return {item.size for item in report.findings}


# ---- SGLang 0.5.18 to 0.5.21


def exchange(one: Path, other: Path) -> None:
    """Give each file the other's name."""
    aside = one.with_name("x")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def test_the_directory_that_a_cursor_named_is_mislabelled_and_each_file_has_its_true_shape(tmp_path: Path) -> None:
    """The table of https://github.com/sgl-project/sglang/pull/37780: 8 sizes, dense and sparse."""
    PerSize0518(tmp_path, SIZES).capture(graphs(SIZES, DENSE_SPARSE))
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    names = {f"DecodeCudaGraphRunner_bs_{bs}_rank0.json.gz": what for bs, what in zip(
        (8, 7, 6, 5, 4, 3, 2, 1),
        ("8/dense", "8/sparse", "7/dense", "7/sparse", "6/dense", "6/sparse", "5/dense", "5/sparse"),
        strict=True,
    )}  # fmt: skip
    assert held(report) == names
    assert words(report) == {"proven"}
    assert any("bs_7_rank0.json.gz holds size 8, attention sparse" in reason for reason in report.reasons)
    assert {item.variants["attention"] for item in report.findings} == {"distinct"}


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 12, 16, 24, 32, 40), SIZES[:5]])
@pytest.mark.parametrize("width", [1, 4])
def test_whatever_sizes_it_captured(tmp_path: Path, sizes: tuple[int, ...], width: int) -> None:
    truth = PerSize0518(tmp_path, sizes).capture(graphs(sizes, DENSE_SPARSE, width=width))
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    found = {item.capture.file: item.shape.size for item in report.findings if item.shape is not None}
    assert found == {name: work.size for name, work in truth.items()}


def test_four_variants_a_size_are_told_apart_without_a_name(tmp_path: Path) -> None:
    four = [("", DENSE), ("", SPARSE), ("", (*DENSE, *LORA)), ("", (*SPARSE, *LORA))]
    truth = PerSize0518(tmp_path, SIZES).capture(graphs(SIZES, four))
    report = look(tmp_path)
    assert {item.capture.file: item.shape.size for item in report.findings if item.shape is not None} == {
        name: work.size for name, work in truth.items()
    }
    assert set(held(report).values()) == {f"{size}/{number}" for size in (8, 7) for number in (1, 2, 3, 4)}


def test_the_uno_runners_variants_are_lora_and_nolora(tmp_path: Path) -> None:
    variants = [("", (*DENSE, *LORA)), ("", DENSE)]
    PerSize0518(tmp_path, SIZES, runner="UnoDecodeCudaGraphRunner").capture(graphs(SIZES, variants))
    assert held(look(tmp_path))["UnoDecodeCudaGraphRunner_bs_7_rank0.json.gz"] == "8/nolora"


def test_on_nvidia_two_variants_are_not_called_dense_and_sparse(tmp_path: Path) -> None:
    PerSize0518(tmp_path, SIZES, vendor=NVIDIA).capture(graphs(SIZES, DENSE_SPARSE))
    assert held(look(tmp_path))["DecodeCudaGraphRunner_bs_7_rank0.json.gz"] == "8/2"


def test_variants_with_equal_operators_are_told_apart_by_their_launches(tmp_path: Path) -> None:
    writer = PerSize0518(tmp_path, SIZES)
    for size in (8, 7, 6, 5):
        writer.on_trace_ready(Work(size))
        writer.on_trace_ready(Work(size, extra_launches=3))
    report = look(tmp_path)
    assert held(report)["DecodeCudaGraphRunner_bs_5_rank0.json.gz"] == "7/sparse"


def test_variants_that_nothing_tells_apart_get_no_name(tmp_path: Path) -> None:
    PerSize0518(tmp_path, SIZES).capture(graphs(SIZES, [("", DENSE), ("", DENSE)]))
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert held(report)["DecodeCudaGraphRunner_bs_7_rank0.json.gz"] == "8/2"
    assert {word for item in report.findings for word in item.variants.values()} == {"unproven"}


def test_three_sizes_are_enough_where_operators_differ(tmp_path: Path) -> None:
    PerSize0518(tmp_path, (1, 2, 4)).capture(graphs((1, 2, 4), DENSE_SPARSE))
    assert list(held(look(tmp_path)).values()) == ["2/dense", "4/sparse", "4/dense"]


def test_every_rank_slipped_by_itself(tmp_path: Path) -> None:
    for rank in range(2):
        PerSize0518(tmp_path, SIZES, rank, 2).capture(graphs(SIZES, DENSE_SPARSE))
    report = look(tmp_path)
    assert held(report)["DecodeCudaGraphRunner_bs_3_rank1.json.gz"] == "6/sparse"
    assert not [reason for reason in report.reasons if "other ranks" in reason]


def test_the_first_file_may_be_gone(tmp_path: Path) -> None:
    PerSize0518(tmp_path, SIZES).capture(graphs(SIZES, DENSE_SPARSE))
    (tmp_path / "DecodeCudaGraphRunner_bs_8_rank0.json.gz").unlink()
    assert held(look(tmp_path))["DecodeCudaGraphRunner_bs_7_rank0.json.gz"] == "8/sparse"


def test_without_the_first_file_nobody_knows_the_size_of_a_wide_request(tmp_path: Path) -> None:
    """Rows 8, 6, 6 under the names 3, 2, 1: sizes 8 and 6, or 4 and 3 of two tokens? The steps exclude the former."""
    PerSize0518(tmp_path, (1, 2, 3, 4)).capture(graphs((1, 2, 3, 4), DENSE_SPARSE, width=2))
    assert look(tmp_path).verdict is Standing.MISLABELLED
    (tmp_path / "DecodeCudaGraphRunner_bs_4_rank0.json.gz").unlink()
    report = look(tmp_path)
    assert report.verdict is Standing.COMPLETE
    assert words(report) == {"consistent"}


def test_a_swap_of_two_names_is_found(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES))
    two, seven = (tmp_path / f"DecodeCudaGraphRunner_bs_{size}_rank0.json.gz" for size in (2, 7))
    exchange(two, seven)
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert (held(report)[two.name], held(report)[seven.name]) == ("7", "2")
    assert len([item for item in report.findings if item.wrong]) == 2


# ---- correct directories


@pytest.mark.parametrize(
    "captured",
    [
        pytest.param(graphs(SIZES), id="one variant"),
        pytest.param(graphs(SIZES, DENSE_SPARSE), id="dense and sparse"),
        pytest.param(graphs(SIZES, FOUR), id="lora too"),
        pytest.param(graphs(SIZES, [("_stream_0", DENSE), ("_stream_1", DENSE)]), id="streams"),
        pytest.param(graphs((1, 2, 4, 8), width=4), id="speculative width"),
        pytest.param(graphs((32,)), id="single size"),
        pytest.param(graphs(SIZES, rows=lambda tokens: -(-tokens // 4) * 4), id="padded to 4"),
        pytest.param(graphs((1, 2, 4, 8, 16), rows=lambda tokens: max(tokens, 8)), id="padded to 8 at least"),
        pytest.param(graphs((1, 2, 4, 8, 16), rows=lambda tokens: min(tokens, 4)), id="rows that stop growing"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("vendor", [kineto.AMD, NVIDIA], ids=["amd", "nvidia"])
def test_a_correct_directory_is_not_condemned(
    tmp_path: Path, captured: list[kineto.Graph], vendor: kineto.Vendor
) -> None:
    for rank in range(2):
        kineto.write_tagged(tmp_path, captured, rank, 2, vendor=vendor)
    report = look(tmp_path)
    assert report.reasons == ()
    assert report.verdict is Standing.COMPLETE
    assert len(report.findings) == 2 * len(captured)
    for item in report.findings:
        assert item.shape == item.claimed


@pytest.mark.parametrize("sizes", [(1, 2, 4), (8, 16, 32), (1, 2, 4, 8)])
@pytest.mark.parametrize("rows", [lambda size: min(2 * size, 4), lambda size: min(size, 8), lambda size: min(size, 16)])
def test_rows_that_stop_growing_in_a_directory_of_a_cursor_are_right(
    tmp_path: Path, sizes: tuple[int, ...], rows: Callable[[int], int]
) -> None:
    PerSize0518(tmp_path, sizes).capture(graphs(sizes, rows=rows))
    assert look(tmp_path).verdict is Standing.COMPLETE


def test_without_variants_the_cursor_is_right(tmp_path: Path) -> None:
    truth = PerSize0518(tmp_path, SIZES).capture(graphs(SIZES))
    report = look(tmp_path)
    assert report.verdict is Standing.COMPLETE
    assert words(report) == {"proven"}
    assert held(report) == {name: str(work.size) for name, work in truth.items()}


def test_pieces_of_one_capture_are_one_capture(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES), pieces=3)
    report = look(tmp_path)
    assert (report.verdict, len(report.findings)) == (Standing.COMPLETE, 8)
    kineto.write_vllm(tmp_path / "vllm", graphs((8192,)), "PIECEWISE", pieces=25)
    assert (look(tmp_path / "vllm").verdict, held(look(tmp_path / "vllm")).popitem()[1]) == (
        Standing.COMPLETE,
        "8192/PIECEWISE",
    )


def test_vllm_tells_the_size_inside(tmp_path: Path) -> None:
    kineto.write_vllm(tmp_path, graphs(SIZES))
    report = look(tmp_path)
    assert (report.verdict, words(report)) == (Standing.COMPLETE, {"proven"})
    assert sorted(held(report).values()) == sorted(f"{size}/FULL" for size in SIZES)
    assert all(item.claimed is None and item.shape is not None and item.shape.unit == "tok" for item in report.findings)


def test_vllm_captures_of_one_size_are_told_apart_by_their_operators(tmp_path: Path) -> None:
    kineto.write_vllm(tmp_path, graphs((4, 8), [("", DENSE), ("", (*DENSE, *LORA))]))
    assert sorted(held(look(tmp_path)).values()) == ["4/FULL/1", "4/FULL/2", "8/FULL/1", "8/FULL/2"]


def test_traces_of_a_patched_engine(tmp_path: Path) -> None:
    kineto.write_patched(tmp_path, SIZES)
    kineto.write_replay(tmp_path)
    report = look(tmp_path)
    assert (report.verdict, words(report), len(report.findings)) == (Standing.COMPLETE, {"proven"}, 8)
    assert [role.value for role in report.roles.values()].count("replay") == 1


def test_a_patched_engines_span_contradicts_its_name(tmp_path: Path) -> None:
    kineto.write_patched(tmp_path, (32,))
    (tmp_path / "capture_traces/bs_32_rank0.json.gz").rename(tmp_path / "capture_traces/bs_16_rank0.json.gz")
    report = look(tmp_path)
    assert (report.verdict, list(held(report).values())) == (Standing.MISLABELLED, ["32"])


def test_xdit_has_its_rows_and_no_more(tmp_path: Path) -> None:
    events = Events()
    events.capture(Work(4096))
    kineto.write(tmp_path / "capture_traces/capture_trace_rank_0.json.gz", events.text())
    report = look(tmp_path)
    assert (report.verdict, list(held(report).values()), words(report)) == (Standing.COMPLETE, ["4096"], {"consistent"})


# ---- combined files


@pytest.mark.parametrize("vendor", [kineto.AMD, NVIDIA], ids=["amd", "nvidia"])
def test_a_combined_file_is_split_by_its_windows(tmp_path: Path, vendor: kineto.Vendor) -> None:
    kineto.write_combined(tmp_path, graphs(SIZES), vendor=vendor)
    report = look(tmp_path)
    assert (report.verdict, words(report)) == (Standing.COMPLETE, {"consistent"})
    assert [item.shape.size for item in report.findings if item.shape is not None] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [item.capture.window for item in report.findings] == list(range(8))


def test_a_combined_file_is_one_by_what_it_holds(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path, graphs(SIZES)).rename(tmp_path / "profile.json.gz")
    assert len(look(tmp_path / "profile.json.gz").findings) == 8


def test_more_windows_than_an_index_keeps(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path, graphs(range(1, 101), layers=1))
    assert len(look(tmp_path).findings) == 100


def test_the_variants_of_a_combined_file_are_told_apart_in_their_order(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path, graphs((2, 4), DENSE_SPARSE))
    assert list(held(look(tmp_path)).values()) == ["4/1", "4/2", "2/1", "2/2"]


def test_the_width_of_a_combined_file_is_told_by_hand(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path, graphs((1, 2, 4), width=4))
    assert list(held(look(tmp_path, width=4)).values()) == ["4", "2", "1"]


# ---- eager, damaged, without identity


def test_a_directory_without_graphs_is_eager(tmp_path: Path) -> None:
    kineto.write_eager(tmp_path)
    report = look(tmp_path)
    assert (report.verdict, report.findings) == (Standing.EAGER, ())
    assert "none captured, none launched" in report.reasons[0]


def test_replays_alone_are_not_eager(tmp_path: Path) -> None:
    kineto.write_eager(tmp_path)
    kineto.write_replay(tmp_path)
    assert look(tmp_path).verdict is Standing.NOT_INDEXABLE


def test_a_file_cut_in_half_is_named(tmp_path: Path) -> None:
    for rank in range(2):
        kineto.write_tagged(tmp_path, graphs(SIZES), rank, 2)
    victim = tmp_path / "DecodeCudaGraphRunner_bs_4_rank1.json.gz"
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert list(report.damaged) == [victim.name]
    assert "ends early" in report.reasons[0]
    assert report.reasons[1] == "rank 1 has no DecodeCudaGraphRunner__bs_4, other ranks have"
    assert not [item for item in report.findings if item.wrong]


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"\x89PNG", b'{"traceEvents": ['])
def test_what_is_named_as_a_trace_and_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    (tmp_path / "DecodeCudaGraphRunner_bs_4_rank0.json.gz").write_bytes(content)
    report = look(tmp_path)
    assert (report.verdict, list(report.damaged)) == (Standing.PARTIAL, ["DecodeCudaGraphRunner_bs_4_rank0.json.gz"])


def test_what_lies_beside_is_no_trace(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    (tmp_path / "cuda_graph_runner_memory_usage.pickle").write_bytes(b"\x80\x04")
    (tmp_path / "server.log").write_text("[TP0] Capturing\n")
    (tmp_path / "notes.json").write_text('{"a": 1}')
    report = look(tmp_path)
    assert (report.verdict, report.damaged, len(report.roles)) == (Standing.COMPLETE, {}, 2)


def test_a_capture_without_a_size_in_name_or_events_is_not_indexable(tmp_path: Path) -> None:
    kineto.write_combined(tmp_path, graphs(SIZES, shapes=False))
    report = look(tmp_path)
    assert report.verdict is Standing.NOT_INDEXABLE
    assert "were shapes recorded" in report.reasons[0]


def test_names_alone_are_not_condemned_for_want_of_shapes(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES, shapes=False))
    report = look(tmp_path)
    assert (report.verdict, words(report)) == (Standing.COMPLETE, {"consistent"})


def test_a_copy_under_another_name_is_told(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs((2, 4)))
    text = (tmp_path / "DecodeCudaGraphRunner_bs_4_rank0.json.gz").read_bytes()
    (tmp_path / "DecodeCudaGraphRunner_bs_3_rank0.json.gz").write_bytes(text)
    report = look(tmp_path)
    assert report.verdict is not Standing.COMPLETE
    assert any("same recording" in reason for reason in report.reasons)


def test_ranks_that_changed_names_are_found(tmp_path: Path) -> None:
    for rank in range(2):
        kineto.write_tagged(tmp_path, graphs((1, 2)), rank, 2)
    zero, one = (tmp_path / f"DecodeCudaGraphRunner_bs_2_rank{rank}.json.gz" for rank in (0, 1))
    exchange(zero, one)
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert {item.capture.file: item.rank for item in report.findings if item.wrong} == {zero.name: 1, one.name: 0}


def test_the_report_is_json(tmp_path: Path) -> None:
    PerSize0518(tmp_path, SIZES).capture(graphs(SIZES, DENSE_SPARSE))
    value = json.loads(json.dumps(look(tmp_path).to_json()))
    first = next(item for item in value["captures"] if item["file"] == "DecodeCudaGraphRunner_bs_7_rank0.json.gz")
    assert first["claimed"]["size"] == 7
    assert first["measured"] == {
        "runner": "DecodeCudaGraphRunner",
        "unit": "bs",
        "size": 8,
        "variants": {"attention": "sparse"},
    }
    assert (first["rows"], first["rank"], first["claimedBy"]) == (8, 0, "its name")
