"""Python threads beside the one that captures: did one of them run while a window was open?

Such a thread may have begun a C call (``time.sleep``, a lock) inside that window. If the call ends inside a later one,
an old torch loses that window (:mod:`tracer`). Threads that slept through all windows are harmless.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

TASKS = Path("/proc/self/task")


def run_nanoseconds() -> dict[int, int | None]:
    """The time on a CPU of each other Python thread, by its identity; None where it cannot be told."""
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    own = threading.get_ident()
    return {ident: _run_nanoseconds(native.get(ident)) for ident in sys._current_frames() if ident != own}


def _run_nanoseconds(native: int | None) -> int | None:
    try:
        return int((TASKS / str(native) / "schedstat").read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        return None


class Beside:
    """Remembers which threads ran inside a window."""

    def __init__(self, look: Callable[[], Mapping[int, int | None]] = run_nanoseconds) -> None:
        self._look = look
        self._before: Mapping[int, int | None] = {}
        self._ran: set[int] = set()

    def opening(self) -> None:
        """Call before a window opens."""
        self._before = self._look()

    def closed(self) -> None:
        """Call after it closed. A thread that began inside it ran; so did one whose time cannot be told."""
        for ident, spent in self._look().items():
            if spent is None or self._before.get(ident) != spent:
                self._ran.add(ident)

    def ran(self) -> bool:
        """Whether a thread that is still alive ran inside a window."""
        self._ran &= self._look().keys()
        return bool(self._ran)
