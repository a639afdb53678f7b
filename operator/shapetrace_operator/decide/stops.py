"""What ends an attempt from outside: suspension, the two deadlines, a blocker that cannot heal.

The reason goes into the status first; the Job is deleted after that write, in this cycle or, after a crash, in a later
one. Deleting the Job gives its pods their grace: what was captured is stored, and the finish commits it.
"""

from __future__ import annotations

from collections.abc import Sequence

from shapetrace_api.status import ConditionStatus, ConditionType
from shapetrace_contract import names
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Reason

from shapetrace_operator import conditions
from shapetrace_operator.decide import ranks, steps
from shapetrace_operator.decide.model import Attempt, Draft
from shapetrace_operator.decide.over import is_lost
from shapetrace_operator.observe import Pod

STOPPED_BY_US = {
    reason.value
    for reason in (
        Reason.PENDING_TIMEOUT,
        Reason.DEADLINE_EXCEEDED,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG,
        Reason.ADMISSION_REFUSED,
        Reason.QUOTA_EXCEEDED,
        Reason.MOUNT_FAILED,
    )
}


def is_suspended(attempt: Attempt) -> bool:
    """Whether the attempt is being, or was, stopped by a suspension: the mark outlives a restart of the operator."""
    known = conditions.get(attempt.status, ConditionType.SUCCEEDED)
    return known is not None and known.reason == Reason.SUSPENDED.value


def waits_for(attempt: Attempt) -> str:
    """``ImagePullFailed: …``: what keeps the attempt from starting, empty where nothing does."""
    found = [item for item in attempt.status.conditions if item.status is ConditionStatus.FALSE and item.message]
    return f"{found[0].reason}: {found[0].message}" if found else ""


def decide(attempt: Attempt) -> None:
    """Stop the attempt if it is time to; and go on stopping it until its Job is gone."""
    if not is_suspended(attempt) and attempt.status.failure is None:
        _suspend(attempt)
    if not is_suspended(attempt) and attempt.status.failure is None:
        _blocked(attempt)
        _pending(attempt)
        _active(attempt)
    cause = attempt.status.failure
    stopped = is_suspended(attempt) or (cause is not None and cause.reason in STOPPED_BY_US)
    # a lost node: its Job never gets to Failed, and must not make another pod when the node returns
    lost = any(is_lost(attempt, pod) for pod in attempt.pods)
    job = attempt.job
    if (stopped or lost) and job is not None and not job.over and not job.deleting and not _engine_ended(attempt):
        attempt.draft.delete.append(job)


def leftovers(draft: Draft, attempt: int | None = None) -> None:
    """Stop captures that nobody waits for: of other attempts than ``attempt``, of all of them where it is None."""
    observed = draft.case.observed
    for job in observed.jobs:
        capture = job.role == names.ROLE_CAPTURE and job.attempt != attempt
        if capture and not job.over and not job.deleting and not _all_ended(observed.capture_pods(job.attempt)):
            draft.delete.append(job)


def _engine_ended(attempt: Attempt) -> bool:
    """The pod is about to end by itself, or has."""
    return _all_ended(attempt.pods)


def _all_ended(pods: Sequence[Pod]) -> bool:
    return bool(pods) and all(pod.over or pod.container(names.CONTAINER_ENGINE).ended for pod in pods)


def _suspend(attempt: Attempt) -> None:
    job = attempt.job
    seen = bool(attempt.pods) or attempt.status.capture_time is not None
    by_queue = job is not None and job.suspended and seen
    if not (attempt.spec.suspend or by_queue) or _engine_ended(attempt):
        return
    message = (
        "spec.suspend is set: the attempt is stopped, what it has captured is stored"
        if attempt.spec.suspend
        else "a queue has suspended the Job: the attempt is stopped, the next one takes its place"
    )
    if cause := waits_for(attempt):
        message = shorten(f"{message}; it could not start: {cause}")
    attempt.draft.condition(ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, Reason.SUSPENDED.value, message)


def _blocked(attempt: Attempt) -> None:
    found = steps.blocked(attempt)
    if found is not None:
        attempt.fail(ranks.failure(found.reason, found.message))


def _pending(attempt: Attempt) -> None:
    """The engine has to be started within ``pendingTimeoutSeconds``, counted from when the Job may have pods."""
    job = attempt.job
    if job is None or job.suspended or attempt.status.capture_time is not None:
        return
    since = job.started or job.created
    timeout_seconds = attempt.spec.pending_timeout_seconds
    if attempt.has_passed(since, timeout_seconds):
        cause = waits_for(attempt)
        why = f" ({cause})" if cause else ""
        message = f"the engine was not started within spec.pendingTimeoutSeconds = {timeout_seconds}{why}"
        attempt.fail(ranks.failure(Reason.PENDING_TIMEOUT, message))


def _active(attempt: Attempt) -> None:
    """An attempt may take ``activeDeadlineSeconds`` from the start of its engine."""
    since = attempt.status.capture_time
    if since is None or _engine_ended(attempt):
        return
    deadline_seconds = attempt.spec.active_deadline_seconds
    if attempt.has_passed(since, deadline_seconds):
        message = f"the engine ran longer than spec.activeDeadlineSeconds = {deadline_seconds}"
        attempt.fail(ranks.failure(Reason.DEADLINE_EXCEEDED, message, container=names.CONTAINER_ENGINE))
