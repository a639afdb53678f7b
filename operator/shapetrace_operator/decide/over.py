"""Whether an attempt is over: all that can be delivered is delivered, so the finish may start."""

from __future__ import annotations

from shapetrace_api.status import ConditionType
from shapetrace_contract import names
from shapetrace_contract.reasons import Reason, exit_code

from shapetrace_operator import conditions
from shapetrace_operator.decide.model import Attempt
from shapetrace_operator.observe import Pod

LATE_SECONDS = 15
"""After a grace has run out: the kubelet's own SIGKILL comes 2 s late, and the news of it takes its time."""

_NO_CLAIM = {
    exit_code(reason)
    for reason in (
        Reason.STORAGE_UNREACHABLE,
        Reason.STORAGE_DENIED,
        Reason.CONDITIONAL_WRITES_IGNORED,
        Reason.BAD_CONFIGURATION,
    )
}
"""Preflight ended without a claim. AttemptTaken is not among them: a claim exists then, another pod's."""
_BEFORE_START = {
    reason.value
    for reason in (
        Reason.PENDING_TIMEOUT,
        Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.ADMISSION_REFUSED,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG,
        Reason.MOUNT_FAILED,
    )
}
"""Causes that keep a pod from getting as far as its claim."""


def is_over(attempt: Attempt) -> bool:
    """Whether nothing more is to be waited for; otherwise the draft is woken when a grace runs out."""
    pods = attempt.pods
    if not pods:
        job = attempt.job
        return job is None or job.over or job.deleting
    # every pod is looked at, so that each that waits for a clock is woken for
    answers = [pod_is_over(attempt, pod) for pod in pods]
    return all(answers)


def pod_is_over(attempt: Attempt, pod: Pod) -> bool:
    """One pod: over by itself, drained, or given up by the clock."""
    engine, collector = pod.container(names.CONTAINER_ENGINE), pod.container(names.CONTAINER_COLLECTOR)
    if pod.over:
        return True
    if engine.ended:
        said = engine.termination
        if collector.ended or (said is not None and said.drained):
            return True
        if attempt.has_passed(engine.finished, attempt.spec.disruption_grace_seconds + LATE_SECONDS):
            return True
    return is_lost(attempt, pod)


def is_lost(attempt: Attempt, pod: Pod) -> bool:
    """The kubelet should be done with the pod, and is silent: its node is lost."""
    if pod.over:
        return False
    # deletionTimestamp is the request plus the grace
    if attempt.has_passed(pod.deletion, LATE_SECONDS):
        return True
    job = attempt.job
    since = job.failed_since if job is not None else None
    return attempt.has_passed(since, attempt.spec.disruption_grace_seconds + LATE_SECONDS)


def preflight_passed(attempt: Attempt) -> bool | None:
    """Whether the attempt has a claim, so that there may be something to finish; None where nobody can tell."""
    if conditions.is_true(attempt.status, ConditionType.STORAGE_READY):
        return True
    answers = [_pod_passed(pod) for pod in attempt.pods]
    if True in answers:
        return True
    # a pod that is deleted before its first container starts is given an exit code that says nothing
    cause, storage = attempt.status.failure, conditions.get(attempt.status, ConditionType.STORAGE_READY)
    if (cause is not None and cause.reason in _BEFORE_START) or (
        storage is not None and storage.reason in _BEFORE_START
    ):
        return False
    return None if None in answers or not answers else False


def _pod_passed(pod: Pod) -> bool | None:
    preflight = pod.container(names.CONTAINER_PREFLIGHT)
    if preflight.ended:
        if preflight.exit_code == 0 or preflight.exit_code == exit_code(Reason.ATTEMPT_TAKEN):
            return True
        return False if preflight.exit_code in _NO_CLAIM else None
    started = preflight.started is not None or pod.container(names.CONTAINER_ENGINE).started is not None
    return None if started else False
