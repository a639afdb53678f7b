"""Which traces are uploaded now: a few at once, bounded by bytes too, and only a single try while the store is away."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic

from shapetrace_contract.message import shorten
from shapetrace_traces.store import StoreDenied, StoreError, StoreUnreachable

from shapetrace_collector.deliver import Deliver, Refused
from shapetrace_collector.ledger import Ledger
from shapetrace_collector.record import Record

LOG = logging.getLogger("shapetrace.collector")

CONCURRENCY = 4
"""Uploads at once. Past 8 nothing is gained on a local network, and the engine's cores are not ours."""
MAX_ACTIVE_BYTES = 256 * 1024 * 1024
"""Raw bytes at work at once; a larger trace goes alone."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 5.0
MAX_ERRORS = 5
"""Times that one trace may fail by itself (it cannot be read, the store does not take it) before it counts as lost."""


@dataclass
class Job:
    """One trace to deliver."""

    ledger: Ledger
    record: Record
    raw_bytes: int
    errors: int = 0


class UploadQueue:
    """Jobs in order of capture. All methods but the workers' run in one thread."""

    def __init__(self, deliver: Deliver, wake: threading.Event, clock: Callable[[], float] = monotonic) -> None:
        self._deliver = deliver
        self._wake = wake
        self._clock = clock
        self._waiting: deque[Job] = deque()
        self._active: dict[Future[None], Job] = {}
        self._pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="upload")
        self._pause_seconds = 0.0
        self._resume_at = 0.0
        self.trouble: str | None = None
        """Why uploads wait, in a person's words; None while they do not."""

    def add(self, ledger: Ledger, record: Record) -> None:
        """Queue a trace."""
        try:
            size = os.lstat(ledger.folder / str(record.file)).st_size
        except OSError:
            size = 0  # the delivery says what is wrong with it
        self._waiting.append(Job(ledger, record, size))

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way."""
        return not self._waiting and not self._active

    @property
    def busy(self) -> bool:
        """Something is under way."""
        return bool(self._active)

    def pump(self, start: bool = True) -> None:
        """Take in what has ended, and start what may be started."""
        for future in [future for future in self._active if future.done()]:
            self._ended(self._active.pop(future), future)
        limit = 1 if self._pause_seconds else CONCURRENCY
        while start and self._waiting and len(self._active) < limit and self._clock() >= self._resume_at:
            active_bytes = sum(job.raw_bytes for job in self._active.values())
            if self._active and active_bytes + self._waiting[0].raw_bytes > MAX_ACTIVE_BYTES:
                return
            job = self._waiting.popleft()
            future = self._pool.submit(self._work, job)
            self._active[future] = job
            future.add_done_callback(lambda _: self._wake.set())

    def _work(self, job: Job) -> None:
        begun = self._clock()
        line = self._deliver(job.ledger.folder, job.record)
        if job.ledger.delivered(job.record, line):
            LOG.info("stored %s %d bytes in %.2f s", line["key"], line["bytes"], self._clock() - begun)

    def _ended(self, job: Job, future: Future[None]) -> None:
        error = future.exception()
        if error is None:
            if self._pause_seconds:
                LOG.info("the store answers again")
            self._pause_seconds, self.trouble = 0.0, None
            return
        if isinstance(error, StoreUnreachable | StoreDenied):
            # to the back: where the store takes all but one trace, that one must not hold up the others
            self._waiting.append(job)
            if self._clock() < self._resume_at:
                return  # one of several that failed together
            self._pause_seconds = min(LONGEST_PAUSE_SECONDS, self._pause_seconds * 2 or FIRST_PAUSE_SECONDS)
            self._resume_at = self._clock() + self._pause_seconds
            self.trouble = shorten(f"uploads wait: {error}")
            LOG.warning("%s; next try in %.1f s", self.trouble, self._pause_seconds)
            return
        job.errors += 1
        if isinstance(error, OSError | StoreError) and job.errors < MAX_ERRORS:
            self._waiting.append(job)
            self._resume_at = self._clock() + FIRST_PAUSE_SECONDS
            return
        reason = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        job.ledger.refused(job.record, reason)
        LOG.error("lost %s: %s", job.record.key, shorten(reason))

    def abandon(self) -> None:
        """Let go of what is under way; its results no longer count. Threads end with the process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
