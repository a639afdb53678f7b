"""Names that changed places over sizes and variants: set right where operators tell, else refused, never made up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_traces.foreign import Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.plan import make_plan
from shapetrace_traces.foreign.scan import base_of

from . import kineto
from .kineto import DENSE, DENSE_SPARSE, LORA, SPARSE, graphs

SIZES = (1, 2, 4, 8, 16, 32)
STREAMS = (("_stream_0", DENSE), ("_stream_1", DENSE))
FOUR = (
    ("_dense_lora", (*DENSE, *LORA)),
    ("_dense_nolora", DENSE),
    ("_sparse_lora", (*SPARSE, *LORA)),
    ("_sparse_nolora", SPARSE),
)


def look(place: Path, **more: Any) -> Report:
    base = base_of(place)
    return make_report([read_file(base, path) for path in list_files(place)], {}, **more)


def name(what: str) -> str:
    return f"DecodeCudaGraphRunner_bs_{what}_rank0.json.gz"


def trade(folder: Path, left: str, right: str) -> None:
    (folder / left).rename(folder / "x")
    (folder / right).rename(folder / left)
    (folder / "x").rename(folder / right)


def shown(report: Report) -> dict[str, str | None]:
    """File -> what it holds as SGLang writes it, None where nobody knows."""
    return {
        item.capture.file: None
        if item.shape is None
        else name("_".join([str(item.shape.size), *(f"{a}_{v}" if a == "stream" else v for a, v in values(item))]))
        for item in report.findings
    }


def values(item: Any) -> Sequence[tuple[str, str]]:
    order = ("attention", "lora", "stream", "variant")
    return sorted(item.shape.variants.items(), key=lambda pair: order.index(pair[0]))


def test_a_dense_and_a_sparse_capture_of_two_sizes_that_changed_names_are_set_right(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES, DENSE_SPARSE))
    expected = {path: path for path in list_files(tmp_path)}
    trade(tmp_path, name("8_dense"), name("4_sparse"))
    expected |= {name("8_dense"): name("4_sparse"), name("4_sparse"): name("8_dense")}
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    assert shown(report) == expected
    assert {item.capture.file for item in report.findings if item.wrong} == {name("8_dense"), name("4_sparse")}
    assert {item.variants["attention"] for item in report.findings} == {"distinct"}
    assert make_plan(report, "upstream").refused == {}


def test_what_operators_do_not_tell_apart_is_refused_and_its_siblings_keep_their_names(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES, STREAMS))
    trade(tmp_path, name("8_stream_0"), name("4_stream_1"))
    report = look(tmp_path)
    assert report.verdict is Standing.MISLABELLED
    wrong = {name("8_stream_0"), name("4_stream_1")}
    assert set(make_plan(report, "tag").refused) == wrong
    assert {file: what for file, what in shown(report).items() if file not in wrong} == {
        path: path for path in list_files(tmp_path) if path not in wrong
    }


def test_a_capture_that_has_its_variants_in_its_name_gets_no_other(tmp_path: Path) -> None:
    """Two folders hold the same shape, of two runs perhaps: which is which nobody says."""
    kineto.write_tagged(tmp_path / "a", graphs((2, 4), (("_dense", DENSE),)))
    kineto.write_tagged(tmp_path / "b", graphs((2, 4), (("_dense", SPARSE),)), base=1)
    for path in (tmp_path / "b").iterdir():  # recordings of their own
        text = kineto.Events(start=1.0)
        text.capture(kineto.Work(int(path.name.split("_")[2]), operators=SPARSE))
        kineto.write(path, text.text(identity=path.name))
    report = look(tmp_path)
    assert not [item for item in report.findings if item.shape is not None and "variant" in item.shape.variants]
    assert len(make_plan(report, "tag").refused) == 4


@settings(max_examples=15)
@given(
    sizes=st.sets(st.integers(1, 64), min_size=4, max_size=6),
    chance=st.randoms(use_true_random=False),
    variants=st.sampled_from([DENSE_SPARSE, FOUR, STREAMS]),
)
def test_after_any_exchange_of_two_names_no_copy_gets_a_wrong_one(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: set[int],
    chance: random.Random,
    variants: Sequence[tuple[str, Sequence[str]]],
) -> None:
    place = tmp_path_factory.mktemp("exchanged")
    captured = graphs(sizes, variants, layers=1)
    kineto.write_tagged(place, captured)
    left, right = chance.sample(captured, 2)
    names = [name(f"{graph.work.size}{graph.suffix}") for graph in (left, right)]
    truth = {path: path for path in list_files(place)} | dict(zip(names, reversed(names), strict=True))
    trade(place, *names)
    report = look(place)
    if variants is STREAMS and left.work.size == right.work.size:
        return  # nothing in their events differs
    assert report.verdict is Standing.MISLABELLED
    plan = make_plan(report, "upstream")
    for copy in plan.copies:
        assert copy.target == truth[copy.finding.capture.file]
    assert set(plan.refused) <= set(names)
    if variants is DENSE_SPARSE:
        assert plan.refused == {}
