"""What is known of one rank: its records, what is stored, and the counters that follow from both."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shapetrace_contract import spool
from shapetrace_contract.message import shorten
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.reasons import RankState

from shapetrace_collector.files import Tail, Whole
from shapetrace_collector.record import Record, is_trace_name, parse

LOG = logging.getLogger("shapetrace.collector")

MAX_RECORDS = 20_000
"""Records of a rank that are taken in, well above any product of shapes that is accepted; more are not looked at."""

_UNREADABLE: Mapping[str, Any] = {"error": "a line that is no JSON object, or lines beyond those that are read"}
"""In the place of a plan line that nobody can read: what it planned is not known, so the rank cannot be complete."""


@dataclass
class Ledger:
    """One rank. ``refresh`` is called by one thread, ``delivered`` and ``refused`` by those that upload."""

    rank: int
    folder: Path
    records: list[Record] = field(default_factory=list)
    stored: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """File name -> its line of ``uploaded.jsonl``."""
    refusals: dict[str, str] = field(default_factory=dict)
    """File name -> why it can never be stored."""
    plan: list[Mapping[str, Any]] = field(default_factory=list)
    record: Mapping[str, Any] | None = None
    done: Mapping[str, Any] | None = None
    ended: bool = False
    """The engine is gone: no further record comes."""
    closed: bool = False
    """The part is being written: what arrives from now on is not in it."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._captures = Tail(self.folder / spool.CAPTURES)
        self._plans = Tail(self.folder / spool.PLAN)
        # a script may start one process after the other, each of which writes these two again
        self._done = Whole(self.folder / spool.DONE)
        self._rank = Whole(self.folder / spool.RANK)
        self._files: set[str] = set()
        self._keys: set[str] = set()
        self._warned: set[str] = set()
        uploaded = self._lines(spool.UPLOADED, Tail(self.folder / spool.UPLOADED)) if self.exists else []
        self._resumed = {str(line.get("file")): line for line in uploaded if line is not None and _is_whole(line)}

    @property
    def exists(self) -> bool:
        """Whether the rank has a folder."""
        return self.folder.is_dir() and not self.folder.is_symlink()

    def refresh(self, ended: bool) -> list[Record]:
        """Read what is new; the records whose traces are to be delivered. ``ended`` was read before this call."""
        if not self.exists:
            with self._lock:
                self.ended = ended
            return []
        # done.json before the lines: it tells how many there are
        done = self._object(spool.DONE, self._done)
        record = self._object(spool.RANK, self._rank)
        lines = [parse(self.rank, line) for line in self._lines(spool.CAPTURES, self._captures)]
        plan = [_UNREADABLE if line is None else line for line in self._lines(spool.PLAN, self._plans)]
        with self._lock:
            self.record, self.done, self.ended = record, done, ended
            if plan and len(self.plan) < MAX_RECORDS:
                over = len(self.plan) + len(plan) > MAX_RECORDS
                self.plan += [*plan[: MAX_RECORDS - len(self.plan) - over], *([_UNREADABLE] * over)]
            lines = lines[: MAX_RECORDS - len(self.records)]
            return [line for line in lines if self._add(line)]

    def _add(self, record: Record) -> bool:
        """Take a record in; whether its trace is still to be delivered."""
        if record.file is None:
            self.records.append(record)
            return False
        if record.file in self._files or record.key in self._keys:
            reason = "an earlier record of this rank has the same file or key"
            self.records.append(parse(self.rank, {**record.line, "file": None, "error": reason}))
            return False
        self.records.append(record)
        self._files.add(record.file)
        self._keys.add(record.key)
        line = self._resumed.get(record.file)
        if line is not None and line["key"] == record.key:
            self.stored[record.file] = line
            (self.folder / record.file).unlink(missing_ok=True)  # left by a collector that was killed before this
            return False
        return True

    def _object(self, name: str, file: Whole) -> Mapping[str, Any] | None:
        try:
            return file.read()
        except (OSError, ValueError) as error:
            self._warn(name, error)
            return None

    def _lines(self, name: str, tail: Tail) -> list[dict[str, Any] | None]:
        try:
            return tail.read()
        except OSError as error:
            self._warn(name, error)
            return []

    def _warn(self, name: str, error: Exception) -> None:
        if name not in self._warned:
            self._warned.add(name)
            LOG.warning("rank %d: %s cannot be read or written: %s", self.rank, name, error)

    def delivered(self, record: Record, line: Mapping[str, Any]) -> bool:
        """Note a stored trace and remove its file, in this order; False where the part is being written already."""
        with self._lock:
            if self.closed:
                return False
            if not self._note(line):
                # a full spool: only taking the stored trace off it makes room for the note
                (self.folder / str(record.file)).unlink(missing_ok=True)
                self._note(line)
            self.stored[str(record.file)] = line
        (self.folder / str(record.file)).unlink(missing_ok=True)
        return True

    def _note(self, line: Mapping[str, Any]) -> bool:
        try:
            spool.append_line(self.folder / spool.UPLOADED, line)
        except OSError as error:
            self._warn(spool.UPLOADED, error)
            return False
        return True

    def refused(self, record: Record, reason: str) -> None:
        """Note a trace that can never be stored; its file stays."""
        with self._lock:
            self.refusals[str(record.file)] = shorten(reason)

    def close(self, closed: bool) -> None:
        """From now on ``delivered`` changes nothing (or does again)."""
        with self._lock:
            self.closed = closed

    @property
    def missing(self) -> int:
        """Records that have no object: traces not stored, and records that ``done.json`` counts but nobody saw."""
        with self._lock:
            return self._missing()

    def _missing(self) -> int:
        unstored = sum(1 for record in self.records if record.file is not None and record.file not in self.stored)
        return unstored + self._unseen()

    def _unseen(self) -> int:
        total = (self.done or {}).get("records")
        return max(0, total - len(self.records)) if isinstance(total, int) else 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to deliver of what is recorded so far."""
        with self._lock:
            return all(
                record.file is None or record.file in self.stored or record.file in self.refusals
                for record in self.records
            )

    def orphans(self) -> list[str]:
        """Trace files without a record."""
        if not self.exists:
            return []
        return sorted(
            path.name for path in self.folder.iterdir() if is_trace_name(path.name) and path.name not in self._files
        )

    def progress(self, stopped: Mapping[str, Any] | None, trouble: str | None) -> RankProgress:
        """The counters at one instant. ``trouble`` says why uploads wait."""
        with self._lock:
            captured = [record for record in self.records if record.file is not None]
            failed = sum(1 for record in self.records if record.error is not None or record.file in self.refusals)
            state, message = self._state(stopped)
            return RankProgress(
                rank=self.rank,
                state=state.value,
                expected=expected(self.plan) if self.plan else self._expected_without_plan(),
                captured=len(captured),
                uploaded=len(self.stored),
                failed=failed,
                bytes=sum(int(line["bytes"]) for line in self.stored.values()),
                lastShape=captured[-1].tag if captured else None,
                message=shorten(message) if message else trouble,
            )

    def _expected_without_plan(self) -> int | None:
        """0 for a rank that the run does not ask for (``capture.ranks``), and for one that is done and says why it has
        no graphs: neither will write a plan."""
        is_asked = self.record is None or self.record.get("asked") is not False
        is_eager = self.done is not None and isinstance(self.done.get("eager"), str)
        return 0 if is_eager or not is_asked else None

    def _state(self, stopped: Mapping[str, Any] | None) -> tuple[RankState, str | None]:
        missing = self._missing()
        if self.done is not None or self.ended:
            if missing and not self.closed:
                return RankState.DRAINING, None
            if missing:
                return RankState.FAILED, f"{missing} records could not be stored"
            if self.done is None:
                why = (stopped or {}).get("message") or (stopped or {}).get("reason")
                return RankState.FAILED, str(why or "the engine ended before this rank was done")
            if self.done.get("ok") is True:
                return RankState.DONE, None
            return RankState.FAILED, str(self.done.get("reason") or "the rank gave no reason")
        if self.plan:
            return RankState.CAPTURING, None
        return (RankState.LOADING if self.exists else RankState.WAITING), None


def _is_whole(line: Mapping[str, Any]) -> bool:
    """Whether a line of ``uploaded.jsonl`` says all that a part needs."""
    texts, numbers = ("key", "sha256", "rawSha256"), ("bytes", "rawBytes")
    return all(isinstance(line.get(name), str) for name in texts) and all(
        isinstance(line.get(name), int) for name in numbers
    )


def expected(plan: Iterable[Mapping[str, Any]]) -> int:
    """Shapes in a rank's plan lines."""
    return sum(len(line["shapes"]) for line in plan if isinstance(line.get("shapes"), list))
