"""Labels that claim more rows than their traces have, where nothing names what they hold: said, and no neighbour with
them; and no right family is among them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shapetrace_traces.judge.padding import is_explained, is_explained_by_parts, is_explained_with_limit

from .test_judge_strays import Gemms, judged, plain, products, split, tail, words

USUAL = (1, 2, 4, 8, 12, 16, 24, 32)


def content(**wrong: int) -> dict[int, int]:
    return {size: wrong.get(f"bs_{size}", size) for size in USUAL}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"bs_8": 5, "bs_24": 20}, id="two that no label names"),
        pytest.param({"bs_8": 5, "bs_24": 20, "bs_12": 9}, id="three"),
        pytest.param({"bs_8": 7, "bs_24": 23}, id="two that are one short"),
        pytest.param({"bs_32": 2}, id="the largest holds what another label names"),
        pytest.param({"bs_32": 31, "bs_8": 7, "bs_2": 1}, id="next smaller sizes"),
    ],
)
@pytest.mark.parametrize("factor", [1, 3])
def test_labels_with_fewer_rows_than_they_claim_are_not_borne_out_and_the_others_are_proven(
    wrong: dict[str, int], factor: int
) -> None:
    found = judged(plain(content(**wrong), factor), width=factor)
    said = words(found)
    short = {size for size, held in content(**wrong).items() if held < size}
    largest = {32} if wrong.get("bs_32") == 31 else set()  # nothing has more rows: as rows that stop growing
    assert {size for size, word in said.items() if word == "unproven"} == short - largest
    assert {word for size, word in said.items() if size not in short} == ({"proven"} if not largest else {"consistent"})
    for item in found.traces.values():
        if item.size == "unproven":
            claimed = factor * item.trace.size
            assert f"fewer than the {claimed} that its label claims" in item.evidence[0]
    assert any("fewer rows than their labels claim" in text for text in found.reasons)


def test_labels_that_all_slipped_to_the_next_smaller_size_are_not_borne_out() -> None:
    shifted = dict(zip(USUAL[1:], USUAL, strict=False))
    said = words(judged(plain(shifted)))
    assert set(said.values()) == {"unproven"}


def test_gathered_products_beside_do_not_hide_them() -> None:
    by_label = {label: products([1, 4], held, (1,)) for label, held in content(bs_8=5, bs_24=20).items()}
    said = words(judged(by_label))
    assert {size for size, word in said.items() if word == "unproven"} == {8, 24}


def test_a_forward_call_that_saw_the_claimed_rows_leaves_them_undecided() -> None:
    held = content(bs_8=5, bs_24=20)
    said = words(judged(plain(held), seen={label: label for label in held}))
    assert set(said.values()) == {"consistent"}


def capped(size: int, limit: int) -> Gemms:
    return products([1, 1], min(size, limit))


@pytest.mark.parametrize(
    "right",
    [
        pytest.param({size: split(size, 24) for size in (1, 2, 4, 8, 16, 24)}, id="the largest is split"),
        pytest.param({**plain({1: 1, 2: 2, 32: 32}), 12: split(12, 12)}, id="one in the middle is split"),
        pytest.param({size: tail(size) for size in (1, 2, 7, 8, 16)}, id="a tail of its own"),
        pytest.param({size: capped(size, 8) for size in USUAL}, id="rows stop growing"),
        pytest.param({size: capped(size, 9) for size in USUAL}, id="rows stop growing between two sizes"),
        pytest.param({size: products([1], -(-size // 2)) for size in USUAL}, id="sharded"),
        pytest.param({size: products([1], -(-max(size, 4) // 4)) for size in USUAL}, id="sharded, with a least size"),
        pytest.param(
            {size: {"aten::mm 7x7": {rows: 4}, "aten::mm 6x6": {"16": 4} if size < 16 else {"24": 4}}
             for size, rows in {1: "1", 2: "2", 8: "3", 16: "16"}.items()}, id="experts whose rows are data",
        ),
    ],
)  # fmt: skip
def test_fewer_rows_of_right_families_say_nothing(right: dict[int, Gemms]) -> None:
    assert "unproven" not in words(judged(right)).values()


@st.composite
def right_rows(draw: st.DrawFn) -> tuple[list[int], int, list[dict[int, int]]]:
    """Sizes, width, and the rows of some products: padded, then capped, then sharded, then at least some."""
    sizes = sorted(draw(st.sets(st.integers(1, 64), min_size=2, max_size=9)))
    width = draw(st.sampled_from([1, 1, 1, 2, 4]))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        multiple = draw(st.sampled_from([1, 1, 2, 3, 4, 8, 16]))
        limit = draw(st.sampled_from([10_000, 10_000, 100, 32, 16, 9]))
        shards = draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
        to_power = draw(st.booleans())

        def count(size: int, of: tuple[int, int, int, bool]) -> int:
            multiple, limit, shards, to_power = of
            found = width * size
            found = 1 << (found - 1).bit_length() if to_power else -(-found // multiple) * multiple
            return -(-min(found, limit) // shards)

        rows.append({size: count(size, (multiple, limit, shards, to_power)) for size in sizes})
    return sizes, width, rows


@settings(max_examples=200)
@given(right_rows(), st.booleans())
def test_no_right_family_is_short_of_rows(case: tuple[list[int], int, list[dict[int, int]]], is_told: bool) -> None:
    """Also where nobody told the width."""
    sizes, width, rows = case
    by_label = {size: {f"aten::mm 8x{number}": {str(of[size]): 4} for number, of in enumerate(rows)} for size in sizes}
    said = words(judged(by_label, width if is_told else None))
    assert not {"unproven", "contradicted"} & set(said.values())


@settings(max_examples=100)
@given(st.lists(st.integers(1, 64), min_size=4, max_size=9, unique=True), st.data())
def test_a_label_with_fewer_rows_is_never_called_borne_out(sizes: list[int], data: st.DataObject) -> None:
    """Any labels that are too large, fewer than half of them: none is proven, and all but the largest are found."""
    sizes.sort()
    count = data.draw(st.integers(1, (len(sizes) - 1) // 2))
    wrong = data.draw(st.lists(st.sampled_from(sizes[:-1]), min_size=count, max_size=count, unique=True))
    held = {size: data.draw(st.integers(1, size - 1)) if size in wrong and size > 1 else size for size in sizes}
    assume(any(size != rows for size, rows in held.items()))
    found = judged(plain(held))
    said = words(found)
    labels, seen = ({str(size): value for size, value in pairs} for pairs in ([(s, s) for s in held], held.items()))
    is_ambiguous = is_explained_with_limit(labels, seen)  # as sizes that are rounded up, and sharded
    for item in found.traces.values():
        size, rows = item.trace.size, held[item.trace.size]
        if rows == size:
            assert item.size == "proven" or is_ambiguous or "contradicted" in said.values(), (held, said)
        elif is_ambiguous and rows in [of for other, of in held.items() if other == of]:
            assert item.size == "consistent"
            assert "fewer than the" in item.evidence[0]
        else:
            assert item.size in ("unproven", "contradicted"), (held, said)


@pytest.mark.parametrize(
    ("rows", "by_padding", "with_limit", "by_parts"),
    [
        ((1, 2, 4, 16), True, True, True),
        ((1, 1, 2, 8), True, True, True),
        ((1, 2, 4, 6), False, True, True),
        ((1, 2, 3, 16), True, True, False),
        ((1, 4, 2, 16), False, False, False),
        ((8, 8, 8, 16), True, True, True),
        ((3, 6, 12, 48), True, True, True),
    ],
)
def test_what_explains_rows(rows: tuple[int, ...], by_padding: bool, with_limit: bool, by_parts: bool) -> None:
    labels = {"a": 1, "b": 2, "c": 4, "d": 16}
    seen = dict(zip(labels, rows, strict=True))
    assert is_explained(labels, seen) is by_padding
    assert is_explained_with_limit(labels, seen) is with_limit
    assert is_explained_by_parts(labels, seen, 1) is by_parts
