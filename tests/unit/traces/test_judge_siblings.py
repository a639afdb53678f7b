"""Siblings: axes that a label leaves out, axes that go together, and launches where the operators are equal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import Verdicts, judge

SIZES = (1, 2, 4, 8)
GREEDY: list[dict[str, str]] = [{}, {"greedy": "greedy"}]
WHOLE = {"mode": "FULL", "uniformtokencount": "1", "maxquerylen": "1"}
PIECES = {"mode": "PIECEWISE"}


def entry(
    size: int,
    label: Mapping[str, str],
    sequence: str = "same",
    *,
    rank: int = 0,
    launches: int | None = None,
    windows: int = 1,
    state: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    tag = Shape(Runner("Runner"), "bs", size, label).tag
    index: dict[str, Any] = {"v": 1, "error": None, "operators": {"aten::mm": 4}, "sequenceSha256": sequence}
    index["gemmRows"] = {"aten::mm": {str(size): 4}}
    if launches is not None:
        index |= {"launches": launches, "launchesInWindows": launches, "nodesInWindows": launches, "gpuInWindows": 0}
        index |= {"windows": [{"launches": launches // windows}] * windows, "unpairedWindows": 0}
    key = f"traces/rank-{rank:05d}/{tag}.json.gz"
    return {"key": key, "tag": tag, "bytes": 1, "index": index, "witnesses": {"engine": state}}


def judged(entries: list[dict[str, Any]], engine: str = "") -> Verdicts:
    ranks: dict[int, list[dict[str, Any]]] = {}
    for item in entries:
        ranks.setdefault(int(item["key"].split("/")[1][5:]), []).append(item)
    parts = []
    for rank, items in ranks.items():
        plan = [{"runner": "Runner", "epoch": 1, "shapes": [item["tag"] for item in items], "notPlanned": []}]
        done = {"records": len(items), "ok": True, "captureBegin": {"untagged": []}}
        record = {"rank": rank, "hooks": {"it": "applied"}}
        parts.append({"v": 1, "rank": rank, "record": record, "plan": plan, "done": done, "traces": items, "lost": []})
    return judge(parts, engine=engine)


def words(found: Verdicts) -> dict[str, Mapping[str, str]]:
    return {item.trace.tag.removeprefix("Runner__bs_"): item.variants for item in found.traces.values()}


def wrong(found: Verdicts) -> dict[tuple[int, int], set[str]]:
    """Rank and size -> the axes that are contradicted there."""
    axes: dict[tuple[int, int], set[str]] = {}
    for item in found.traces.values():
        condemned = {axis for axis, word in item.variants.items() if word == "contradicted"}
        assert bool(condemned) == bool(item.holds)
        if condemned:
            axes.setdefault((item.trace.rank, item.trace.size), set()).update(condemned)
    return axes


# ---- axes that a label leaves out


def test_a_default_and_the_value_beside_it_are_told_apart() -> None:
    found = judged([entry(size, label, str(label)) for size in SIZES for label in GREEDY])
    assert found.verdict is Verdict.COMPLETE
    assert found.unproven == ()
    assert words(found)["1__greedy-greedy"] == {"greedy": "distinct"}
    assert words(found)["1"] == {}, "the label says nothing of the axis"


def test_a_default_that_changed_places_with_a_value_is_contradicted_and_says_what_it_holds() -> None:
    swap = {(4, 0): 1, (4, 1): 0}
    entries = [
        entry(size, label, str(GREEDY[swap.get((size, place), place)]))
        for size in SIZES
        for place, label in enumerate(GREEDY)
    ]
    found = judged(entries)
    assert found.verdict is Verdict.MISLABELLED
    assert found.reasons == (
        "rank 0: Runner__bs_4 holds greedy greedy (the operators of greedy greedy in 3 of 4 comparisons)",
        "rank 0: Runner__bs_4__greedy-greedy holds no greedy (the operators of no greedy in 3 of 4 comparisons)",
    )
    assert words(found)["4"] == words(found)["4__greedy-greedy"] == {"greedy": "contradicted"}


def test_an_engine_s_state_speaks_of_the_axes_that_a_label_leaves_out() -> None:
    states = {(4, 0): {"greedy": "greedy"}, (4, 1): {"greedy": ""}, (8, 0): {"greedy": "", "other": "is no axis"}}
    entries = [
        entry(size, label, state=states.get((size, place))) for size in SIZES for place, label in enumerate(GREEDY)
    ]
    found = judged(entries)
    assert found.reasons == (
        "rank 0: Runner__bs_4 holds greedy greedy (the engine's state at the capture)",
        "rank 0: Runner__bs_4__greedy-greedy holds no greedy (the engine's state at the capture)",
    )
    assert wrong(found) == {(0, 4): {"greedy"}}


def test_an_axis_of_another_runner_is_none_of_this_one() -> None:
    alone = entry(4, {}, state={"greedy": "greedy"})
    other = entry(4, GREEDY[1])
    other["tag"] = other["tag"].replace("Runner", "Draft")
    found = judged([alone, other])
    assert found.verdict is Verdict.COMPLETE
    assert all("contradicted" not in item.variants.values() for item in found.traces.values())


LABELS: list[dict[str, str]] = [{}, {"a": "x"}, {"b": "y"}, {"a": "x", "b": "y"}, {"b": "z"}]


@pytest.mark.parametrize("order", [order for order in itertools.permutations(range(5)) if order != tuple(range(5))])
def test_labels_of_one_size_in_any_other_order_are_contradicted(order: tuple[int, ...]) -> None:
    entries = [entry(size, label, str(label)) for size in (1, 2, 8) for label in LABELS]
    entries += [entry(4, LABELS[place], str(LABELS[held])) for place, held in enumerate(order)]
    found = judged(entries)
    for place, held in enumerate(order):
        label, really = LABELS[place], LABELS[held]
        (item,) = [
            each for each in found.traces.values() if each.trace.size == 4 and each.trace.shape.variants == label
        ]
        condemned = {axis for axis, word in item.variants.items() if word == "contradicted"}
        assert condemned == {axis for axis in "ab" if label.get(axis) != really.get(axis)}
    assert wrong(found).keys() == {(0, 4)}


@given(st.data())
def test_no_right_label_is_condemned_whatever_is_left_out_at_which_size(data: st.DataObject) -> None:
    """Each size captures some of the labels; at small sizes a value may be what the default is; ranks differ in how
    much they launch, sizes too, and one value launches more or less than the others from some size on."""
    limit, turn = data.draw(st.integers(0, 16)), data.draw(st.integers(0, 16))
    each = st.lists(st.sampled_from(LABELS), unique_by=str, min_size=1)
    captured = {size: data.draw(each) for size in data.draw(st.sets(st.integers(1, 16), min_size=1, max_size=6))}
    by_size = {size: data.draw(st.integers(100, 104)) for size in captured}
    by_rank = {rank: data.draw(st.integers(0, 3)) for rank in range(data.draw(st.integers(1, 3)))}
    before, after = data.draw(st.integers(-2, 2)), data.draw(st.integers(-2, 2))
    operators = data.draw(st.sets(st.sampled_from(["a", "b"])))
    entries = []
    for rank, size in itertools.product(by_rank, captured):
        for label in captured[size]:
            really = {axis: value for axis, value in label.items() if size > limit or axis == "b"}
            launches = by_size[size] + by_rank[rank] + ((before if size < turn else after) if "a" in really else 0)
            shown = str({axis: value for axis, value in really.items() if axis in operators})
            entries.append(entry(size, label, shown, rank=rank, launches=launches))
    assert wrong(judged(entries)) == {}


# ---- axes that go together


def test_axes_that_go_together_are_told_by_the_nearest_labels() -> None:
    entries = [entry(size, label, str(label["mode"])) for size in SIZES for label in (WHOLE, PIECES)]
    found = judged(entries)
    assert found.unproven == ()
    assert words(found)["4__mode-PIECEWISE"] == {"mode": "distinct"}
    swapped = judged([*entries[:4], entry(4, WHOLE, "PIECEWISE"), entry(4, PIECES, "FULL"), *entries[6:]])
    assert wrong(swapped) == {(0, 4): {"mode", "uniformtokencount", "maxquerylen"}}
    assert any("holds no maxquerylen" in reason for reason in swapped.reasons)


def test_labels_that_differ_in_another_axis_too_are_no_siblings_where_there_are_nearer_ones() -> None:
    """Streams are equal by nature; that a trace of the other stream and another mode differs proves no stream."""
    labels = [{"mode": mode, "stream": stream} for mode in ("a", "b") for stream in "01"]
    found = judged([entry(size, label, label["mode"]) for size in SIZES for label in labels])
    assert {tuple(item.variants.items()) for item in found.traces.values()} == {
        (("mode", "distinct"), ("stream", "unproven"))
    }


def test_labels_that_changed_places_in_two_axes_are_found_beside_an_axis_that_nothing_tells_apart() -> None:
    labels = [
        {"attention": one, "lora": other, "stream": stream}
        for one, other, stream in itertools.product(("dense", "sparse"), ("lora", "nolora"), "01")
    ]
    held = {(4, 0): 6, (4, 6): 0}
    entries = [
        entry(size, label, str(list(labels[held.get((size, place), place)].values())[:2]))
        for size in SIZES
        for place, label in enumerate(labels)
    ]
    assert wrong(judged(entries)) == {(0, 4): {"attention", "lora"}}
    right = [entry(size, label, str(list(label.values())[:2])) for size in SIZES for label in labels]
    assert judged(right).verdict is Verdict.COMPLETE


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_swap_is_not_proven_where_one_of_both_traces_has_operators_that_nothing_else_has(ranks: int) -> None:
    entries = [
        entry(size, label, "first" if (size, place) == (8, 1) else str(GREEDY[1] if size == 8 else label), rank=rank)
        for rank in range(ranks)
        for size in SIZES
        for place, label in enumerate(GREEDY)
    ]
    found = judged(entries)
    assert found.verdict is Verdict.COMPLETE
    assert {found.traces[key].trace.tag for key in found.unproven} == {"Runner__bs_8__greedy-greedy"}


def test_operators_that_another_value_has_at_other_sizes_prove_where_they_are_so_at_several() -> None:
    """Kernels that are chosen by size."""
    sequences = {1: "ab", 2: "ab", 4: "ab", 8: "bc", 16: "bc"}
    entries = [entry(size, label, sequences[size][place]) for size in sequences for place, label in enumerate(GREEDY)]
    assert judged(entries).unproven == ()


# ---- launches where the operators are equal


def lora(launches: Mapping[int, tuple[int, int]], rank: int = 0) -> list[dict[str, Any]]:
    """Size -> launches with and without adapters, whose kernels are no operators."""
    return [
        entry(size, {"lora": value}, rank=rank, launches=count)
        for size, counts in launches.items()
        for value, count in zip(("lora", "nolora"), counts, strict=True)
    ]


def support(found: Verdicts) -> set[str]:
    return {word for item in found.traces.values() for word in item.variants.values()}


def test_launches_tell_variants_apart_whose_kernels_are_no_operators() -> None:
    found = judged(lora({1: (700, 544), 2: (700, 544), 4: (732, 576), 8: (700, 544)}))
    assert found.unproven == ()
    assert {text for item in found.traces.values() for text in item.evidence if "lora" in text} == {
        "lora: launches differ from lora lora",
        "lora: launches differ from lora nolora",
    }


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_swap_that_only_launches_show_is_found(ranks: int) -> None:
    entries = []
    for rank in range(ranks):
        more = 10 * rank  # a stage of the pipeline with another number of layers
        entries += lora({size: (700 + more + size, 544 + more + size) for size in (1, 2, 8, 16)}, rank)
        entries += lora({4: (544 + more, 700 + more) if rank == 0 else (700 + more, 544 + more)}, rank)
    found = judged(entries)
    assert wrong(found) == {(0, 4): {"lora"}}
    assert any("bs_4__lora-lora holds lora nolora (the launches of lora nolora in" in text for text in found.reasons)


def test_labels_that_changed_places_in_an_axis_of_operators_and_one_of_launches_are_found() -> None:
    labels = [{"attention": one, "lora": other} for one in ("dense", "sparse") for other in ("lora", "nolora")]

    def made(size: int, label: Mapping[str, str], really: Mapping[str, str]) -> dict[str, Any]:
        return entry(size, label, really["attention"], launches=700 if really["lora"] == "lora" else 544)

    entries = [made(size, label, label) for size in (1, 2, 8) for label in labels]
    entries += [made(4, label, held) for label, held in zip(labels, reversed(labels), strict=True)]
    assert wrong(judged(entries)) == {(0, 4): {"attention", "lora"}}


@pytest.mark.parametrize(
    "launches",
    [
        pytest.param({1: (544, 544), 2: (544, 544), 4: (544, 544), 8: (545, 544)}, id="the first capture sets up"),
        pytest.param({1: (545, 544), 2: (544, 545), 4: (545, 544), 8: (544, 545)}, id="either way"),
        pytest.param({1: (545, 544), 2: (545, 544), 4: (544, 545)}, id="two against one"),
        pytest.param({1: (545, 544), 2: (545, 544), 4: (545, 544), 8: (544, 545)}, id="from some size on"),
        pytest.param({1: (545, 544), 2: (545, 544), 4: (544, 552), 8: (545, 544)}, id="by another number"),
        pytest.param({1: (545, 544), 2: (544, 544), 4: (545, 544), 8: (545, 544)}, id="equal once"),
        pytest.param({1: (545, 544), 2: (545, 544)}, id="two sizes"),
    ],
)
def test_launches_that_may_differ_by_chance_prove_and_condemn_nothing(launches: dict[int, tuple[int, int]]) -> None:
    found = judged(lora(launches))
    assert support(found) == {"unproven"}
    assert found.verdict is Verdict.COMPLETE


def test_launches_that_vary_by_size_and_rank_change_nothing_where_operators_tell() -> None:
    entries = []
    for rank, size in itertools.product(range(2), SIZES):
        for place, label in enumerate(GREEDY):
            held = GREEDY[1 - place] if (rank, size) == (1, 4) else label
            entries.append(entry(size, label, str(held), rank=rank, launches=500 + (7 * size + 3 * rank + place) % 5))
    assert wrong(judged(entries)) == {(1, 4): {"greedy"}}


@pytest.mark.parametrize(("is_swapped", "count"), [(False, 0), (True, 2)])
def test_operators_of_a_first_capture_hide_no_swap_that_launches_show(is_swapped: bool, count: int) -> None:
    entries = lora(dict.fromkeys(SIZES, (700, 544)))
    first = lora({16: (545, 700) if is_swapped else (700, 545)})
    first[not is_swapped]["index"]["sequenceSha256"] = "sets something up"
    found = judged(entries + first)
    assert found.unproven == tuple(sorted(item["key"] for item in first))[:count]
    assert found.verdict is Verdict.COMPLETE, "operators that nothing else has may be anything"


def test_operators_that_first_captures_of_either_value_have_condemn_nobody() -> None:
    entries = lora(dict.fromkeys(SIZES, (700, 544)))
    for place in (1, 3, 4):
        entries[place]["index"]["sequenceSha256"] = "sets something up"
    found = judged(entries + lora(dict.fromkeys((16, 24, 32), (700, 544))))
    assert found.verdict is Verdict.COMPLETE
    assert found.unproven == ()


@pytest.mark.parametrize("epochs", [1, 2])
def test_launches_of_a_first_capture_condemn_nobody_whatever_other_variants_have(epochs: int) -> None:
    """It launches two more, and the other value one more."""
    entries = []
    for epoch, size, attention in itertools.product(range(1, epochs + 1), SIZES, ("dense", "sparse")):
        is_first = (epoch, size, attention) == (1, 8, "dense")
        for value, count in (("lora", 545), ("nolora", 546 if is_first else 544)):
            label = {"attention": attention, "lora": value}
            item = entry(size, label, attention, launches=count)
            item["tag"] = Shape.from_tag(item["tag"]).with_epoch(epoch).tag
            entries.append({**item, "key": f"traces/rank-00000/{item['tag']}.json.gz"})
    assert judged(entries).verdict is Verdict.COMPLETE


def test_launches_show_a_rank_all_of_whose_labels_changed_places_and_a_variant_s() -> None:
    entries = [item for rank in range(8) for item in lora(dict.fromkeys(SIZES, (700, 544)), rank)]
    entries += lora(dict.fromkeys(SIZES, (544, 700)), 8)
    assert wrong(judged(entries)) == {(8, size): {"lora"} for size in SIZES}
    entries = []
    for size, step in itertools.product(SIZES, "12345"):
        for value, is_more in (("lora", step != "3"), ("nolora", step == "3")):
            entries.append(entry(size, {"step": step, "lora": value}, step, launches=700 if is_more else 544))
    assert wrong(judged(entries)) == {(0, size): {"lora"} for size in SIZES}


def test_launches_that_are_not_known_are_no_difference() -> None:
    entries = lora(dict.fromkeys(SIZES, (700, 544)))
    entries[0]["index"]["launchesInWindows"] = None
    assert support(judged(entries)) == {"unproven"}


# ---- stream captures


def vllm(size: int, label: Mapping[str, str], windows: int) -> dict[str, Any]:
    return entry(size, label, launches=320, windows=windows)


def test_the_number_of_stream_captures_proves_vllm_s_modes() -> None:
    """Also where a size has one mode only, and the operators are the same."""
    entries = [vllm(size, {"mode": "PIECEWISE"}, 33) for size in SIZES]
    found = judged(entries + [vllm(size, {"mode": "FULL"}, 1) for size in (1, 2)], "vllm")
    assert found.unproven == ()
    assert support(found) == {"proven"}
    assert {text for item in found.traces.values() for text in item.evidence if "mode" in text} == {
        "mode: 33 stream captures",
        "mode: 1 stream capture",
    }


def test_a_whole_graph_that_has_several_stream_captures_is_in_pieces() -> None:
    found = judged([vllm(4, {"mode": "FULL"}, 33), vllm(4, {"mode": "PIECEWISE"}, 1)], "vllm")
    assert words(found)["4__mode-FULL"] == {"mode": "contradicted"}
    assert words(found)["4__mode-PIECEWISE"] == {"mode": "unproven"}, "one piece may be all there is"


def test_one_stream_capture_proves_no_whole_graph_where_pieces_have_one_too() -> None:
    entries = [vllm(size, {"mode": mode}, 1) for size in SIZES for mode in ("FULL", "PIECEWISE")]
    assert support(judged(entries, "vllm")) == {"unproven"}


@pytest.mark.parametrize("change", [{"unpairedWindows": 1}, {"windows": [], "launchesInWindows": None}])
def test_stream_captures_that_are_not_known_prove_nothing(change: dict[str, Any]) -> None:
    item = vllm(4, {"mode": "FULL"}, 1)
    item["index"] |= change
    assert support(judged([item], "vllm")) == {"unproven"}


def test_stream_captures_beyond_those_that_are_listed_count() -> None:
    item = vllm(4, {"mode": "PIECEWISE"}, 1)
    item["index"]["leftOut"] = {"windows": 16}
    assert support(judged([item], "vllm")) == {"proven"}


def test_more_labels_than_can_be_compared_are_unproven_and_those_of_a_large_run_are_not_too_many() -> None:
    def own_axes(count: int) -> list[dict[str, Any]]:
        return [entry(4, {f"axis{number}": "on"}, f"operators {number}") for number in range(count)]

    assert support(judged(own_axes(40))) == {"distinct"}
    found = judged(own_axes(250))
    assert support(found) == {"unproven"}
    assert all("too many labels" in item.evidence[-1] for item in found.traces.values())
