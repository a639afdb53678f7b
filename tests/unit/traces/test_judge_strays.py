"""One wrong label among right ones: found where its trace has fewer rows than it claims, and never a right label."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import judge
from shapetrace_traces.judge.verdicts import Verdicts

Gemms = dict[str, dict[str, int]]


def products(factors: list[int], size: int, constants: tuple[int, ...] = (), calls: int = 4) -> Gemms:
    found = {f"aten::mm 8x{number}": {str(factor * size): calls} for number, factor in enumerate(factors)}
    return {**found, **{f"aten::mm 9x{number}": {str(rows): 2} for number, rows in enumerate(constants)}}


def judged(by_label: dict[int, Gemms], width: int | None = None, seen: dict[int, int] | None = None) -> Verdicts:
    entries: list[dict[str, Any]] = []
    for label, gemms in by_label.items():
        tag = Shape(Runner("DecodeRunner", width=width), "bs", label).tag
        index = {"v": 1, "error": None, "operators": {"aten::mm": 1}, "gemms": gemms}
        rows = {"rows": seen[label]} if seen else {}
        entries.append({"key": tag, "tag": tag, "stage": "capture", "bytes": 1, "index": index, "witnesses": rows})
    plan = [{"epoch": 1, "shapes": [item["tag"] for item in entries], "notPlanned": []}]
    done = {"records": len(entries), "ok": True, "reason": "Done", "eager": None}
    record = {"rank": 0, "hooks": {"engine": "applied"}}
    part = {"v": 1, "rank": 0, "record": record, "plan": plan, "done": done, "traces": entries, "lost": []}
    return judge([part])


def words(found: Verdicts) -> dict[int, str]:
    return {item.trace.size: item.size for item in found.traces.values()}


def holds(found: Verdicts) -> dict[int, str]:
    return {item.trace.size: " ".join(item.holds) for item in found.traces.values() if item.holds}


FAULT = {1: 1, 32: 2, 4: 4, 8: 8}
"""Label -> what the trace holds."""


def plain(content: dict[int, int], factor: int = 1) -> dict[int, Gemms]:
    return {label: products([factor, factor], size, (1,)) for label, size in content.items()}


def test_a_label_too_large_for_its_rows_is_found_and_the_others_stay_proven() -> None:
    found = judged(plain(FAULT))
    assert words(found) == {1: "proven", 32: "contradicted", 4: "proven", 8: "proven"}
    assert holds(found) == {32: "size 2 (aten::mm 8x1 rows 2, and the size in all other traces)"}
    assert found.verdict == "Mislabelled"


def test_the_forward_call_that_saw_what_the_trace_holds_agrees() -> None:
    assert words(judged(plain(FAULT), seen=FAULT))[32] == "contradicted"


def test_a_forward_call_that_saw_the_claimed_rows_leaves_the_label_undecided() -> None:
    """The rows may have been sharded within the forward at this size only."""
    assert set(words(judged(plain(FAULT), seen={label: label for label in FAULT})).values()) == {"consistent"}


def test_rows_that_every_size_shards_do_not_hide_a_stray_beside_rows_that_none_does() -> None:
    content = {2: 2, 32: 4, 8: 8, 16: 16}
    sharded = {label: {**products([1], size), "aten::mm 6x6": {str(size // 2): 9}} for label, size in content.items()}
    found = judged(sharded, seen=content)
    assert words(found) == {2: "proven", 32: "contradicted", 8: "proven", 16: "proven"}
    assert holds(found)[32].startswith("size 4 (")
    alone = words(judged(sharded))
    assert alone == {2: "consistent", 32: "contradicted", 8: "consistent", 16: "consistent"}, "all may have slipped"


def split(size: int, at: int) -> Gemms:
    """From ``at`` on a batch runs as two halves, one after the other."""
    return products([1, 1], size, (1,)) if size < at else products([1, 1], size // 2, (1,), calls=8)


def tail(size: int) -> Gemms:
    """Whole tiles of four rows by one operator, what is left by another."""
    whole = {"aten::mm 8x8": {str(size // 4 * 4 or size): 4}}
    return {**whole, "aten::addmm 8x8": {str(size % 4): 4}} if size > 4 and size % 4 else whole


@pytest.mark.parametrize(
    "right",
    [
        pytest.param({size: split(size, 24) for size in (1, 2, 4, 8, 16, 24)}, id="the largest is split"),
        pytest.param({**plain({1: 1, 2: 2, 32: 32}), 12: split(12, 12)}, id="one in the middle is split"),
        pytest.param({size: tail(size) for size in (1, 2, 7, 8, 16)}, id="a tail of its own"),
        pytest.param({size: products([1], min(size, 8)) for size in (1, 2, 4, 32)}, id="rows stop growing"),
        pytest.param({size: products([1], max(1, size // 2)) for size in (2, 4, 8)}, id="all are sharded"),
        pytest.param(plain({1: 1, 4: 4, 8: 4, 16: 16}), id="as many as a sibling"),
        pytest.param(plain({2: 1, 4: 2, 10: 4, 16: 8}), id="a third of the size, padded to powers of two"),
        pytest.param(plain({1: 1, 2: 2, 3: 8, 16: 16}), id="one is padded"),
        pytest.param(plain({1: 2, 3: 6, 5: 4}), id="padded to two, 3 and 5 exchanged: which is which, nothing tells"),
        pytest.param(plain({8: 8, 20: 4}), id="two sizes"),
        pytest.param(
            {size: products([1, 1], size) | {"aten::mm 7x7": {rows: 4}} for size, rows in
             {1: "1", 2: "2", 8: "3", 16: "16"}.items()}, id="experts whose rows are data",
        ),
        pytest.param(
            {size: {"aten::mm 7x7": {rows: 4}, "aten::mm 6x6": {"16": 4} if size < 16 else {"24": 4}}
             for size, rows in {1: "1", 2: "2", 8: "3", 16: "16"}.items()}, id="such experts, all else padded",
        ),
    ],
)  # fmt: skip
def test_fewer_rows_that_something_else_explains_condemn_nothing(right: dict[int, Gemms]) -> None:
    assert "contradicted" not in words(judged(right)).values()


def test_rows_of_no_whole_size_are_no_stray() -> None:
    content = {4: products([2], 4), 8: products([2], 8), 32: products([1], 1)}
    assert words(judged(content, width=2)) == {4: "proven", 8: "proven", 32: "unproven"}


families = st.lists(st.integers(1, 64), min_size=3, max_size=10, unique=True)


@settings(max_examples=150)
@given(families, st.integers(1, 4), st.lists(st.integers(1, 9), max_size=3), st.integers(1, 200), st.data())
def test_a_label_replaced_by_a_larger_one_is_found(
    sizes: list[int], width: int, factors: list[int], label: int, data: st.DataObject
) -> None:
    moved = data.draw(st.sampled_from(sizes))
    assume(label > moved and label not in sizes)
    content = {label if size == moved else size: size for size in sizes}
    gemms = {key: products([width, *factors], size, (1, 128)) for key, size in content.items()}
    found = judged(gemms, width, {key: width * size for key, size in content.items()})
    said = words(found)
    if moved == max(sizes):
        # as rows that stop growing are; labels that are all of one factor in order are taken for exchanged
        assert said[label] != "proven"
        return
    assert said[label] == "contradicted"
    if len({size / key for key, size in zip(sorted(content), sorted(sizes), strict=True)}) > 1:
        assert holds(found).keys() == {label}
        assert holds(found)[label].startswith(f"size {moved} (")
        assert {word for key, word in said.items() if key != label} == {"proven"}


@settings(max_examples=100)
@given(families, st.integers(1, 4), st.lists(st.integers(1, 9), max_size=3), st.integers(1, 64), st.data())
def test_a_label_replaced_by_a_smaller_one_is_never_proven(
    sizes: list[int], width: int, factors: list[int], label: int, data: st.DataObject
) -> None:
    moved = data.draw(st.sampled_from(sizes))
    assume(label < moved and label not in sizes)
    content = {label if size == moved else size: size for size in sizes}
    found = judged({key: products([width, *factors], size, (1, 128)) for key, size in content.items()}, width)
    assert words(found)[label] != "proven"
