"""Until when uploads are tried. Pure: all times are seconds of one clock."""

from __future__ import annotations

from shapetrace_contract.reasons import Reason
from shapetrace_contract.settings import Limits

PARTS_SECONDS = 5.0
"""Kept for writing the parts: the launcher waits for them, and at the end of its grace the pod is killed."""
_LAUNCHER_KILL_SECONDS = 10.0
_LAUNCHER_KILL_SHARE = 0.25
"""A launcher that is told to stop kills the engine within min(10 s, grace/4): that much of the grace is gone."""


def last_moment(
    limits: Limits, stopped_at: float | None, stopped_reason: str | None, terminated_at: float | None
) -> float | None:
    """When parts have to be written too; None while nobody waits for an end."""
    moments = []
    if stopped_at is not None:
        moments.append(stopped_at + limits.uploadTimeoutSeconds)
        if stopped_reason == Reason.STOPPED.value:
            grace = limits.disruptionGraceSeconds
            moments.append(stopped_at + grace - min(_LAUNCHER_KILL_SECONDS, grace * _LAUNCHER_KILL_SHARE))
    if terminated_at is not None:
        moments.append(terminated_at + limits.disruptionGraceSeconds)
    return min(moments, default=None)


def upload_until(moment: float | None, limits: Limits) -> float | None:
    """When uploading gives way to writing parts: 5 s before the last moment, less where the limits are short."""
    if moment is None:
        return None
    shortest = min(limits.uploadTimeoutSeconds, limits.disruptionGraceSeconds)
    return moment - min(PARTS_SECONDS, shortest / 4)
