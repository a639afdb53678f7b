"""Room in the spool: wait a bounded time for the collector to make some, then say that there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from shapetrace_contract import spool

MAX_RESERVE_BYTES = 1024**3
"""A tenth of the spool is kept free, but never more than this: where a local run's spool lies on a whole disk, a tenth
of it may be more than anybody has left."""

POLL_SECONDS = 0.1
"""An upload takes about 60 ms, so room appears in steps of about this length."""


class Room:
    """Whether one more trace may be written below ``folder``."""

    def __init__(
        self,
        folder: Path,
        wait_seconds: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        usage: Callable[[Path], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._folder = folder
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._sleep = sleep
        self._usage = usage
        self._gave_up = False

    def wait(self) -> str | None:
        """None as soon as there is room; after ``wait_seconds`` without it, why there is none.

        After one wait in vain later calls look only once until there is room again: otherwise every further shape
        would hold the engine (and all ranks that wait for it in a collective) for as long.
        """
        end = self._clock() + (0.0 if self._gave_up else self._wait_seconds)
        while (fault := self._fault()) is not None:
            if self._clock() >= end:
                self._gave_up = True
                return fault
            self._sleep(POLL_SECONDS)
        self._gave_up = False
        return None

    def _fault(self) -> str | None:
        usage = self._usage(self._folder)
        free_bytes = usage.f_bavail * usage.f_frsize
        total_bytes = usage.f_blocks * usage.f_frsize
        needed_bytes = max(spool.RESERVE_BYTES, min(total_bytes // 10, MAX_RESERVE_BYTES))
        if free_bytes >= needed_bytes:
            return None
        return (
            f"spool full: {free_bytes >> 20} MiB of {total_bytes >> 20} MiB are free and {needed_bytes >> 20} MiB are "
            "kept for small files; the collector does not keep up, or the spool is too small"
        )
