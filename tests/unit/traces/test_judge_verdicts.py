"""Verdicts of ranks and of the run: in which order they are decided, and what they say to a person."""

from __future__ import annotations

import random
from typing import Any

import pytest
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.judge import RankVerdict, Verdicts, judge

SIZES = (1, 2, 4, 8)


def shape(size: int) -> Shape:
    return Shape(Runner("DecodeRunner"), "bs", size)


def entry(size: int, rank: int = 0, rows: int | None = None, **more: Any) -> dict[str, Any]:
    tag = shape(size).tag
    index = {"v": 1, "error": None, "operators": {"aten::mm": 4}, "gemmRows": {"aten::mm": {str(rows or size): 4}}}
    index |= {"metadata": {"v": 1, "tag": tag, "rank": rank, "stage": "capture"}, "spans": [tag]}
    key = f"traces/rank-{rank:05d}/{tag}.json.gz"
    return {
        "key": key,
        "tag": tag,
        "stage": "capture",
        "bytes": 100,
        "index": {**index, **more.pop("index", {})},
        **more,
    }


def part(rank: int = 0, **more: Any) -> dict[str, Any]:
    """A rank that did all it planned; ``more`` replaces fields."""
    whole = {
        "v": 1,
        "rank": rank,
        "record": {"rank": rank, "hooks": {"the engine": "applied", "an older target": "missing"}, "asked": True},
        "processes": [],
        "plan": [
            {"runner": "DecodeRunner", "epoch": 1, "shapes": [shape(size).tag for size in SIZES], "notPlanned": []}
        ],
        "done": {"records": 4, "ok": True, "reason": "Done", "eager": None, "captureBegin": {"untagged": []}},
        "stopped": {"reason": "Done"},
        "traces": [entry(size, rank) for size in SIZES],
        "lost": [],
        "orphans": [],
        "missing": 0,
    }
    return {**whole, **more}


def one(found: Verdicts) -> RankVerdict:
    assert len(found.ranks) == 1
    assert found.verdict is found.ranks[0].verdict
    return found.ranks[0]


def test_every_planned_shape_delivered_is_complete() -> None:
    found = judge([part(0), part(1)], ranks=[0, 1])
    assert found.verdict is Verdict.COMPLETE
    assert found.reasons == ()
    assert [(item.expected, item.captured, item.uploaded, item.failed, item.bytes) for item in found.ranks] == [
        (4, 4, 4, 0, 400),
        (4, 4, 4, 0, 400),
    ]
    assert found.unproven == ()


def test_the_order_of_parts_and_traces_changes_nothing() -> None:
    parts = [part(rank) for rank in range(4)]
    parts[2]["traces"][1] = entry(2, 2, rows=8)
    parts[2]["traces"][3] = entry(8, 2, rows=2)
    first = judge(parts)
    for seed in range(5):
        order = random.Random(seed)
        for item in parts:
            order.shuffle(item["traces"])
        order.shuffle(parts)
        assert judge(parts) == first


def test_a_contradicted_label_is_mislabelled_and_named() -> None:
    swapped = [entry(1, 1), entry(2, 1), entry(4, 1, rows=8), entry(8, 1, rows=4)]
    found = judge([part(0), part(1, traces=swapped)])
    assert found.verdict is Verdict.MISLABELLED
    assert [item.verdict for item in found.ranks] == [Verdict.COMPLETE, Verdict.MISLABELLED]
    assert "rank 1: DecodeRunner__bs_4 holds size 8 (aten::mm rows 8)" in found.reasons
    assert "rank 1: DecodeRunner__bs_8 holds size 4 (aten::mm rows 4)" in found.reasons


