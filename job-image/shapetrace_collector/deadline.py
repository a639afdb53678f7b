"""Until when uploads are tried. Pure: all times are seconds of one clock."""

from __future__ import annotations

from shapetrace_contract.reasons import Reason
from shapetrace_contract.settings import Limits

PARTS_SECONDS = 5.0
"""Kept for writing the parts: the launcher waits for them, and at the end of its grace the pod is killed."""
_LAUNCHER_KILL_SECONDS = 10.0
_QUARTER = 0.25
"""A launcher that is told to stop kills the engine within min(10 s, grace/4), so that much of the grace is gone when it
writes stopped.json; and it waits for us until a quarter of the grace is left."""


def last_moment(
    limits: Limits, stopped_at: float | None, stopped_reason: str | None, terminated_at: float | None
) -> float | None:
    """When parts have to be written too; None while nobody waits for an end."""
    moments = []
    if stopped_at is not None:
        moments.append(stopped_at + limits.uploadTimeoutSeconds)
        if stopped_reason == Reason.STOPPED.value:
            grace_seconds = limits.disruptionGraceSeconds
            moments.append(stopped_at + grace_seconds - min(_LAUNCHER_KILL_SECONDS, grace_seconds * _QUARTER))
    if terminated_at is not None:
        # our SIGTERM comes when the launcher has ended. Without stopped.json it died, and the whole grace is ours; with
        # it, the pod may have been deleted while the launcher waited for us
        share = 1.0 if stopped_at is None else _QUARTER
        moments.append(terminated_at + limits.disruptionGraceSeconds * share)
    return min(moments, default=None)


def upload_until(moment: float | None, limits: Limits) -> float | None:
    """When uploading gives way to writing parts: 5 s before the last moment, less where the limits are short."""
    if moment is None:
        return None
    shortest = min(limits.uploadTimeoutSeconds, limits.disruptionGraceSeconds)
    return moment - min(PARTS_SECONDS, shortest / 4)
