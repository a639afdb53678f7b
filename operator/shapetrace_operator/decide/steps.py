"""Conditions, phase and times of a running attempt, from its pods and counters."""

from __future__ import annotations

from shapetrace_api.status import ConditionStatus, ConditionType, Phase
from shapetrace_contract import names
from shapetrace_contract.reasons import RankState

from shapetrace_operator import conditions
from shapetrace_operator.decide import blockers
from shapetrace_operator.decide.model import Attempt
from shapetrace_operator.observe import Pod


def update(attempt: Attempt) -> None:
    """Everything that the pods show."""
    draft, pods = attempt.draft, attempt.pods
    if pods and all(pod.scheduled for pod in pods):
        where = ", ".join(sorted({pod.node for pod in pods if pod.node}))
        draft.condition(ConditionType.SCHEDULED, ConditionStatus.TRUE, conditions.SCHEDULED, where)
        draft.advance(Phase.PREPARING)
    if any(pod.container(names.CONTAINER_PREFLIGHT).exit_code == 0 for pod in pods):
        draft.condition(ConditionType.STORAGE_READY, ConditionStatus.TRUE, conditions.PREFLIGHT_PASSED)
    _preflight_failed(attempt)
    engines = [pod.container(names.CONTAINER_ENGINE) for pod in pods]
    started = [engine.started for engine in engines if engine.started is not None]
    if started:
        if draft.status.capture_time is None:
            draft.status.capture_time = min(started)
        draft.advance(Phase.CAPTURING)
        _counters(attempt)
    if any(engine.ended for engine in engines):
        draft.advance(Phase.FINISHING)


def _preflight_failed(attempt: Attempt) -> None:
    for pod in attempt.pods:
        preflight = pod.container(names.CONTAINER_PREFLIGHT)
        if preflight.ended and preflight.exit_code != 0 and attempt.status.failure is not None:
            cause = attempt.status.failure
            attempt.draft.condition(ConditionType.STORAGE_READY, ConditionStatus.FALSE, cause.reason, cause.message)


def _counters(attempt: Attempt) -> None:
    """Captured and Uploaded turn True while the engine still runs, as soon as the counters say so."""
    draft, status = attempt.draft, attempt.status
    progress = status.progress
    if progress is None:
        return
    expected = progress.expected
    captured = expected is not None and expected > 0 and progress.captured >= expected
    uploaded = captured and progress.uploaded >= (expected or 0)
    pairs = (
        (ConditionType.CAPTURED, captured, conditions.CAPTURED),
        (ConditionType.UPLOADED, uploaded, conditions.UPLOADED),
    )
    for kind, reached, reason in pairs:
        if reached:
            draft.condition(kind, ConditionStatus.TRUE, reason)
        elif not conditions.is_true(status, kind):
            if attempt.observed.unreachable:
                draft.condition(
                    kind,
                    ConditionStatus.UNKNOWN,
                    conditions.PROGRESS_UNREACHABLE,
                    f"the operator cannot reach port {names.PROGRESS_PORT} of the run's pod (a network policy?): "
                    "counters come with the end of the run",
                )
            else:
                draft.condition(kind, ConditionStatus.UNKNOWN, conditions.IN_PROGRESS)


def blocked(attempt: Attempt) -> blockers.Blocker | None:
    """Show what keeps the attempt from starting; the blocker, once it has lasted longer than it may."""
    found = blockers.find(attempt)
    draft, job = attempt.draft, attempt.job
    held = conditions.get(attempt.status, ConditionType.SCHEDULED)
    if job is not None and job.suspended and found is None and not attempt.pods:
        message = "the Job is suspended: a queue holds it back"
        draft.condition(ConditionType.SCHEDULED, ConditionStatus.UNKNOWN, conditions.HELD_BACK, message)
    elif held is not None and held.reason == conditions.HELD_BACK:
        draft.condition(ConditionType.SCHEDULED, ConditionStatus.UNKNOWN, conditions.WAITING)
    for kind in (ConditionType.SCHEDULED, ConditionType.STORAGE_READY, ConditionType.CAPTURED):
        known = conditions.get(attempt.status, kind)
        stale = known is not None and known.status is ConditionStatus.FALSE and attempt.status.failure is None
        if stale and (found is None or found.condition is not kind):
            draft.condition(kind, ConditionStatus.UNKNOWN, conditions.WAITING)
    if found is None:
        return None
    since = draft.condition(found.condition, ConditionStatus.FALSE, found.reason.value, found.message)
    if found.grace_seconds is None:
        return None
    if (attempt.now - since).total_seconds() >= found.grace_seconds:
        return found
    draft.wake_in(found.grace_seconds - (attempt.now - since).total_seconds())
    return None


def lost_state(pods: list[Pod]) -> RankState:
    """What ranks that were not done became: Lost with their pod, Failed where it ended by itself."""
    vanished = any(not pod.container(names.CONTAINER_ENGINE).ended for pod in pods)
    return RankState.LOST if vanished or not pods else RankState.FAILED