def test_mislabelled_goes_before_partial() -> None:
    traces = [entry(1), entry(2, rows=4), entry(4, rows=2)]
    assert one(judge([part(traces=traces)])).verdict is Verdict.MISLABELLED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"traces": [entry(1), entry(2), entry(4)]}, "rank 0: 1 of 4 planned shapes are missing: DecodeRunner__bs_8"),
        ({"plan": []}, "rank 0: no plan: the engine announced no shape"),
        ({"record": None}, "rank 0: no record that its hooks applied"),
        ({"record": {"hooks": {"x": "missing"}}}, "rank 0: no record that its hooks applied"),
        ({"record": {"hooks": {"x": "applied", "y": "error: no"}}}, "rank 0: the hook of y failed: error: no"),
        (
            {"record": {"hooks": {"x": "applied", "y": "missing"}, "required": ["x", "y"]}},
            "rank 0: the hook of y is required, and the engine has no such method",
        ),
        (
            {"record": {"hooks": {"x": "applied"}, "required": ["y"]}},
            "rank 0: the hook of y is required, and nothing says that it was applied",
        ),
        ({"done": None, "stopped": None}, "rank 0: ended before its capture was done"),
        (
            {"done": None, "stopped": {"reason": "EngineFailed", "rank": 1, "message": "killed by signal 9"}},
            "rank 0: ended before its capture was done (EngineFailed of rank 1: killed by signal 9)",
        ),
        ({"done": {"records": 4, "ok": False, "reason": "a fault"}}, "rank 0: its capture went wrong: a fault"),
        ({"done": {"records": 6, "ok": True}}, "rank 0: it recorded 6 captures, 4 reached the collector"),
        ({"missing": 2}, "rank 0: 2 captured traces were not stored in time"),
        (
            {
                "traces": [entry(size) for size in (1, 2, 4)],
                "lost": [{"tag": shape(8).tag, "error": "captured, but not stored before the time was over"}],
                "missing": 1,
            },
            "rank 0: DecodeRunner__bs_8 was lost: captured, but not stored before the time was over",
        ),
        (
            {"traces": [*(entry(size) for size in (1, 2, 4)), entry(8, error="tag and shape disagree")]},
            "rank 0: DecodeRunner__bs_8 is dirty: tag and shape disagree",
        ),
        ({"orphans": ["000004.json"]}, "rank 0: 1 trace files without a record: 000004.json"),
        (
            {"traces": [*(entry(size) for size in (1, 2, 4)), entry(8, dirty=["no graph capture began"])]},
            "rank 0: DecodeRunner__bs_8 is dirty: no graph capture began",
        ),
        (
            {"traces": [*(entry(size) for size in (1, 2, 4)), entry(8, witnesses={"forwards": 2})]},
            "rank 0: DecodeRunner__bs_8 is dirty: the forward ran 2 times",
        ),
        (
            {"traces": [*(entry(size) for size in (1, 2, 4)), entry(8, index={"error": "not JSON"})]},
            "rank 0: DecodeRunner__bs_8 cannot be read: not JSON",
        ),
        (
            {"traces": [*(entry(size) for size in SIZES), {"key": "traces/x", "tag": "?"}]},
            "rank 0: 1 entries of its part name no trace: key or tag cannot be read",
        ),
        (
            {"traces": [entry(1), entry(2), entry(4)], "lost": [{"tag": shape(8).tag, "error": "the spool is full"}]},
            "rank 0: DecodeRunner__bs_8 was lost: the spool is full",
        ),
    ],
)
def test_what_is_missing_makes_a_rank_partial_and_is_said(change: dict[str, Any], reason: str) -> None:
    found = one(judge([part(**change)]))
    assert found.verdict is Verdict.PARTIAL
    assert reason in found.reasons


def test_counters_tell_captured_from_stored_and_lost() -> None:
    lost = [{"tag": shape(4).tag, "error": "not stored"}, {"tag": shape(8).tag, "error": "no room in the spool"}]
    done = {"records": 5, "ok": True}  # one more than anybody saw
    found = one(judge([part(traces=[entry(1), entry(2)], lost=lost, missing=2, done=done)]))
    assert (found.expected, found.captured, found.uploaded, found.failed) == (4, 3, 2, 1)


def test_a_trace_too_long_to_be_indexed_is_delivered_and_not_proven() -> None:
    traces = [
        *(entry(size) for size in (1, 2, 4)),
        entry(8, index={"error": "too long", "unread": True, "metadata": None}),
    ]
    found = judge([part(traces=traces)])
    assert one(found).verdict is Verdict.COMPLETE
    assert found.unproven == ("traces/rank-00000/DecodeRunner__bs_8.json.gz",)
    assert "too long to be indexed: DecodeRunner__bs_8" in found.reasons[0]


def test_an_expected_rank_without_part_is_partial_and_named() -> None:
    found = judge([part(0)], ranks=range(2))
    assert found.verdict is Verdict.PARTIAL
    assert found.reasons == ("rank 1 left no part and no trace",)
    assert found.ranks[1].expected is None


