"""Variant support: markers of an engine, operator sequences of siblings, and labels that changed places."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import TraceVerdict, judge
from shapetrace_traces.judge.evidence import read_trace
from shapetrace_traces.judge.markers import MARKERS, NO_MARKERS, MarkerTable, table_name

OPERATORS = {
    "dense": {"aten::softmax": 2},
    "sparse": {"aten::softmax": 2, "aten::topk": 2},
    "lora": {"aten::index_select": 4},
    "nolora": {},
}


def entry(
    size: int, variants: Mapping[str, str], content: Mapping[str, str], rank: int = 0, sequence: str | None = None
) -> dict[str, Any]:
    """A trace labelled ``variants`` that really ran ``content``."""
    shape = Shape(Runner("DecodeRunner"), "bs", size, variants)
    operators: dict[str, int] = {"aten::mm": 4}
    for value in content.values():
        operators.update(OPERATORS.get(value, {}))
    words = sequence or " ".join(f"{axis}={value}" for axis, value in sorted(content.items()))
    index = {"v": 1, "error": None, "operators": operators, "sequenceSha256": words}
    index["gemmRows"] = {"aten::mm": {str(size): 4}}
    return {"key": f"traces/rank-{rank:05d}/{shape.tag}.json.gz", "tag": shape.tag, "bytes": 1, "index": index}


def judged(entries: list[dict[str, Any]], engine: str = "torch") -> dict[str, TraceVerdict]:
    """Tag -> verdict; tags of further ranks carry the rank."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for item in entries:
        by_rank.setdefault(int(item["key"].split("/")[1][5:]), []).append(item)
    found = judge([{"v": 1, "rank": rank, "traces": items} for rank, items in by_rank.items()], engine=engine)
    return {f"{item.trace.rank} {item.trace.tag}": item for item in found.traces.values()}


def family(swap: Mapping[tuple[int, str], str] | None = None, rank: int = 0) -> list[dict[str, Any]]:
    """Sizes 1, 2, 4 of both attentions; ``swap`` says what really ran where it is not the label."""
    entries = []
    for size in (1, 2, 4):
        for value in ("dense", "sparse"):
            really = (swap or {}).get((size, value), value)
            entries.append(entry(size, {"attention": value}, {"attention": really}, rank))
    return entries


def words(found: Mapping[str, TraceVerdict], axis: str = "attention") -> set[str]:
    return {item.variants[axis] for item in found.values()}


def test_the_engine_s_markers_prove_both_axes() -> None:
    entries = []
    for attention in ("dense", "sparse"):
        for lora in ("lora", "nolora"):
            variants = {"attention": attention, "lora": lora}
            entries += [entry(size, variants, variants) for size in (1, 2)]
    found = judged(entries)
    assert len(found) == 8
    assert words(found) == words(found, "lora") == {"proven"}


def test_swapped_labels_are_contradicted_and_say_what_they_hold() -> None:
    found = judged(family({(2, "dense"): "sparse", (2, "sparse"): "dense"}))
    wrong = {tag: " ".join(item.holds) for tag, item in found.items() if item.holds}
    assert wrong == {
        "0 DecodeRunner__bs_2__attention-dense": "attention sparse (2 aten::topk)",
        "0 DecodeRunner__bs_2__attention-sparse": "attention dense (2 aten::softmax, no aten::topk)",
    }
    assert found["0 DecodeRunner__bs_1__attention-dense"].variants == {"attention": "proven"}


def test_every_label_swapped_is_found_by_markers_alone() -> None:
    swap = {(size, value): other for size in (1, 2, 4) for value, other in (("dense", "sparse"), ("sparse", "dense"))}
    assert words(judged(family(swap))) == {"contradicted"}


