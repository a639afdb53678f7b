"""Conditions of a status: set in memory, written with everything else, times kept where nothing changed."""

from __future__ import annotations

from datetime import datetime

from shapetrace_api.status import Condition, ConditionStatus, ConditionType, ProfileRunStatus

WAITING = "Waiting"
"""Not yet: something before it has to happen first."""
IN_PROGRESS = "InProgress"
ACCEPTED = "Accepted"
SCHEDULED = "Scheduled"
PREFLIGHT_PASSED = "PreflightPassed"
CAPTURED = "AllCaptured"
UPLOADED = "AllUploaded"
PROGRESS_UNREACHABLE = "ProgressUnreachable"
ENDED = "Ended"


def get(status: ProfileRunStatus, kind: ConditionType) -> Condition | None:
    """The condition of that type."""
    return next((item for item in status.conditions if item.type is kind), None)


def is_true(status: ProfileRunStatus, kind: ConditionType) -> bool:
    """Whether the condition is there and True."""
    item = get(status, kind)
    return item is not None and item.status is ConditionStatus.TRUE


def put(
    status: ProfileRunStatus,
    kind: ConditionType,
    value: ConditionStatus,
    reason: str,
    message: str = "",
    *,
    now: datetime,
    generation: int | None = None,
) -> Condition:
    """Set a condition. ``lastTransitionTime`` moves only when the condition's status changes."""
    known = get(status, kind)
    since = known.last_transition_time if known is not None and known.status is value else now
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
