"""Attempts: one Job and one folder in the bucket each, numbered, never used again."""

from __future__ import annotations

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.status import ConditionStatus, ConditionType, Phase
from shapetrace_contract.reasons import Reason

from shapetrace_operator import conditions
from shapetrace_operator.build.capture import capture_job
from shapetrace_operator.decide import ranks
from shapetrace_operator.decide.model import Draft
from shapetrace_operator.observe import Refusal

STEPS = (
    ConditionType.STORAGE_READY,
    ConditionType.SCHEDULED,
    ConditionType.CAPTURED,
    ConditionType.UPLOADED,
    ConditionType.SUCCEEDED,
)
REFUSED_RETRY_SECONDS = 5
"""A quota may be raised and a webhook come back at any time; nothing tells."""


def begin(draft: Draft, number: int, ranks_count: int) -> None:
    """The status now speaks of attempt ``number``: what an earlier one left is dropped."""
    status = draft.status
    status.attempt = number
    status.phase = Phase.PENDING
    status.verdict = status.manifest = status.failure = status.capture_time = None
    if status.start_time is None:
        status.start_time = draft.case.now
    status.conditions = [item for item in status.conditions if item.type is not ConditionType.GPU_EVENTS_RECORDED]
    for kind in STEPS:
        draft.condition(kind, ConditionStatus.UNKNOWN, conditions.WAITING)
    draft.condition(ConditionType.FINISHED, ConditionStatus.FALSE, conditions.IN_PROGRESS)
    status.ranks = []
    ranks.update(draft, {}, ranks_count)


def start(draft: Draft, spec: ProfileRunSpec, number: int, retries_used: int) -> bool:
    """Create the Job of attempt ``number``; the status names the attempt once the Job exists.

    False where the API server has refused the Job for good, or for too long: the run ends with ``status.failure``.
    """
    refusal = draft.case.observed.refusal
    if refusal is not None:
        return _refused(draft, spec, refusal)
    draft.create = capture_job(draft.case.run, spec, number, retries_used, draft.case.defaults)
    begin(draft, number, spec.parallelism.ranks)
    return True


def _refused(draft: Draft, spec: ProfileRunSpec, refusal: Refusal) -> bool:
    """The API server did not take the Job. The attempt's number stays unused, so that it can be tried again."""
    quota = "exceeded quota" in refusal.message
    reason = Reason.QUOTA_EXCEEDED if quota else Reason.ADMISSION_REFUSED
    fix = "raise the quota or wait" if quota else "change the run or the namespace's policy"
    message = f"the Job is refused: {refusal.message}; {fix}"
    since = draft.condition(ConditionType.SCHEDULED, ConditionStatus.FALSE, reason.value, message)
    if draft.status.phase is None:
        draft.advance(Phase.PENDING)
    waited_seconds = (draft.case.now - since).total_seconds()
    if refusal.status in (400, 422):
        # the spec cannot change, so the same Job is refused again
        draft.status.failure = ranks.failure(Reason.BAD_CONFIGURATION, message)
        return False
    if waited_seconds >= spec.pending_timeout_seconds:
        draft.status.failure = ranks.failure(Reason.PENDING_TIMEOUT, message)
        return False
    draft.wake_in(REFUSED_RETRY_SECONDS)
    return True