@given(st.sets(st.tuples(st.sampled_from([0, 1]), st.sampled_from([1, 2, 4])), max_size=2))
def test_without_markers_the_minority_that_changed_places_is_found(swapped: set[tuple[int, int]]) -> None:
    entries = []
    for rank in (0, 1):
        swap = {}
        for size in (1, 2, 4):
            if (rank, size) in swapped:
                swap |= {(size, "dense"): "sparse", (size, "sparse"): "dense"}
        entries += family(swap, rank)
    found = judged(entries, engine="an engine without markers")
    wrong = {(item.trace.rank, item.trace.size) for item in found.values() if item.holds}
    assert wrong == swapped
    for item in found.values():
        other = "sparse" if item.trace.shape.variants["attention"] == "dense" else "dense"
        if item.holds:
            assert item.holds[0].startswith(f"attention {other} (")
        else:
            assert item.variants == {"attention": "distinct"}


def test_traces_of_other_variants_tell_which_of_two_exchanged_labels_is_wrong() -> None:
    """With one other trace a stream it is one word against another; the streams together decide."""
    entries = []
    for size, stream in itertools.product((2, 4), "01"):
        for value in ("dense", "sparse"):
            swapped = (size, stream) == (2, "0")
            really = {"dense": "sparse", "sparse": "dense"}[value] if swapped else value
            entries.append(entry(size, {"attention": value, "stream": stream}, {}, sequence=really))
    found = judged(entries, "")
    wrong = {tag for tag, item in found.items() if item.variants["attention"] == "contradicted"}
    assert wrong == {f"0 DecodeRunner__bs_2__attention-{value}__stream-0" for value in ("dense", "sparse")}
    assert words(found, "stream") == {"unproven"}


def test_as_many_swapped_as_not_leave_nobody_distinct() -> None:
    entries = family(rank=0) + family(
        {(size, value): other for size in (1, 2, 4) for value, other in (("dense", "sparse"), ("sparse", "dense"))}, 1
    )
    assert words(judged(entries, engine="")) == {"unproven"}


def test_sequences_that_depend_on_the_size_are_distinct() -> None:
    entries = [
        entry(size, {"mode": value}, {}, sequence=f"{size} {value}")
        for size in (1, 2, 4)
        for value in ("full", "piece")
    ]
    assert words(judged(entries, ""), "mode") == {"distinct"}


def test_equal_sequences_are_indistinct_not_contradicted() -> None:
    entries = [entry(size, {"stream": str(stream)}, {}, sequence="same") for size in (1, 2) for stream in (0, 1)]
    found = judged(entries)
    assert words(found, "stream") == {"unproven"}
    assert all("indistinct" in item.evidence[-1] for item in found.values())
    assert not any(item.duplicates for item in found.values())


def test_a_difference_at_one_size_among_equal_ones_makes_nothing_distinct() -> None:
    """The first capture of a process sets up what later ones find ready: that is no sign of a stream."""
    entries = [entry(size, {"stream": str(stream)}, {}, sequence="same") for size in (1, 2, 4) for stream in (0, 1)]
    entries[-2]["index"]["sequenceSha256"] = "set up, same"
    assert words(judged(entries), "stream") == {"unproven"}
    lone = [entry(4, {"mode": value}, {}, sequence=value) for value in ("full", "piece")]
    assert words(judged(lone, ""), "mode") == {"distinct"}


def test_a_variant_without_a_sibling_is_unproven() -> None:
    assert words(judged([entry(4, {"mode": "full"}, {})]), "mode") == {"unproven"}


def test_a_value_that_the_table_does_not_know_is_told_by_its_sequence() -> None:
    entries = [entry(4, {"attention": value}, {"attention": value}) for value in ("sparse", "candidate_2")]
    entries[1]["index"]["operators"]["aten::topk"] = 1
    found = judged(entries)
    assert found["0 DecodeRunner__bs_4__attention-candidate_2"].variants == {"attention": "distinct"}


def test_an_embedding_s_own_gather_marks_no_adapter() -> None:
    item = entry(4, {"lora": "nolora"}, {"lora": "nolora"})
    item["index"]["operators"] |= {"aten::embedding": 1, "aten::index_select": 1}
    assert words(judged([item]), "lora") == {"proven"}
    item["index"]["operators"]["aten::index_select"] = 3
    assert words(judged([item]), "lora") == {"contradicted"}


