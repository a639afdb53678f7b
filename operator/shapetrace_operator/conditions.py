"""Conditions of a status: set in memory, written with everything else, times kept where nothing changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from shapetrace_api.status import Condition, ConditionStatus, ConditionType, ProfileRunStatus

WAITING = "Waiting"
"""Not yet: something before it has to happen first."""
HELD_BACK = "HeldBack"
"""A queue, or somebody, has suspended the Job."""
IN_PROGRESS = "InProgress"
ACCEPTED = "Accepted"
SCHEDULED = "Scheduled"
PREFLIGHT_PASSED = "PreflightPassed"
CAPTURED = "AllCaptured"
UPLOADED = "AllUploaded"
PROGRESS_UNREACHABLE = "ProgressUnreachable"
KERNELS_SEEN = "KernelsSeen"
KERNELS_MISSING = "KernelsMissing"
ENDED = "Ended"
_TELLING = (
    ConditionType.SCHEDULED,
    ConditionType.SUCCEEDED,
    ConditionType.STORAGE_READY,
    ConditionType.CAPTURED,
)
"""Conditions that may tell what a run waits for, the first one first: a suspension comes before what it has stopped."""


def get(status: ProfileRunStatus, kind: ConditionType) -> Condition | None:
    """The condition of that type."""
    return next((item for item in status.conditions if item.type is kind), None)


def is_true(status: ProfileRunStatus, kind: ConditionType) -> bool:
    """Whether the condition is there and True."""
    item = get(status, kind)
    return item is not None and item.status is ConditionStatus.TRUE


def reason(status: ProfileRunStatus) -> str | None:
    """One word for the run: why it failed, or else what it waits for; None where nothing keeps it from going on."""
    if status.failure is not None:
        return status.failure.reason
    succeeded = get(status, ConditionType.SUCCEEDED)
    if succeeded is not None and succeeded.status is not ConditionStatus.UNKNOWN:
        return succeeded.reason if succeeded.status is ConditionStatus.FALSE else None
    for item in (get(status, kind) for kind in _TELLING):
        # a step that is merely to come has no message; counters that cannot be read keep nothing from going on
        if item and item.message and item.status is not ConditionStatus.TRUE and item.reason != PROGRESS_UNREACHABLE:
            return item.reason
    return None


def put(
    status: ProfileRunStatus,
    kind: ConditionType,
    value: ConditionStatus,
    reason: str,
    message: str = "",
    *,
    now: datetime,
    generation: int | None = None,
    before: Sequence[Condition] = (),
) -> Condition:
    """Set a condition. ``lastTransitionTime`` moves only when the condition's status changes.

    ``before`` are the conditions as they are stored: a status that is taken away and given back within one decision
    has not changed, for any reader and for any clock that counts from it.
    """
    known = get(status, kind)
    stored = next((item for item in before if item.type is kind), known)
    since = next((item.last_transition_time for item in (stored, known) if item and item.status is value), now)
    new = Condition(
        type=kind,
        status=value,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if known is not None and (known.status, known.reason, known.message) == (new.status, new.reason, new.message):
        return known
    others = [item for item in status.conditions if item.type is not kind]
    order = list(ConditionType)
    status.conditions = sorted([*others, new], key=lambda item: order.index(item.type))
    return new
