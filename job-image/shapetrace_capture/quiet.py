"""Wait, a short bounded time, until no other thread of this process is at work.

The tracer must not start while a thread of torch is about to enter Python or to leave it (:mod:`tracer`): such a thread
is either running, or it has a thread state without a frame and waits for the interpreter's lock.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

WAIT_SECONDS = 0.25
"""Several turns of a scheduler with four processes a core; a thread at rest needs none of it."""
WAIT_AGAIN_SECONDS = 0.02
"""The limit after a wait in vain: an engine with a thread that always spins would pay the whole for each shape."""
POLL_SECONDS = 0.001

TASKS = Path("/proc/self/task")


def is_busy() -> bool:
    """Whether a thread besides this one runs or waits for a CPU, or is on its way into Python or out of it.

    Where there is no ``/proc`` only the latter is seen.
    """
    return _states_without_frame() > 0 or _running(TASKS)


def _states_without_frame() -> int:
    """Thread states that run no Python code: those of threads that are not Python's own, for the moment of a call."""
    exceptions = getattr(sys, "_current_exceptions", None)
    return 0 if exceptions is None else len(exceptions()) - len(sys._current_frames())


def _running(tasks: Path) -> bool:
    own = str(threading.get_native_id())
    with suppress(OSError):
        for task in tasks.iterdir():
            if task.name != own and _state(task) in (b"R", b"D"):
                return True
    return False


def _state(task: Path) -> bytes:
    """``R``, ``S``, ``D`` …; empty for a thread that ended meanwhile. The name before it may hold any character."""
    with suppress(OSError):
        return (task / "stat").read_bytes().rpartition(b") ")[2][:1]
    return b""


class Quiet:
    """Waits for a quiet moment."""

    def __init__(
        self, clock: Callable[[], float], sleep: Callable[[float], None], busy: Callable[[], bool] = is_busy
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._busy = busy
        self._limit_seconds = WAIT_SECONDS

    def wait(self) -> bool:
        """Whether there was one within the limit. Each sleep lets go of the interpreter's lock: others move on."""
        end = self._clock() + self._limit_seconds
        while self._busy():
            if self._clock() >= end:
                self._limit_seconds = WAIT_AGAIN_SECONDS
                return False
            self._sleep(POLL_SECONDS)
        self._limit_seconds = WAIT_SECONDS
        return True