def test_a_recovered_rank_is_partial_and_its_traces_are_judged() -> None:
    bare = {"v": 1, "rank": 3, "recovered": True, "traces": [entry(size, 3) for size in SIZES]}
    found = judge([bare], ranks=[3])
    assert one(found).reasons == ["rank 3: left no part; 4 of its traces were found in the store"]
    assert {item.size for item in found.traces.values()} == {"proven"}


def test_no_part_at_all_is_partial_never_complete() -> None:
    assert judge([]).verdict is Verdict.PARTIAL
    assert judge([], ranks=[]).verdict is Verdict.PARTIAL


def test_graphs_off_by_choice_is_eager_only_if_said_by_a_hooked_rank() -> None:
    done = {"records": 0, "ok": True, "eager": "--disable-cuda-graph"}
    found = one(judge([part(plan=[], traces=[], done=done)]))
    assert found.verdict is Verdict.EAGER
    assert found.expected == 0, "it is known that there is nothing to wait for"
    assert found.notes == ["rank 0: no graphs: --disable-cuda-graph"]
    unhooked = one(judge([part(plan=[], traces=[], done=done, record=None)]))
    assert unhooked.verdict is Verdict.PARTIAL
    silent = one(judge([part(plan=[], traces=[], done={**done, "eager": None})]))
    assert silent.verdict is Verdict.PARTIAL


def test_an_eager_rank_with_a_plan_that_it_did_not_keep_is_partial() -> None:
    done = {"records": 0, "ok": True, "eager": "chosen"}
    assert one(judge([part(traces=[], done=done)])).verdict is Verdict.PARTIAL


def test_ranks_that_are_not_asked_for_are_not_expected() -> None:
    idle = part(1, plan=[], traces=[], done={"records": 0, "ok": True}, record={"hooks": {}, "asked": False})
    for found in (judge([part(0), idle], ranks=[0]), judge([part(0), idle])):
        assert found.verdict is Verdict.COMPLETE
        assert [item.rank for item in found.ranks] == [0]


def test_captures_beyond_the_plan_are_additional_never_lost() -> None:
    found = one(judge([part(traces=[entry(size) for size in (*SIZES, 16)], done={"records": 5, "ok": True})]))
    assert found.verdict is Verdict.COMPLETE
    assert found.notes == ["rank 0: 1 captures beyond the plan: DecodeRunner__bs_16"]


def test_a_later_epoch_is_planned_under_its_own_tags() -> None:
    again = [{"epoch": epoch, "shapes": [shape(size).tag for size in (1, 2)]} for epoch in (1, 2)]
    traces = []
    for epoch in (1, 2):
        for size in (1, 2):
            item = entry(size, index={"metadata": None, "spans": []})
            tag = shape(size).with_epoch(epoch).tag
            traces.append({**item, "tag": tag, "key": f"traces/rank-00000/{tag}.json.gz"})
    assert one(judge([part(plan=again, traces=traces)])).verdict is Verdict.COMPLETE


def test_sites_that_no_hook_covers_are_listed_and_complete_says_of_what() -> None:
    done = {"records": 4, "ok": True, "captureBegin": {"untagged": ["engine/lazy.py:300 capture"]}}
    found = judge([part(rank, done=done) for rank in (0, 1)])
    assert found.verdict is Verdict.COMPLETE
    assert found.untagged == ({"caller": "engine/lazy.py:300 capture", "ranks": [0, 1]},)
    assert "no hook covers, first engine/lazy.py:300" in found.reasons[0]


def test_graphs_whose_caller_nobody_noted_are_not_passed_over() -> None:
    done = {"records": 4, "ok": True, "captureBegin": {"all": 7, "tagged": 4, "untagged": []}}
    found = judge([part(done=done)])
    assert found.verdict is Verdict.COMPLETE
    assert found.reasons == ("1 place captured graphs that no hook covers, first a caller that was not noted",)
    covered = {"records": 4, "ok": True, "captureBegin": {"all": 4, "tagged": 4, "untagged": []}}
    assert judge([part(done=covered)]).reasons == ()


def test_what_was_declared_and_not_planned_is_told_with_the_engine_s_reason() -> None:
    plan = part()["plan"]
    plan[0]["notPlanned"] = [{"shape": shape(512).to_json(), "reason": "above max_num_seqs"}]
    found = judge([part(rank, plan=plan) for rank in (0, 1)])
    assert found.not_planned == ({"shape": shape(512).to_json(), "reason": "above max_num_seqs", "ranks": [0, 1]},)


