"""Size support: a correct family is never condemned, a swap that its rows show is always found and named."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import judge
from shapetrace_traces.judge.fit import Series, fit_family


@dataclass(frozen=True)
class Product:
    """A matrix product of a made-up model: how many rows it has at a size, and how often it is called."""

    operator: str
    weight: str
    rows: Callable[[int], int]
    calls: int
    text: str
    exact: bool = False

    def __repr__(self) -> str:
        return f"{self.operator} {self.weight}: {self.calls} x {self.text}"


def exact(factor: int, calls: int = 4, weight: str = "8x8", operator: str = "aten::mm") -> Product:
    return Product(operator, weight, lambda size: factor * size, calls, f"{factor} * size", exact=True)


def constant(rows: int, calls: int = 2, weight: str = "8x9", operator: str = "aten::mm") -> Product:
    return Product(operator, weight, lambda size: rows, calls, f"{rows}")


def padded(factor: int, multiple: int, calls: int = 3, weight: str = "8x7", operator: str = "aten::mm") -> Product:
    def rows(size: int) -> int:
        return -(-factor * size // multiple) * multiple

    return Product(operator, weight, rows, calls, f"{factor} * size up to {multiple}")


def capped(limit: int, calls: int = 3, weight: str = "8x6", operator: str = "aten::mm") -> Product:
    return Product(operator, weight, lambda size: min(size, limit), calls, f"min(size, {limit})")


def index(products: list[Product], size: int, *, weights: bool = True) -> dict[str, Any]:
    """The index of a trace of that model; without ``weights`` as a reader would give it that knows operators only."""
    by_operator: dict[str, Counter[str]] = {}
    by_weight: dict[str, Counter[str]] = {}
    for item in products:
        rows = str(item.rows(size))
        by_operator.setdefault(item.operator, Counter())[rows] += item.calls
        by_weight.setdefault(f"{item.operator} {item.weight}", Counter())[rows] += item.calls
    found = {"v": 1, "error": None, "operators": {name: rows.total() for name, rows in by_operator.items()}}
    found["gemmRows"] = {name: dict(rows) for name, rows in by_operator.items()}
    if weights:
        found["gemms"] = {name: dict(rows) for name, rows in by_weight.items()}
    return found


def entry(shape: Shape, index: dict[str, Any], rank: int = 0, **more: Any) -> dict[str, Any]:
    key = f"traces/rank-{rank:05d}/{shape.tag}.json.gz"
    return {"key": key, "tag": shape.tag, "stage": "capture", "bytes": 1, "index": index, **more}


def shape(size: int, width: int | None = None, unit: str = "bs", **variants: str) -> Shape:
    return Shape(Runner("DecodeRunner", width=width), unit, size, variants)


def part(entries: list[dict[str, Any]], rank: int = 0) -> dict[str, Any]:
    plan = [{"epoch": 1, "shapes": [item["tag"] for item in entries], "notPlanned": []}]
    done = {"records": len(entries), "ok": True, "reason": "Done", "eager": None}
    record = {"rank": rank, "hooks": {"engine": "applied"}}
    return {"v": 1, "rank": rank, "record": record, "plan": plan, "done": done, "traces": entries, "lost": []}


def supports(entries: list[dict[str, Any]]) -> dict[str, str]:
    found = judge([part(entries)])
    return {item.trace.tag: item.size for item in found.traces.values()}


def holds(entries: list[dict[str, Any]]) -> dict[str, str]:
    found = judge([part(entries)])
    return {item.trace.tag: " ".join(item.holds) for item in found.traces.values() if item.holds}


sizes_of_a_family = st.lists(st.integers(1, 64), min_size=2, max_size=12, unique=True)
weights = st.sampled_from(["8x8", "8x16", "64x8", "32x64"])
operators = st.sampled_from(["aten::mm", "aten::addmm", "aten::linear"])
calls = st.integers(1, 40)
exact_products = st.builds(exact, st.integers(1, 9), calls, weights, operators)
any_products = st.one_of(
    exact_products,
    st.builds(constant, st.integers(1, 128), calls, weights, operators),
    st.builds(padded, st.integers(1, 4), st.sampled_from([2, 3, 4, 8, 16, 32]), calls, weights, operators),
    st.builds(capped, st.integers(1, 64), calls, weights, operators),
)


@settings(max_examples=100)
@given(sizes_of_a_family, st.lists(any_products, min_size=1, max_size=6), st.booleans())
def test_a_correct_family_is_never_condemned(sizes: list[int], products: list[Product], weights: bool) -> None:
    entries = [entry(shape(size), index(products, size, weights=weights)) for size in sizes]
    assert "contradicted" not in supports(entries).values()


@settings(max_examples=60)
@given(sizes_of_a_family, st.lists(any_products, max_size=6), st.integers(1, 9))
def test_one_product_with_the_rows_that_the_label_claims_proves_a_family(
    sizes: list[int], products: list[Product], width: int
) -> None:
    products = [*products, exact(width, weight="the projection")]
    seen = [entry(shape(size, width), index(products, size), witnesses={"rows": width * size}) for size in sizes]
    assert set(supports(seen).values()) == {"proven"}
    if all(item.rows(size) in (width * size, item.rows(1)) for item in products for size in sizes):
        unseen = [entry(shape(size, width), index(products, size)) for size in sizes]
        assert set(supports(unseen).values()) == {"proven"}, "no product speaks of another factor"


@settings(max_examples=60)
@given(sizes_of_a_family, st.integers(1, 4), st.integers(2, 4), st.lists(any_products, max_size=3))
def test_labels_that_slipped_by_the_factor_between_two_products_are_not_proven(
    sizes: list[int], width: int, slip: int, more: list[Product]
) -> None:
    """The same events are those of right labels where parts are gathered, and of slipped ones where parts are sharded:
    only the forward call tells."""
    products = [exact(width, weight="some"), exact(slip * width, weight="others"), *more]
    indexes = {size: index(products, size) for size in sizes}
    for forward, word in ((None, "consistent"), (width, "proven"), (slip * width, "consistent")):
        rows = {size: {} if forward is None else {"rows": forward * size} for size in sizes}
        entries = [entry(shape(size, width), indexes[size], witnesses=rows[size]) for size in sizes]
        assert set(supports(entries).values()) == {word}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (constant(1), "the output head on the last token"),
        (padded(1, 8), "two sizes with the rows of one"),
        (capped(8), "rows that stop growing"),
        (Product("aten::mm", "8x5", lambda size: size, 4, "one token of four"), "of size 2 that were half a request"),
    ],
)
def test_rows_that_cannot_be_those_of_other_sizes_leave_a_family_proven(more: Product, why: str) -> None:
    entries = [entry(shape(size, 4), index([exact(4), more], size)) for size in (2, 4, 8, 16)]
    assert set(supports(entries).values()) == {"proven"}, why


def test_where_sizes_changed_places_the_others_may_have_slipped_all_the_same() -> None:
    content = {2: 2, 4: 8, 8: 4, 16: 16}
    entries = [entry(shape(label), index([exact(1), exact(2, weight="8x16")], size)) for label, size in content.items()]
    assert supports(entries) == {
        shape(label).tag: "consistent" if label == size else "contradicted" for label, size in content.items()
    }


@settings(max_examples=60)
@given(sizes_of_a_family, st.integers(2, 9), st.integers(2, 4))
def test_labels_that_all_slipped_by_one_factor_are_not_proven(sizes: list[int], width: int, slip: int) -> None:
    """A cursor that is one off in 64, 32, 16, ...: every product fits, with a factor that nothing explains."""
    for claimed, products in ((None, [exact(1), constant(128)]), (width, [exact(width), constant(128)])):
        entries = [entry(shape(size, claimed), index(products, slip * size)) for size in sizes]
        assert set(supports(entries).values()) == {"consistent"}


def test_what_every_product_multiplies_is_proven_where_the_forward_call_saw_the_size() -> None:
    """All gathered over data parallel ranks, inside the forward; slipped labels would show at the call."""
    sizes = (2, 4, 8)
    gathered = {size: index([exact(4)], size) for size in sizes}
    seen = [entry(shape(size), gathered[size], witnesses={"rows": size}) for size in sizes]
    assert set(supports(seen).values()) == {"proven"}
    slipped = [entry(shape(size), gathered[size], witnesses={"rows": 4 * size}) for size in sizes]
    assert set(supports(slipped).values()) == {"consistent"}


def test_a_size_in_tokens_claims_a_row_a_token_whatever_the_width() -> None:
    """Ragged verification: the key counts tokens already."""
    entries = [entry(shape(size, 4, "tok"), index([exact(1)], size)) for size in (4, 8, 16)]
    assert set(supports(entries).values()) == {"proven"}


@given(st.integers(2, 8))
def test_two_swaps_among_wide_rows_are_not_taken_for_padding(width: int) -> None:
    content = {1: 2, 2: 1, 4: 8, 8: 4}
    found = holds([entry(shape(label, width), index([exact(width)], size)) for label, size in content.items()])
    assert found.keys() == {shape(size, width).tag for size in content}
    assert found[shape(4, width).tag].startswith("size 8 (")


@pytest.mark.parametrize("sizes", [(1, 2), (1, 2, 4), (2, 4, 8, 16)])
@pytest.mark.parametrize("swap", [False, True])
def test_two_factors_of_one_product_are_told_apart_though_rows_coincide(sizes: tuple[int, ...], swap: bool) -> None:
    """Attention over own requests, the rest over those of two ranks, weights of one form: 2 is 2 x 1 and 1 x 2."""
    content = dict(zip(sizes, (sizes[1], sizes[0], *sizes[2:]) if swap else sizes, strict=True))
    products = [exact(1), exact(2)]
    entries = [entry(shape(label), index(products, size), witnesses={"rows": label}) for label, size in content.items()]
    assert supports(entries) == {
        shape(label).tag: "proven" if label == size else "contradicted" for label, size in content.items()
    }


random_rows = st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=4), min_size=2, max_size=6)


@settings(max_examples=100)
@given(random_rows, st.booleans())
def test_experts_whose_rows_depend_on_the_data_condemn_nothing_beside_a_router(
    rows: list[list[int]], same_weight: bool
) -> None:
    entries = []
    for number, of_experts in enumerate(rows):
        size = 2**number
        item = index([exact(1)], size)
        of_weight = item["gemms"].setdefault("aten::mm 8x8" if same_weight else "aten::mm 8x32", {})
        for count in of_experts:
            key = str(min(count, size))  # no expert has more rows than there are
            of_weight[key] = of_weight.get(key, 0) + 1
        entries.append(entry(shape(size), item))
    assert "contradicted" not in supports(entries).values()


@settings(max_examples=100)
@given(sizes_of_a_family, st.lists(any_products, max_size=5), st.integers(1, 9), st.data())
def test_two_swapped_sizes_are_found_and_named(
    sizes: list[int], products: list[Product], factor: int, data: st.DataObject
) -> None:
    products = [*products, exact(factor, weight="the projection")]
    one, two = data.draw(st.lists(st.sampled_from(sizes), min_size=2, max_size=2, unique=True))
    content = {**{size: size for size in sizes}, one: two, two: one}
    found = holds([entry(shape(label), index(products, size)) for label, size in content.items()])
    assert found.keys() == {shape(one).tag, shape(two).tag}
    assert found[shape(one).tag].startswith(f"size {two} (")
    assert found[shape(two).tag].startswith(f"size {one} (")


@settings(max_examples=60)
@given(sizes_of_a_family, exact_products, st.data())
def test_any_shuffle_is_named_trace_by_trace(sizes: list[int], product: Product, data: st.DataObject) -> None:
    content = dict(zip(sizes, data.draw(st.permutations(sizes)), strict=True))
    factor_of_labels = {product.rows(size) / label for label, size in content.items()}
    entries = [entry(shape(label), index([product], size)) for label, size in content.items()]
    if len(factor_of_labels) == 1:
        assert set(supports(entries).values()) == {"proven" if product.rows(1) == 1 else "consistent"}
        return
    least = min(product.rows(size) / label for label, size in content.items())
    fitting = sum(product.rows(size) / label == least for label, size in content.items())
    assume(not (least >= 1 and fitting >= 2))  # padding would explain it too
    moved = {shape(label).tag: size for label, size in content.items() if label != size}
    found = holds(entries)
    assert found.keys() == moved.keys()
    for tag, size in moved.items():
        assert found[tag].startswith(f"size {size} (")


@given(st.lists(st.integers(1, 64), min_size=2, max_size=8, unique=True), st.integers(2, 8))
def test_speculative_width_multiplies_the_rows_of_every_size(sizes: list[int], width: int) -> None:
    products = [exact(width), exact(width, operator="aten::addmm"), constant(128)]
    entries = [entry(shape(size, width), index(products, size)) for size in sizes]
    assert set(supports(entries).values()) == {"proven"}
    unknown = [entry(shape(size), index(products, size)) for size in sizes]
    assert set(supports(unknown).values()) == {"consistent"}, "nothing says why there are more rows"


def test_a_router_with_as_many_experts_as_requests_proves_nothing_and_hides_nothing() -> None:
    sizes = [8, 16, 32, 64]
    experts = constant(32, calls=12, weight="8x8")  # the same weight as the projection: only the counts differ
    entries = [entry(shape(size), index([exact(1), experts], size)) for size in sizes]
    assert set(supports(entries).values()) == {"proven"}
    assert set(supports([entry(shape(size), index([experts], size)) for size in sizes]).values()) == {"consistent"}
    swapped = {8: 8, 16: 32, 32: 16, 64: 64}
    found = holds([entry(shape(label), index([exact(1), experts], size)) for label, size in swapped.items()])
    assert found == {
        "DecodeRunner__bs_16": "size 32 (aten::mm 8x8 rows 32)",
        "DecodeRunner__bs_32": "size 16 (aten::mm 8x8 rows 16)",
    }


def test_a_lone_size_is_consistent() -> None:
    assert supports([entry(shape(4), index([exact(1)], 4))]) == {"DecodeRunner__bs_4": "consistent"}


def test_constant_rows_are_consistent() -> None:
    entries = [entry(shape(size), index([constant(8)], size)) for size in (1, 2, 8)]
    assert set(supports(entries).values()) == {"consistent"}


def test_padding_is_consistent_not_proven() -> None:
    entries = [entry(shape(size), index([padded(1, 8)], size)) for size in (1, 2, 4, 8, 16, 32)]
    assert set(supports(entries).values()) == {"consistent"}


def test_a_swap_among_unpadded_sizes_is_found_though_the_small_ones_are_padded() -> None:
    content = {1: 1, 2: 2, 4: 4, 8: 8, 16: 32, 32: 16, 64: 64}
    found = holds([entry(shape(label), index([padded(1, 8)], size)) for label, size in content.items()])
    assert found.keys() == {"DecodeRunner__bs_16", "DecodeRunner__bs_32"}


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 64), min_size=3, max_size=10, unique=True),
    st.sampled_from([2, 4, 8, 16]),
    st.integers(1, 4),
    st.data(),
)
def test_under_padding_only_labels_that_moved_are_condemned_and_what_is_said_of_them_is_true(
    sizes: list[int], multiple: int, width: int, data: st.DataObject
) -> None:
    one, two = data.draw(st.lists(st.sampled_from(sizes), min_size=2, max_size=2, unique=True))
    content = {**{size: size for size in sizes}, one: two, two: one}
    found = holds(
        [entry(shape(label, width), index([padded(width, multiple)], size)) for label, size in content.items()]
    )
    assert found.keys() <= {shape(one, width).tag, shape(two, width).tag}
    for label in (one, two):
        said = found.get(shape(label, width).tag, "")
        most = re.match(r"size at most (\d+) \(", said)
        assert not said or said.startswith(f"size {content[label]} (") or (most and content[label] <= int(most[1]))


def test_a_swap_between_rows_that_padding_made_equal_and_others_is_found() -> None:
    content = {1: 1, 2: 2, 4: 16, 8: 8, 16: 4, 32: 32}
    found = holds([entry(shape(label), index([padded(1, 8)], size)) for label, size in content.items()])
    assert found == {
        "DecodeRunner__bs_4": "size 16 (aten::mm 8x7 rows 16)",
        "DecodeRunner__bs_16": "size at most 8 (aten::mm 8x7 rows 8)",
    }


def test_what_padding_leaves_vague_does_not_blur_what_another_product_says() -> None:
    products = [exact(1, calls=1), padded(1, 2, operator="aten::addmm")]
    content = {1: 6, 6: 1, 2: 2, 3: 3, 4: 4}
    found = holds([entry(shape(label), index(products, size)) for label, size in content.items()])
    assert found[shape(6).tag].startswith("size 1 (")
    assert found[shape(1).tag].startswith("size 6 (")


def test_a_small_size_padded_beyond_larger_ones_is_not_condemned() -> None:
    rows = {4: 32, 8: 8, 16: 16}
    entries = [entry(shape(size), index([constant(count)], size)) for size, count in rows.items()]
    assert set(supports(entries).values()) == {"consistent"}


def test_two_traces_among_unexplained_ones_are_too_little_to_condemn() -> None:
    content = {1: 1, 3: 3, 8: 16, 16: 8}
    entries = [entry(shape(label), index([padded(1, 8)], size)) for label, size in content.items()]
    assert set(supports(entries).values()) == {"consistent"}


def test_rows_below_the_size_prove_nothing() -> None:
    """A label list that lost its first size looks like a factor of one half."""
    entries = [entry(shape(label), index([exact(1)], label // 2)) for label in (2, 4, 8, 16)]
    assert set(supports(entries).values()) == {"consistent"}


def test_a_product_that_exists_at_large_sizes_only_condemns_nothing() -> None:
    small, large = (
        [exact(1, operator="small::mm")],
        [exact(1, operator="large::mm"), padded(1, 96, operator="large::mm")],
    )
    entries = [entry(shape(size), index(small if size < 32 else large, size)) for size in (1, 2, 8, 32, 64, 128)]
    assert set(supports(entries).values()) == {"proven"}


def test_a_label_that_changed_places_with_one_of_another_variant_is_found() -> None:
    """Within each variant one size is there twice and one is missing; only together do they make a swap."""
    labels = [shape(size, attention=value) for size in (1, 2, 4, 8) for value in ("dense", "sparse")]
    one, two = shape(8, attention="dense"), shape(4, attention="sparse")
    content = {label.tag: {one.tag: two.size, two.tag: one.size}.get(label.tag, label.size) for label in labels}
    found = holds([entry(label, index([exact(1)], content[label.tag])) for label in labels])
    assert found == {one.tag: "size 4 (aten::mm 8x8 rows 4)", two.tag: "size 8 (aten::mm 8x8 rows 8)"}


def test_the_rows_at_the_forward_call_are_evidence_where_no_shapes_were_recorded() -> None:
    nothing = {"v": 1, "error": None, "operators": {"aten::mm": 3}, "gemmRows": {}}
    content = {1: 1, 2: 4, 4: 2}
    entries = [entry(shape(label), nothing, witnesses={"rows": rows}) for label, rows in content.items()]
    assert holds(entries) == {
        "DecodeRunner__bs_2": "size 4 (the forward call rows 4)",
        "DecodeRunner__bs_4": "size 2 (the forward call rows 2)",
    }


def test_a_record_that_is_right_does_not_save_a_trace_that_is_another_s() -> None:
    content = {1: 1, 2: 4, 4: 2, 8: 8}
    entries = [
        entry(shape(label), index([exact(1)], size), witnesses={"rows": label}) for label, size in content.items()
    ]
    assert holds(entries).keys() == {"DecodeRunner__bs_2", "DecodeRunner__bs_4"}


def test_a_forward_call_with_other_rows_leaves_a_label_unproven() -> None:
    seen = {1: 1, 2: 4, 4: 2, 8: 8}
    entries = [entry(shape(size), index([exact(1)], size), witnesses={"rows": rows}) for size, rows in seen.items()]
    assert [supports(entries)[shape(size).tag] for size in seen] == ["proven", "consistent", "consistent", "proven"]


def test_the_forward_call_tells_sharded_rows_from_a_lost_size() -> None:
    sizes = (2, 4, 8)
    halved = {size: index([exact(1)], size // 2) for size in sizes}
    sharded = [entry(shape(size), halved[size], witnesses={"rows": size}) for size in sizes]
    assert set(supports(sharded).values()) == {"proven"}
    lost = [entry(shape(size), halved[size], witnesses={"rows": size // 2}) for size in sizes]
    assert set(supports(lost).values()) == {"consistent"}


def test_a_forward_call_with_a_multiple_of_the_size_leaves_a_label_unproven() -> None:
    """Labels that slipped to half the size, in a model whose parts see half the rows each."""
    halves = [entry(shape(size), index([exact(1)], size), witnesses={"rows": 2 * size}) for size in (2, 4, 8)]
    assert set(supports(halves).values()) == {"consistent"}


def test_the_forward_call_alone_proves_nothing() -> None:
    nothing = {"v": 1, "error": None, "operators": {"aten::mm": 3}, "gemmRows": {}}
    entries = [entry(shape(size), nothing, witnesses={"rows": size}) for size in (1, 2, 4)]
    assert set(supports(entries).values()) == {"consistent"}


def test_operators_that_disagree_leave_a_label_unproven() -> None:
    labels = {"a": 1, "b": 2, "c": 4}
    series = [Series("fits", {"a": 1, "b": 2, "c": 4}, 5), Series("fits another", {"a": 8, "b": 4, "c": 2}, 5)]
    words = {trace: fit.word for trace, fit in fit_family(labels, series).items()}
    assert words == {"a": "consistent", "b": "proven", "c": "consistent"}  # either way b holds 2


def test_a_dirty_trace_is_no_evidence_against_others() -> None:
    entries = [entry(shape(size), index([exact(1)], size)) for size in (1, 2, 4)]
    entries.append(entry(shape(8), index([exact(1)], 2), dirty=["the forward ran 2 times"]))
    found = supports(entries)
    assert found.pop("DecodeRunner__bs_8") == "unproven"
    assert set(found.values()) == {"proven"}


@pytest.mark.parametrize("swap", [False, True])
def test_a_run_of_sixty_sizes_and_many_variants_is_judged_within_seconds(swap: bool) -> None:
    products = [exact(factor, weight=f"{factor}x{number}") for factor in (1, 4) for number in range(20)]
    by_size = {size: index(products, size) for size in range(8, 8 * 61, 8)}
    parts = []
    for rank in range(2):
        entries = []
        for value in range(8):
            for size, content in by_size.items():
                really = {8: 480, 480: 8}.get(size, size) if swap and value == 3 else size
                entries.append(
                    entry(shape(size, stream=str(value)), content if really == size else by_size[really], rank)
                )
        parts.append(part(entries, rank))
    started = time.monotonic()
    verdicts = judge(parts)
    assert time.monotonic() - started < 60
    wrong = [item.trace.tag for item in verdicts.traces.values() if item.size == "contradicted"]
    assert len(wrong) == (4 if swap else 0)


def test_experts_whose_rows_equal_some_sizes_by_chance_prove_nothing() -> None:
    """All else is padded to eight rows; two of three sizes have nothing of the experts but the constant."""
    calls = {2: {"1": 2}, 1: {"1": 4}, 4: {"1": 4, "4": 1}}  # the labels 1 and 2 changed places
    entries = [
        entry(
            shape(size),
            {
                "v": 1,
                "error": None,
                "operators": {"aten::mm": 3},
                "gemms": {"aten::mm 64x192": {"8": 4}, "aten::mm 64x32": rows},
            },
        )
        for size, rows in calls.items()
    ]
    assert set(supports(entries).values()) == {"consistent"}
