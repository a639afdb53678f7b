"""The end of a run, and of what is only suspended."""

from __future__ import annotations

from datetime import timedelta

from shapetrace_api.status import ConditionStatus, ConditionType, Failure, Phase
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Reason, Verdict

from shapetrace_operator import conditions
from shapetrace_operator.decide.model import Draft
from shapetrace_operator.objects import Object


def end(draft: Draft, good: bool, eager: str = "", note: str = "") -> None:
    """Succeeded or Failed, and Finished either way.

    ``eager``: why a run without graphs has none. ``note``: what a person should know of a good one.
    """
    status = draft.status
    verdict = str(status.verdict) if status.verdict else None
    reason = status.failure.reason if status.failure else verdict or conditions.ENDED
    message = status.failure.message if status.failure else ""
    if good:
        reason, message = verdict or Reason.DONE.value, ""
        if status.verdict is Verdict.EAGER:
            message = f"no graphs were captured: {eager}" if eager else "no graphs were captured"
        message = shorten("; ".join(text for text in (message, note) if text))
    status.phase = Phase.SUCCEEDED if good else Phase.FAILED
    draft.condition(ConditionType.SUCCEEDED, ConditionStatus.TRUE if good else ConditionStatus.FALSE, reason, message)
    draft.condition(ConditionType.FINISHED, ConditionStatus.TRUE, status.phase.value)
    status.completion_time = draft.case.now


def suspend(draft: Draft, failure: Failure | None = None, waited_for: str = "") -> None:
    """Nothing of the run holds anything any more, and it goes on when ``spec.suspend`` is taken back.

    ``failure``: the cause of an attempt that had failed by itself before. ``waited_for``: what kept the attempt from
    starting; the next one will meet it again.
    """
    draft.status.phase = Phase.SUSPENDED
    draft.status.failure = failure
    scheduled = conditions.get(draft.status, ConditionType.SCHEDULED)
    if scheduled is not None and scheduled.status is ConditionStatus.FALSE:
        # how long it waited before says nothing about the wait that begins when it goes on
        draft.condition(ConditionType.SCHEDULED, ConditionStatus.UNKNOWN, Reason.SUSPENDED.value)
    attempt = draft.status.attempt or 0
    message = f"suspended by spec.suspend; set it to false to start attempt {attempt + 1}"
    if waited_for:
        message = shorten(f"{message}; attempt {attempt} could not start: {waited_for}")
    draft.condition(ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, Reason.SUSPENDED.value, message)
    draft.condition(ConditionType.FINISHED, ConditionStatus.FALSE, Reason.SUSPENDED.value)


def expire(draft: Draft, run: Object) -> None:
    """Delete a run that ended ``ttlSecondsAfterFinished`` ago; its objects in the bucket stay."""
    ttl_seconds = (run.get("spec") or {}).get("ttlSecondsAfterFinished")
    ended = draft.status.completion_time
    if ttl_seconds is None or ended is None:
        return
    due = ended + timedelta(seconds=int(ttl_seconds))
    if draft.case.now >= due:
        draft.delete_run = True
    else:
        draft.wake(due)