@pytest.mark.parametrize(
    ("index", "holds"),
    [
        ({"metadata": {"tag": shape(4).tag}}, "DecodeRunner__bs_4 (its metadata)"),
        ({"metadata": {"tag": shape(8).tag, "rank": 5}}, "rank 5 (its metadata)"),
        ({"metadata": {"tag": shape(8).tag, "stage": "replay"}}, "stage replay (its metadata)"),
        ({"metadata": {"v": 1}}, "no tag that can be read (metadata)"),
        ({"spans": [shape(4).tag]}, "DecodeRunner__bs_4 (its span)"),
    ],
)
def test_a_trace_whose_own_words_disagree_with_its_record_is_mislabelled(index: dict[str, Any], holds: str) -> None:
    traces = [*(entry(size) for size in (1, 2, 4)), entry(8, index=index)]
    found = judge([part(traces=traces)])
    assert found.verdict is Verdict.MISLABELLED
    assert f"rank 0: DecodeRunner__bs_8 holds {holds}" in found.reasons
    wrong = [item for item in found.traces.values() if item.size == "contradicted"]
    assert [item.trace.tag for item in wrong] == ["DecodeRunner__bs_8"]


def test_foreign_spans_say_nothing() -> None:
    spans = ["ProfilerStep#134", "capture_8_FULL", "a__b", shape(8).tag]
    traces = [*(entry(size) for size in (1, 2, 4)), entry(8, index={"spans": spans})]
    assert one(judge([part(traces=traces)])).verdict is Verdict.COMPLETE


def test_the_engine_s_own_state_is_a_witness() -> None:
    tag = Shape(Runner("DecodeRunner"), "bs", 8, {"lora": "lora"}).tag
    trace = {"key": "k", "tag": tag, "bytes": 1, "index": {"error": None}, "witnesses": {"engine": {"lora": "nolora"}}}
    found = judge([part(traces=[trace])])
    assert found.verdict is Verdict.MISLABELLED
    assert found.traces["k"].variants == {"lora": "contradicted"}


@pytest.mark.parametrize(
    ("witnesses", "said"),
    [
        ({"keyKnown": False}, "is dirty: the engine does not know the shape afterwards"),
        ({"forwards": 2}, "is dirty: the forward ran 2 times"),
    ],
)
def test_a_record_that_speaks_against_its_trace_makes_it_dirty_and_proves_nothing(
    witnesses: dict[str, Any], said: str
) -> None:
    traces = [*(entry(size) for size in (1, 2, 4)), entry(8, witnesses=witnesses)]
    found = judge([part(traces=traces)])
    assert one(found).verdict is Verdict.PARTIAL
    assert f"rank 0: DecodeRunner__bs_8 {said}" in found.reasons
    assert {item.trace.size: item.size for item in found.traces.values()} == {
        1: "proven", 2: "proven", 4: "proven", 8: "unproven",
    }  # fmt: skip


@pytest.mark.parametrize("engine", [None, {"name": "sglang", "version": "0.5"}])
def test_a_shape_that_a_program_captured_twice_is_told(engine: dict[str, str] | None) -> None:
    again = {**entry(8), "key": "traces/again", "tag": shape(8).with_epoch(2).tag}
    again["index"] = {**again["index"], "metadata": None, "spans": []}
    record = {"rank": 0, "hooks": {"x": "applied"}, "engine": engine}
    epochs = [{"runner": "DecodeRunner", "epoch": 2, "shapes": [again["tag"]], "notPlanned": []}]
    done = {"records": 5, "ok": True, "reason": "Done"}
    whole = part(record=record, done=done)
    found = one(judge([{**whole, "plan": [*whole["plan"], *epochs], "traces": [*whole["traces"], again]}]))
    told = [] if engine else ["rank 0: 1 shapes were captured more than once: DecodeRunner__bs_8"]
    assert (found.verdict, found.notes) == (Verdict.COMPLETE, told)


EMPTY: dict[str, Any] = {"operators": {}, "gemmRows": {}, "sequenceSha256": None, "launches": 0, "windows": []}


def test_a_block_in_which_nothing_ran_is_dirty() -> None:
    traces = [*(entry(size) for size in (1, 2, 4)), entry(8, index=EMPTY)]
    found = judge([part(traces=traces)])
    assert one(found).verdict is Verdict.PARTIAL
    assert found.reasons == ("rank 0: DecodeRunner__bs_8 is dirty: no operator ran inside its block",)