def test_absence_means_nothing_where_operators_were_left_out_or_none_were_recorded() -> None:
    item = entry(4, {"lora": "nolora"}, {"lora": "nolora"})
    item["index"]["leftOut"] = {"operators": 3}
    assert words(judged([item]), "lora") == {"unproven"}
    empty = entry(4, {"lora": "nolora"}, {"lora": "nolora"})
    empty["index"] |= {"operators": {}, "sequenceSha256": None}
    assert words(judged([empty]), "lora") == {"unproven"}


def test_every_marker_names_its_source_and_at_most_one_value_of_an_axis_holds() -> None:
    for engine, markers in MARKERS.items():
        assert all(marker.source and (marker.present or marker.absent or marker.windows) for marker in markers)
        table = MarkerTable.of(engine)
        for axis in {marker.axis for marker in markers}:
            for content in OPERATORS.values():
                item = entry(1, {}, {})
                item["index"]["operators"] = {"aten::mm": 1, **content}
                trace = read_trace(item, 0)
                assert trace is not None
                assert sum(marker.holds(trace) for marker in table.markers if marker.axis == axis) <= 1


def test_an_axis_that_has_no_honest_marker_says_why_and_has_none() -> None:
    for (engine, axis), why in NO_MARKERS.items():
        assert why
        assert axis not in {marker.axis for marker in MARKERS.get(engine, ())}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_operators_of_the_stand_in_engine_mark_nothing_of_another(engine: str) -> None:
    assert words(judged(family({(2, "dense"): "sparse"}), engine)) <= {"distinct", "unproven"}


@pytest.mark.parametrize(
    ("engine", "arguments", "table"),
    [
        ("torch", ["--layers", "2"], "torch"),
        ("torch", ["--model", "mine:build"], ""),
        ("torch", ["--model=mine:build"], ""),
        ("sglang", ["--model", "qwen"], "sglang"),
    ],
)
def test_a_model_of_the_user_s_has_no_markers(engine: str, arguments: list[str], table: str) -> None:
    assert table_name(engine, arguments) == table


FOUR = [{"attention": attention, "lora": lora} for attention in ("dense", "sparse") for lora in ("lora", "nolora")]


@pytest.mark.parametrize("order", [order for order in itertools.permutations(range(4)) if order != (0, 1, 2, 3)])
def test_labels_of_one_size_in_any_other_order_are_contradicted(order: tuple[int, ...]) -> None:
    """Also where they changed places in both axes at once."""
    entries = [entry(size, variants, variants) for size in (1, 2, 8) for variants in FOUR]
    entries += [entry(4, FOUR[place], FOUR[held]) for place, held in enumerate(order)]
    found = judged(entries, engine="sglang")
    for place, held in enumerate(order):
        verdict = found[f"0 {Shape(Runner('DecodeRunner'), 'bs', 4, FOUR[place]).tag}"]
        wrong = {axis for axis in FOUR[place] if FOUR[place][axis] != FOUR[held][axis]}
        assert {axis for axis, word in verdict.variants.items() if word == "contradicted"} == wrong
        for axis in wrong:
            assert any(text.startswith(f"{axis} {FOUR[held][axis]} (") for text in verdict.holds)
    others = [item for item in found.values() if item.trace.size != 4]
    assert {word for item in others for word in item.variants.values()} == {"distinct"}


@given(st.sets(st.integers(1, 64), min_size=2, max_size=6), st.integers(0, 64), st.booleans())
def test_a_variant_that_is_another_one_at_small_sizes_is_not_contradicted(
    sizes: set[int], limit: int, is_split: bool
) -> None:
    """Sparse attention that reads all of a short sequence; or each size captured with one of the values only."""
    entries = []
    for size in sorted(sizes):
        for variants in FOUR:
            if is_split and (variants["attention"] == "dense") != (size <= limit):
                continue
            really = {**variants, "attention": "dense" if size <= limit else variants["attention"]}
            entries.append(entry(size, variants, really))
    assert "contradicted" not in words(judged(entries, engine="sglang"))
