"""Trying a store again, for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from shapetrace_traces.store import StoreUnreachable

T = TypeVar("T")

PATIENCE_SECONDS = 45.0
"""For one request. A restarting store is back within 20 s; a longer outage is left to the Job, which tries three times
more."""
FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 8.0


@dataclass(frozen=True)
class Patience:
    """Asks again while the store cannot be reached; a refusal is final at once."""

    clock: Callable[[], float]
    sleep: Callable[[float], None]
    limit_seconds: float = PATIENCE_SECONDS

    def __call__(self, call: Callable[[], T]) -> T:
        """The result of ``call``; the last :class:`StoreUnreachable` when the time is over."""
        end = self.clock() + self.limit_seconds
        delay_seconds = FIRST_DELAY_SECONDS
        while True:
            try:
                return call()
            except StoreUnreachable:
                if self.clock() + delay_seconds > end:
                    raise
            self.sleep(delay_seconds)
            delay_seconds = min(2 * delay_seconds, LONGEST_DELAY_SECONDS)