@pytest.mark.parametrize(
    "index",
    [
        {**EMPTY, "operators": {"aten::relu": 1}},
        {**EMPTY, "leftOut": {"operators": 9}},
        {**EMPTY, "launches": 3},
        {**EMPTY, "launches": None, "windows": [{"launches": 0}]},
    ],
)
def test_a_block_that_holds_something_or_may_do_so_is_not_empty(index: dict[str, Any]) -> None:
    traces = [*(entry(size) for size in (1, 2, 4)), entry(8, index=index)]
    assert "no operator ran" not in str(judge([part(traces=traces)]).reasons)


def test_a_record_that_agrees_in_everything_proves_nothing_by_itself() -> None:
    traces = []
    for size in SIZES:
        label = Shape(Runner("DecodeRunner"), "bs", size, {"lora": "lora"})
        witnesses = {"keyKnown": True, "forwards": 1, "rows": size, "engine": {"lora": "lora"}, "width": 1}
        index = {"error": None, "operators": {"aten::add": 1}, "sequenceSha256": "same"}
        traces.append({"key": label.tag, "tag": label.tag, "bytes": 1, "index": index, "witnesses": witnesses})
    found = judge([part(traces=traces)])
    assert {(item.size, item.variants["lora"]) for item in found.traces.values()} == {("consistent", "unproven")}


@pytest.mark.parametrize("same", [{"rawSha256": "aa"}, {"index": {"traceId": "679F"}}])
def test_one_recording_under_two_names_is_a_duplicate(same: dict[str, Any]) -> None:
    quiet = {"metadata": None, "spans": []}
    traces = [entry(1), entry(2)]
    traces += [entry(size, rows=4, **{**same, "index": {**quiet, **same.get("index", {})}}) for size in (4, 8)]
    found = judge([part(traces=traces)])
    assert found.verdict is Verdict.PARTIAL
    key = "traces/rank-00000/DecodeRunner__bs_4.json.gz"
    assert f"rank 0: DecodeRunner__bs_8 is the same recording as {key}" in found.reasons
    assert found.traces[key].duplicates == ("traces/rank-00000/DecodeRunner__bs_8.json.gz",)


def test_strict_names_what_is_not_proven() -> None:
    lone = [entry(8)]
    found = judge([part(traces=lone, plan=[{"epoch": 1, "shapes": [shape(8).tag]}], done={"records": 1, "ok": True})])
    assert found.verdict is Verdict.COMPLETE
    assert found.unproven == ("traces/rank-00000/DecodeRunner__bs_8.json.gz",)


def test_reasons_are_bounded() -> None:
    lost = [{"tag": shape(size).tag, "error": "x" * 10_000} for size in range(1, 500)]
    found = judge([part(rank, traces=[], lost=lost) for rank in range(8)])
    assert len(found.reasons) == 101
    assert found.reasons[-1].startswith("... and ")
    assert max(len(reason) for reason in found.reasons) < 400


@pytest.mark.parametrize("odd", [{}, {"rank": "0"}, {"rank": 0, "traces": [1, None, {}], "plan": [1], "lost": "no"}])
def test_a_damaged_part_is_partial_and_raises_nothing(odd: dict[str, Any]) -> None:
    assert judge([odd], ranks=[0]).verdict is Verdict.PARTIAL


@pytest.mark.parametrize("swap", [False, True])
def test_a_size_of_which_nobody_knows_what_it_counts_is_not_proven_and_may_be_wrong(swap: bool) -> None:
    """The runner is one that no adapter describes: rows that fit are those of some unit."""
    rows = {2: 8, 8: 2} if swap else {}
    entries = [entry(size, rows=rows.get(size, size)) for size in SIZES]
    for item in entries:
        tag = item["tag"].replace("__bs_", "__unknown_")
        metadata = {**item["index"]["metadata"], "tag": tag}
        item |= {"tag": tag, "key": item["key"].replace(item["tag"], tag)}
        item["index"] |= {"metadata": metadata, "spans": [tag]}
    found = judge([part(traces=entries)]).traces.values()
    assert {item.trace.size for item in found if item.size == "contradicted"} == set(rows)
    right = [item for item in found if item.trace.size not in rows]
    assert {item.size for item in right} == {"consistent"}
    assert all("what a size of this runner counts is not known" in item.evidence[0] for item in right)
