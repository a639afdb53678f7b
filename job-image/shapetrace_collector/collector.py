"""The collector: from the spool to the store, while the engine captures and until everything is told."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic, time
from typing import Any

from shapetrace_contract import spool
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.reading import read_object
from shapetrace_traces.store import Store

from shapetrace_collector.configuration import Configuration
from shapetrace_collector.deadline import last_moment, upload_until
from shapetrace_collector.deliver import Deliver, StartIndex
from shapetrace_collector.ending import Ending
from shapetrace_collector.ledger import Ledger
from shapetrace_collector.uploads import UploadQueue

LOG = logging.getLogger("shapetrace.collector")

POLL_SECONDS = 0.05
"""How often the spool is looked at: a few stat calls per rank. There is no inotify in the standard library."""
RETRY_SECONDS = 1.0
"""Between tries to write parts while the store is away."""
IDLE_SECONDS = 0.2
"""How often a drained collector looks whether it may end."""
LOG_TRIES = 3
LAST_UPLOADS_SECONDS = 2.0
"""For uploads under way when the time is over."""
MAX_STRAY_RANKS = 64
"""Rank folders beyond those that the run has: a script may set RANK as it likes, but not without bound."""


class Collector:
    """One pod's collector. ``run`` is the whole life; ``terminate`` and ``progress`` may be called from elsewhere."""

    def __init__(
        self,
        configuration: Configuration,
        store: Store,
        start_index: StartIndex,
        *,
        hurry: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self._configuration = configuration
        self._clock = clock
        self._wall_clock = wall_clock
        self._hurry = hurry
        self._wake = threading.Event()
        self._terminated_at: float | None = None
        self._stopped: Mapping[str, Any] | None = None
        self._stopped_at: float | None = None
        self._ledgers = {rank: self._ledger(rank) for rank in configuration.ranks}
        self._uploads = UploadQueue(Deliver(store, configuration.run, start_index), self._wake)
        self._ending = Ending(configuration, store)
        self._refresh()  # before anybody can ask for progress: a collector that starts again knows what it had

    def _ledger(self, rank: int) -> Ledger:
        return Ledger(rank, spool.rank_folder(self._configuration.spool, rank))

    def terminate(self) -> None:
        """SIGTERM: upload what the grace allows, write the parts, end. A second one changes nothing.

        Called by the signal's handler, in the middle of anything: it takes no lock, and the loops look by themselves.
        """
        if self._terminated_at is None:
            self._terminated_at = self._clock()

    def progress(self) -> list[RankProgress]:
        """The counters of this pod's ranks."""
        place, trouble = self._configuration, self._uploads.trouble
        entries = [ledger.progress(self._stopped, trouble) for _, ledger in sorted(self._ledgers.copy().items())]
        return [replace(entry, pod=place.pod, node=place.node) for entry in entries]

    def run(self, exit_when_drained: bool = False) -> bool:
        """Collect, drain, and stay until SIGTERM (or not); whether everything recorded is stored and listed."""
        while True:
            self._collect()
            written = self._write_parts()
            self._write_log()
            drained = self._ending.write_drained(self._ledgers)
            if written or exit_when_drained or self._terminated_at is not None:
                break
            # the launcher gave up; until the pod is ended, an answer of the store still saves everything
            self._reopen()
        while self._terminated_at is None and not exit_when_drained:
            self._pause(IDLE_SECONDS)
        self._uploads.abandon()
        return drained

    def _collect(self) -> None:
        """Until everything is stored and nothing more can come, or the time for uploads is over."""
        while True:
            self._refresh()
            self._uploads.pump()
            if self._over and self._uploads.idle and all(ledger.settled for ledger in self._ledgers.values()):
                return
            until = upload_until(self._moment(), self._configuration.limits)
            if until is not None and self._clock() >= until:
                LOG.warning("the time for uploads is over")
                self._finish_uploads()
                return
            self._pause(POLL_SECONDS)

    @property
    def _over(self) -> bool:
        """Whether the engine is gone."""
        return self._stopped is not None or self._terminated_at is not None

    def _moment(self) -> float | None:
        reason = (self._stopped or {}).get("reason")
        return last_moment(self._configuration.limits, self._stopped_at, reason, self._terminated_at)

    def _refresh(self) -> None:
        self._read_stopped()
        over = self._over
        self._discover()
        for ledger in self._ledgers.values():
            for record in ledger.refresh(over):
                self._uploads.add(ledger, record)

    def _read_stopped(self) -> None:
        if self._stopped is not None:
            return
        path = self._configuration.spool / spool.STOPPED
        try:
            stopped = read_object(path)
            # its age on disk, so that a collector that starts again does not count from anew
            age_seconds = 0.0 if stopped is None else max(0.0, self._wall_clock() - path.lstat().st_mtime)
            self._stopped_at = self._clock() - age_seconds
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read: %s", path.name, error)
            stopped = {"reason": None, "message": f"{path.name} cannot be read"}
            self._stopped_at = self._clock()
        if stopped is not None:
            LOG.info("the engine has stopped: %s", stopped.get("reason"))
        self._stopped = stopped

    def _discover(self) -> None:
        limit = len(self._configuration.ranks) + MAX_STRAY_RANKS
        for rank, folder in spool.rank_folders(self._configuration.spool).items():
            if rank not in self._ledgers and len(self._ledgers) < limit and not folder.is_symlink():
                self._ledgers = {**self._ledgers, rank: self._ledger(rank)}

    def _finish_uploads(self) -> None:
        self._hurry(True)
        end = self._clock() + LAST_UPLOADS_SECONDS
        while self._uploads.busy and self._clock() < end:
            self._pause(POLL_SECONDS)
            self._uploads.pump(start=False)

    def _write_parts(self) -> bool:
        """Write all parts, while somebody waits for them; whether all are written."""
        for ledger in self._ledgers.values():
            ledger.close(True)
        while True:
            written = [self._ending.write_part(ledger, self._stopped) for ledger in self._ledgers.values()]
            moment = self._moment()
            if all(written) or (moment is not None and self._clock() + RETRY_SECONDS >= moment):
                return all(written)
            self._pause(RETRY_SECONDS)

    def _write_log(self) -> None:
        """The log is worth a few tries, not the launcher's patience."""
        for _ in range(LOG_TRIES):
            moment = self._moment()
            if self._ending.write_log() or (moment is not None and self._clock() + RETRY_SECONDS >= moment):
                return
            self._pause(RETRY_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _reopen(self) -> None:
        self._stopped_at = None
        self._hurry(False)
        for ledger in self._ledgers.values():
            ledger.close(False)
