"""Plans of ranks that should be equal: a difference is Partial and named, and right runs are never condemned by it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import judge

SIZES = (1, 2, 4, 8)
DECODE, DRAFT = Runner("DecodeRunner"), Runner("DraftRunner")


def tags(sizes: Sequence[int] = SIZES, runner: Runner = DECODE, epoch: int = 1) -> list[str]:
    return [Shape(runner, "bs", size).with_epoch(epoch).tag for size in sizes]


def rank_part(rank: int, plan: Sequence[str], *, pp: Any = 0, **more: Any) -> dict[str, Any]:
    """A rank that delivered all of ``plan``; ``more`` replaces fields."""
    by_runner: dict[tuple[str, int], list[str]] = {}
    for tag in plan:
        shape = Shape.from_tag(tag)
        by_runner.setdefault((str(shape.runner), shape.epoch), []).append(tag)
    whole = {
        "rank": rank,
        "record": {"rank": rank, "pp": pp, "hooks": {"a": "applied"}, "asked": True},
        "plan": [{"runner": runner, "epoch": epoch, "shapes": shapes} for (runner, epoch), shapes in by_runner.items()],
        "done": {"records": len(plan), "ok": True, "reason": "Done", "eager": None},
        "traces": [
            {"key": f"{rank}/{tag}", "tag": tag, "bytes": 1, "index": {"error": None, "operators": {"aten::add": 1}}}
            for tag in plan
        ],
    }
    return {**whole, **more}


def eager_part(rank: int, *, pp: Any = 0) -> dict[str, Any]:
    return rank_part(rank, [], pp=pp, done={"records": 0, "ok": True, "eager": "--disable-cuda-graph"})


def test_a_rank_that_plans_fewer_shapes_than_its_peers_is_partial_and_named() -> None:
    found = judge([rank_part(0, tags()), rank_part(1, tags([8]))])
    assert found.verdict is Verdict.PARTIAL
    assert [item.verdict for item in found.ranks] == [Verdict.COMPLETE, Verdict.PARTIAL]
    assert found.reasons == (
        "rank 1: did not plan DecodeRunner__bs_1, DecodeRunner__bs_2, DecodeRunner__bs_4, which rank 0 did",
    )


def test_where_each_has_what_the_other_lacks_both_are_partial() -> None:
    found = judge([rank_part(0, tags([2, 8])), rank_part(1, tags([4, 8]))])
    assert found.reasons == (
        "rank 0: did not plan DecodeRunner__bs_4, which rank 1 did",
        "rank 1: did not plan DecodeRunner__bs_2, which rank 0 did",
    )


@pytest.mark.parametrize("pp", [None, 0, 3, "?", True])
def test_it_is_found_in_any_stage_and_where_the_stage_is_not_known(pp: Any) -> None:
    found = judge([rank_part(0, tags(), pp=pp), rank_part(1, tags([8]), pp=pp)])
    assert [item.verdict for item in found.ranks] == [Verdict.COMPLETE, Verdict.PARTIAL]


def test_a_shape_of_another_epoch_is_another_shape() -> None:
    found = judge([rank_part(0, tags([8]) + tags([8], epoch=2)), rank_part(1, tags([8]))])
    assert found.reasons == (f"rank 1: did not plan {tags([8], epoch=2)[0]}, which rank 0 did",)


def test_an_eager_rank_beside_one_with_graphs_is_partial_and_named() -> None:
    found = judge([rank_part(0, tags()), eager_part(1)])
    assert found.verdict is Verdict.PARTIAL
    assert found.ranks[1].verdict is Verdict.PARTIAL
    assert "rank 1: planned no graph, though rank 0 planned 4" in found.reasons
    assert "rank 1: no graphs: --disable-cuda-graph" in found.reasons, "and its own words are told"


def test_a_wrong_label_goes_before_and_the_difference_is_told_all_the_same() -> None:
    wrong = rank_part(1, tags([8]))
    wrong["traces"][0]["index"]["metadata"] = {"tag": tags([4])[0]}
    found = judge([rank_part(0, tags()), wrong])
    assert found.ranks[1].verdict is Verdict.MISLABELLED
    assert any("which rank 0 did" in reason for reason in found.reasons)


def test_the_text_is_bounded() -> None:
    many = tags(range(1, 41), Runner("R" * 60))
    found = judge([*(rank_part(rank, many) for rank in range(30)), rank_part(30, many[:1]), eager_part(31)])
    lines = [reason for reason in found.reasons if reason.startswith(("rank 30: did", "rank 31: planned"))]
    assert len(lines) == 2
    assert lines[0].endswith(" and 36 more, which ranks 0, 1, 2 and 27 more did")
    assert lines[1].endswith("though ranks 0, 1, 2 and 28 more planned 40")
    assert max(map(len, lines)) < 400


def test_of_ranks_that_are_no_peers_nothing_is_said() -> None:
    idle = rank_part(3, tags([8]))
    idle["record"]["asked"] = False
    died = rank_part(2, tags([8]), done=None)
    unread = rank_part(4, tags([8]))
    unread["plan"].append(1)
    recovered = {"rank": 5, "recovered": True, "traces": rank_part(5, tags([8]))["traces"]}
    silent = rank_part(6, [])
    for other in (idle, died, unread, recovered, silent):
        found = judge([rank_part(0, tags()), other, rank_part(1, tags())])
        assert not any("did not plan" in reason or "planned no graph" in reason for reason in found.reasons), other
        assert [item.verdict for item in found.ranks][:2] == [Verdict.COMPLETE, Verdict.COMPLETE]
    assert judge([rank_part(0, tags()), rank_part(3, tags([8]))], ranks=[0]).ranks[0].reasons == []


@st.composite
def right_runs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Mapping[int, int]]:
    """Parts of a run whose ranks plan alike within a stage, and rank -> its stage."""
    tensor, pipeline, replicas = (draw(st.integers(1, 3)) for _ in range(3))
    known = draw(st.booleans())
    sizes = st.lists(st.sampled_from((1, 2, 4, 8, 16)), min_size=1, unique=True)
    decode = draw(sizes)
    # stages may differ where it is known which is which
    of_stage = [tags(draw(sizes) if known else decode) for _ in range(pipeline)]
    if known and pipeline > 1 and draw(st.booleans()):
        of_stage[0] = []  # the first stage has no graphs by choice
    if draw(st.booleans()) and of_stage[-1]:
        of_stage[-1] = of_stage[-1] + tags(draw(sizes), DRAFT)  # a draft model lives on the last stage
    order = random.Random(draw(st.integers(0, 99)))
    parts, stages = [], {}
    for rank in range(tensor * pipeline * replicas):
        stage = rank // tensor % pipeline
        plan = of_stage[stage]
        if plan:
            found = rank_part(rank, order.sample(plan, len(plan)), pp=stage if known else None)
            if draw(st.integers(0, 5)) == 0:  # it died, or nobody asked for it: it may have planned less
                found = rank_part(rank, plan[: len(plan) // 2], pp=stage, done=None)
            elif draw(st.integers(0, 5)) == 0:
                found = rank_part(rank, plan[: len(plan) // 2], pp=stage)
                found["record"]["asked"] = False
        else:
            found = eager_part(rank, pp=stage)
        parts.append(found)
        stages[rank] = stage
    order.shuffle(parts)
    return parts, stages


@given(right_runs())
def test_a_right_run_is_never_condemned(run: tuple[list[dict[str, Any]], Mapping[int, int]]) -> None:
    parts, _ = run
    died = {part["rank"] for part in parts if part["done"] is None}
    idle = {part["rank"] for part in parts if not part["record"]["asked"]}
    found = judge(parts)
    assert not any("did not plan" in reason or "planned no graph" in reason for reason in found.reasons)
    assert {item.rank for item in found.ranks if item.verdict is Verdict.PARTIAL} <= died | idle


@given(right_runs(), st.data())
def test_a_shape_that_one_rank_did_not_plan_is_always_found(
    run: tuple[list[dict[str, Any]], Mapping[int, int]], data: st.DataObject
) -> None:
    parts, stages = run
    whole = [part for part in parts if part["done"] and part["record"]["asked"] and part["traces"]]
    candidates = [
        part
        for part in whole
        if len({tag for line in part["plan"] for tag in line["shapes"] if line["runner"] == str(DECODE)}) > 1
        and sum(stages[other["rank"]] == stages[part["rank"]] for other in whole) > 1
    ]
    if not candidates:
        return
    chosen = data.draw(st.sampled_from(candidates))
    line = next(line for line in chosen["plan"] if line["runner"] == str(DECODE))
    lost = line["shapes"].pop()
    chosen["traces"] = [entry for entry in chosen["traces"] if entry["tag"] != lost]
    chosen["done"]["records"] -= 1
    found = judge(parts)
    assert found.verdict is Verdict.PARTIAL
    assert any(text.startswith(f"rank {chosen['rank']}: did not plan {lost}, which rank") for text in found.reasons)
