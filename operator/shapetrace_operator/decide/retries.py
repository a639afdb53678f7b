"""Whether a failed attempt is followed by another one.

Disruptions by the cluster do not count against ``spec.retries``, but without retries there is no further attempt at
all: a user who allows none wants to look first. What would fail the same way again is not tried again, because devices
are dear.
"""

from __future__ import annotations

from shapetrace_contract.reasons import Reason, Verdict

from shapetrace_operator.decide.model import Attempt

MAX_DISRUPTIONS = 10
"""A run that the cluster keeps taking away ends some day."""

DISRUPTIONS = {Reason.POD_LOST.value, Reason.STOPPED.value}
CERTAIN = {
    reason.value
    for reason in (
        Reason.STORAGE_DENIED,
        Reason.CONDITIONAL_WRITES_IGNORED,
        Reason.BAD_CONFIGURATION,
        Reason.HOOKS_NOT_APPLIED,
        Reason.PENDING_TIMEOUT,
        Reason.DEADLINE_EXCEEDED,
        Reason.OUT_OF_MEMORY,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG,
        Reason.ADMISSION_REFUSED,
        Reason.QUOTA_EXCEEDED,
        Reason.MOUNT_FAILED,
        Reason.FINISH_FAILED,
        Reason.NOT_PROVEN,
    )
}
"""Failures that another attempt would meet as well."""
JUDGED = (Verdict.MISLABELLED, Verdict.UNDER_RECORDED)


def next_retries(attempt: Attempt) -> int | None:
    """How many retries the next attempt will have used; None where there is none."""
    limit, used = attempt.spec.retries, attempt.retries_used
    cause = attempt.status.failure
    if limit == 0 or (cause is not None and cause.reason in CERTAIN) or attempt.status.verdict in JUDGED:
        return None
    if cause is not None and cause.reason in DISRUPTIONS:
        return used if attempt.number <= limit + MAX_DISRUPTIONS else None
    return used + 1 if used < limit else None
