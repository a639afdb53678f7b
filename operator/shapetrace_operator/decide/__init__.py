"""Decisions: a run, what is observed of it, and the time in; a plan out. Pure, level-based, one policy a file."""

from __future__ import annotations

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.status import ConditionType, Phase, ProfileRunStatus
from shapetrace_contract.reasons import Reason

from shapetrace_operator import conditions
from shapetrace_operator.decide import (
    accepted,
    attempts,
    causes,
    ends,
    finish,
    over,
    ranks,
    recorded,
    retries,
    steps,
    stops,
    verdict,
)
from shapetrace_operator.decide.model import Attempt, Case, Draft, Plan

__all__ = ["Case", "Plan", "decide", "is_finished"]


def is_finished(status: ProfileRunStatus) -> bool:
    """Whether the run has ended, well or badly."""
    return conditions.is_true(status, ConditionType.FINISHED)


def decide(case: Case) -> Plan:
    """What to do next about one run. The same answer for the same input, whatever happened in between."""
    status = recorded.read(case.run.get("status") or {})
    draft = Draft(case=case, status=status)
    if case.run["metadata"].get("deletionTimestamp"):
        # children go with their owner, which a finalizer of somebody else may keep for long
        stops.leftovers(draft)
        return draft.plan()
    if is_finished(status):
        stops.leftovers(draft)
        ends.expire(draft, case.run)
        return draft.plan()
    status.observed_generation = case.generation
    spec = accepted.read(draft)
    newest = case.observed.newest_attempt
    if newest > (status.attempt or 0):
        # made before a crash: the Job exists, the status does not know it yet
        attempts.begin(draft, newest, spec.parallelism.ranks if spec else 0)
    if spec is None:
        _refuse(draft)
    elif not status.attempt:
        if spec.suspend:
            ends.suspend(draft)
        else:
            _start(draft, spec, 1, 0)
    elif status.phase is Phase.SUSPENDED:
        _suspended(Attempt(draft, spec, status.attempt))
    else:
        _follow(Attempt(draft, spec, status.attempt))
    stops.leftovers(draft, status.attempt)
    return draft.plan()


def _refuse(draft: Draft) -> None:
    """A spec that cannot be worked on. It cannot change either, so the run ends."""
    known = conditions.get(draft.status, ConditionType.ACCEPTED)
    if known is not None and draft.status.failure is None:
        draft.status.failure = ranks.failure(Reason.BAD_CONFIGURATION, known.message)
    draft.delete += [job for job in draft.case.observed.jobs if not job.over and not job.deleting]
    ends.end(draft, good=False)


def _start(draft: Draft, spec: ProfileRunSpec, number: int, retries_used: int) -> None:
    if not attempts.start(draft, spec, number, retries_used):
        ends.end(draft, good=False)


def _suspended(attempt: Attempt) -> None:
    job = attempt.job
    if attempt.spec.suspend:
        if job is not None and not job.over and not job.deleting:
            attempt.draft.delete.append(job)
        return
    used = retries.next_retries(attempt) if attempt.status.failure is not None else None
    _start(attempt.draft, attempt.spec, attempt.number + 1, attempt.retries_used if used is None else used)


def _follow(attempt: Attempt) -> None:
    """An attempt that has been started and is not yet committed."""
    draft = attempt.draft
    ranks.update(draft, attempt.observed.progress, attempt.spec.parallelism.ranks)
    if not stops.is_suspended(attempt):
        causes.record(attempt)
    steps.update(attempt)
    stops.decide(attempt)
    if not over.is_over(attempt):
        return
    result = None
    if over.preflight_passed(attempt) is not False:
        draft.advance(Phase.FINISHING)
        result = finish.decide(attempt)
        if result is None:
            return
    _commit(attempt, result)


def _commit(attempt: Attempt, result: finish.Result | None) -> None:
    """The attempt is committed, or there was nothing to commit: end, suspend, or try again."""
    draft, spec = attempt.draft, attempt.spec
    suspended, waited_for = stops.is_suspended(attempt), stops.waits_for(attempt)
    good = verdict.apply(attempt, result)
    if suspended and not good:
        if spec.suspend:
            ends.suspend(draft, waited_for=waited_for)
        else:
            _start(draft, spec, attempt.number + 1, attempt.retries_used)
        return
    used = None if good else retries.next_retries(attempt)
    if used is None:
        ends.end(draft, good, *((result.eager, result.note) if result is not None else ()))
        return
    if spec.suspend:
        # the cause stays: it tells, when the run goes on, that this attempt counts
        ends.suspend(draft, draft.status.failure)
        return
    _start(draft, spec, attempt.number + 1, used)
