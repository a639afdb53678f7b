"""Whether a window records Python stacks.

A trace is worth more than its stacks: in doubt it goes without them, and its record says why.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from shapetrace_capture import decoy, tracer
from shapetrace_capture.beside import Beside
from shapetrace_capture.quiet import Quiet

NONE = "none"
ALL = "all"

KEPT_WINDOWS = 8
"""How many windows the profiler's state outlives its own: a thread of torch holds it for microseconds, or, waiting for
a CPU and for the interpreter's lock, for some tenths of a second; and the next window waits for a quiet moment."""


class Stacks:
    """Of one process. ``asked`` says whether the run wants stacks on this rank."""

    def __init__(self, asked: bool, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.asked = asked
        self._quiet = Quiet(clock, sleep)
        self._beside = Beside()
        self._fragile = False
        self._what = ALL if asked else NONE
        self._given_up: str | None = None
        self._kept: deque[Any] = deque(maxlen=KEPT_WINDOWS)

    def to_json(self) -> str:
        """``stacks`` of rank and process record."""
        return self._what if self._given_up is None else f"{NONE} any more: {self._given_up}"

    def prepare(self, torch: Any) -> None:
        """Work around what this version is known for; call once, before the first window."""
        if not self.asked:
            return
        self._fragile = tracer.is_fragile(str(torch.__version__))
        try:
            if decoy.is_needed(str(torch.__version__), sys.version_info[:2]):
                self._what = decoy.NO_MODULE_FRAMES
                self._beside.opening()
                decoy.show(torch, self.settle)
                self._beside.closed()
        except Exception as error:
            self.give_up(f"the workaround for this torch failed: {type(error).__name__}: {error}")

    def refusal(self) -> str | None:
        """None if the next window may record stacks, or if nobody asked; otherwise why it may not."""
        if not self.asked:
            return None
        if self._given_up is None and sys.getprofile() is not None:
            return "another profile function is set in this thread; torch would remove it"
        if self._given_up is None and tracer.sees_stray_return():
            self.give_up("Python went on tracing after a profiler had stopped")
        if self._given_up is None and self._fragile and self._beside.ran():
            return (
                "another Python thread ran inside an earlier capture, and this torch loses a trace in which its call "
                "ends; torch 2.8 does not"
            )
        return self._given_up

    def give_up(self, reason: str) -> None:
        """Record no stacks in this process any more; the first reason stays."""
        self._given_up = self._given_up or reason

    @property
    def has_given_up(self) -> bool:
        return self._given_up is not None

    def settle(self) -> None:
        """Call between the profiler's preparation and its start."""
        self._quiet.wait()

    def opening(self) -> None:
        """Call before a window with stacks opens."""
        self._beside.opening()

    def closed(self, held: Any) -> None:
        """Call after it closed; ``held`` keeps the profiler's state alive (:class:`Window`), and is let go here later:
        by this thread, which has the interpreter's lock."""
        self._beside.closed()
        self._kept.append(held)
