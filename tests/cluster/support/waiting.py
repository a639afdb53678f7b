"""Wait for a condition, with a deadline and a message that says what was seen instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_SECONDS = 0.2


class NotSeenError(AssertionError):
    """The condition did not come true in time."""


def wait_until(
    what: str, probe: Callable[[], T | bool | None], timeout_seconds: float, seen: Callable[[], object] | None = None
) -> T:
    """Return the first true value of ``probe``; raise :class:`NotSeenError` with the last state after the deadline."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = probe()
        if value:
            return value  # type: ignore[return-value]
        if time.monotonic() > deadline:
            raise NotSeenError(f"{what}: not within {timeout_seconds} s" + (f"; seen: {seen()}" if seen else ""))
        time.sleep(POLL_SECONDS)  # the interval between two looks, not a wait for an effect
