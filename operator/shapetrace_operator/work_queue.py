"""One queue of keys for all that happens: a key is worked on by one worker at a time, and never lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 15.0
"""An API server that restarts is away for some seconds: the work goes on soon after it is back."""

log = logging.getLogger(__name__)


class WorkQueue(Generic[Key]):
    """Keys that wait, run, or are due later.

    ``jitter`` gives a factor for back-off times, so that many keys that failed together do not return together.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._jitter = jitter

    def add(self, key: Key) -> None:
        """Work on ``key`` soon. While it is worked on, once more afterwards."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: Key, delay_seconds: float) -> None:
        """Work on ``key`` after a while. The earlier of two due times holds; what comes before does not cancel it."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, delay_seconds)
        pending = self._timers.get(key)
        if pending is not None:
            if pending.when() <= due:
                return
            pending.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def forget(self, key: Key) -> None:
        """Drop timers and the memory of failures of a key that no longer exists."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    async def work(self, reconcile: Callable[[Key], Awaitable[float | None]]) -> None:
        """Run for ever: take a key, reconcile it, mind when it is due again. Errors are logged and tried again.

        ``reconcile`` answers the seconds until the key is due again by the clock alone, None for not at all.
        """
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._running.add(key)
            try:
                self._drop_timer(key)
                wake_seconds = await reconcile(key)
                self._failures.pop(key, None)
                if wake_seconds is not None:
                    self.add_after(key, wake_seconds)
            except Exception as error:
                self._back_off(key, error)
            finally:
                self._running.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    def _drop_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _back_off(self, key: Key, error: Exception) -> None:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay_seconds = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(count, 10)) * self._jitter()
        log.warning("%s: %s: %s; again in %.1f s", key, type(error).__name__, error, delay_seconds)
        self.add_after(key, delay_seconds)
