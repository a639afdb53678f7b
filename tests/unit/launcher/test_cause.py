"""Which end is the first cause, and how the launcher answers it."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from shapetrace_contract.reasons import Reason, exit_code
from shapetrace_launcher.cause import Cause, Exit, Observed, answer, cause_of

HOOKED: dict[int, dict[str, Any]] = {0: {"hooks": {"engine": "applied"}}, 1: {"hooks": {"engine": "applied"}}}
DONE: dict[int, dict[str, Any]] = {0: {"ok": True}, 1: {"ok": True}}
RANKS = (0, 1)


def end(rank: int, code: int) -> Exit:
    return Exit(f"rank {rank}", (rank,), code)


def test_a_working_engine_has_no_cause() -> None:
    assert cause_of(Observed(RANKS, [], HOOKED, {0: {}})) is None


def test_a_rank_that_is_done_and_gone_is_waited_past() -> None:
    assert cause_of(Observed(RANKS, [end(0, 0)], HOOKED, {0: {}})) is None


@pytest.mark.parametrize(
    ("seen", "reason", "rank"),
    [
        (Observed(RANKS, [], HOOKED, DONE), Reason.DONE, None),
        (Observed(RANKS, [end(1, 1)], HOOKED, DONE), Reason.DONE, None),
        (Observed(RANKS, [], HOOKED, DONE, terminated=True), Reason.DONE, None),
        (Observed(RANKS, [], HOOKED, {0: {}}, terminated=True), Reason.STOPPED, None),
        (Observed(RANKS, [end(1, 1)], HOOKED, {0: {}}, terminated=True), Reason.ENGINE_FAILED, 1),
        (Observed(RANKS, [end(1, 1), end(0, 1)], HOOKED), Reason.ENGINE_FAILED, 1),
        (Observed(RANKS, [end(0, 1), end(1, -9)], HOOKED), Reason.ENGINE_FAILED, 1),
        (Observed(RANKS, [end(0, 44)], HOOKED), Reason.BAD_CONFIGURATION, 0),
        (Observed(RANKS, [end(1, 0)], HOOKED, {0: {}}), Reason.ENGINE_FAILED, 1),
        (Observed(RANKS, [end(1, 0)], {0: HOOKED[0]}, {0: {}}), Reason.HOOKS_NOT_APPLIED, 1),
        (Observed(RANKS, [], {0: HOOKED[0]}, DONE), Reason.HOOKS_NOT_APPLIED, 1),
        (
            Observed(RANKS, [], {**HOOKED, 1: {"hooks": {"a": "missing", "b": "error: x"}}}, DONE),
            Reason.HOOKS_NOT_APPLIED,
            1,
        ),
        (Observed(RANKS, [Exit("engine", RANKS, 0)], HOOKED, {0: {}}), Reason.ENGINE_FAILED, 1),
        (Observed(RANKS, [Exit("engine", RANKS, 2)], HOOKED, {0: {}}), Reason.ENGINE_FAILED, None),
    ],
)
def test_the_first_cause_is_named_with_its_rank(seen: Observed, reason: Reason, rank: int | None) -> None:
    cause = cause_of(seen)
    assert cause is not None
    assert (cause.reason, cause.rank) == (reason, rank)


def test_a_signal_is_named_and_a_real_time_signal_too() -> None:
    for number, name in ((int(signal.SIGSEGV), "SIGSEGV"), (40, "40")):
        cause = cause_of(Observed(RANKS, [end(0, -number)], HOOKED))
        assert cause is not None
        assert cause.signal == number
        assert name in cause.message


@pytest.mark.parametrize(
    ("reason", "drained", "terminated", "code"),
    [
        (Reason.DONE, {"ok": True}, False, 0),
        (Reason.DONE, {"ok": True}, True, 0),
        (Reason.DONE, {"ok": False, "missing": 1}, False, 52),
        (Reason.DONE, {"ok": False, "missing": 1}, True, 52),
        (Reason.DONE, None, False, 52),
        (Reason.DONE, None, True, 143),
        (Reason.STOPPED, {"ok": True}, True, 143),
        (Reason.ENGINE_FAILED, {"ok": True}, False, 50),
        (Reason.ENGINE_FAILED, None, True, 50),
        (Reason.HOOKS_NOT_APPLIED, {"ok": True}, False, 51),
        (Reason.BAD_CONFIGURATION, None, False, 44),
    ],
)
def test_the_first_cause_wins_over_what_the_drain_says(
    reason: Reason, drained: dict[str, Any] | None, terminated: bool, code: int
) -> None:
    said = answer(Cause(reason, "because"), drained, terminated)
    assert said.code == code == exit_code(said.reason)
    assert said.drained is (drained is not None)


METHOD = "sglang.srt.model_executor.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend.capture_one"


def _sglang(state: str) -> dict[str, Any]:
    return {
        "engine": {"name": "sglang", "version": "0.5.99"},
        "hooks": {METHOD: state, "ModelRunner.__init__": "applied"},
        "required": [METHOD, "ModelRunner.__init__"],
    }


@pytest.mark.parametrize("state", ["missing", "error: TypeError: x"])
@pytest.mark.parametrize("done", [{}, DONE])
def test_a_hook_that_is_required_and_not_applied_is_named_with_the_engines_version(
    state: str, done: dict[int, dict[str, Any]]
) -> None:
    cause = cause_of(Observed(RANKS, [], {0: _sglang("applied"), 1: _sglang(state)}, done))
    assert cause is not None
    assert (cause.reason, cause.rank) == (Reason.HOOKS_NOT_APPLIED, 1)
    assert "sglang 0.5.99" in cause.message
    assert f"{METHOD} ({state})" in cause.message
    assert "ModelRunner" not in cause.message


def test_hooks_that_are_not_required_may_be_missing() -> None:
    record = {"hooks": {"a": "applied", "b": "missing"}, "required": ["a"]}
    cause = cause_of(Observed((0,), [], {0: record}, {0: {}}))
    assert cause is not None
    assert cause.reason is Reason.DONE


def test_a_required_hook_without_a_state_is_missing() -> None:
    cause = cause_of(Observed((0,), [], {0: {"hooks": {"a": "applied"}, "required": ["b"]}}, {}))
    assert cause is not None
    assert "the engine: not hooked: b (missing)" in cause.message


def test_an_engine_that_failed_is_the_cause_before_its_hooks() -> None:
    cause = cause_of(Observed((0,), [end(0, 1)], {0: _sglang("missing")}, {}))
    assert cause is not None
    assert cause.reason is Reason.ENGINE_FAILED


def test_a_program_that_marked_nothing_is_told_what_may_be_the_matter() -> None:
    cause = cause_of(Observed((0,), [end(0, 0)], {}, {}))
    assert cause is not None
    assert cause.message == (
        "rank 0 wrote no record: the program ended, and no shapetrace_capture.shape(...) was reached in it, "
        "or it never imported shapetrace_capture"
    )


def test_a_rank_that_nobody_started_is_told_with_those_that_came() -> None:
    cause = cause_of(Observed(RANKS, [Exit("engine", RANKS, 0)], {0: HOOKED[0]}, {0: {}}))
    assert cause is not None
    assert cause.message == (
        "rank 1 never appeared: 1 of 2 ranks wrote records; start every rank (torchrun --nproc-per-node 2) "
        "or set parallelism.tensor: 1"
    )


def test_an_engine_whose_rank_wrote_nothing_is_not_taken_for_a_program_of_the_users() -> None:
    cause = cause_of(Observed(RANKS, [Exit("engine", RANKS, 0)], {0: HOOKED[0]}, {0: {}}, engine="vllm 0.11"))
    assert cause is not None
    assert cause.message == "rank 1 wrote no record: vllm 0.11: the plugin shapetrace did nothing in it"
