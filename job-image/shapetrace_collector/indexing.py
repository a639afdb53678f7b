"""Indexing traces in helper processes while they are compressed, bounded in memory, time and size of the answer."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from shapetrace_traces.index import index_trace

LOG = logging.getLogger("shapetrace.collector")

MAX_INDEX_BYTES = 256 * 1024
"""An index travels in a line of ``uploaded.jsonl`` on the memory-backed spool and in the part; usual are a few kB."""
FIRST_SECONDS = 30.0
SECONDS_PER_MEGABYTE = 0.5
"""The reader does 300 MB/s on a quiet core, 20 MB/s in odd layouts: room for a machine that is busy with the engine."""
LONGEST_SECONDS = 300.0
WORKER_BYTES = 256 * 1024**2
"""What a worker may take beyond its start, whatever the trace's size: 30 MB are usual, the rest is for odd traces."""
LENGTH_BYTES = 4
"""Before each block that goes to a worker; a block of length 0 ends the trace."""
_PIPE_BYTES = 1024 * 1024
_SLICE_SECONDS = 0.25
_NO_LIMIT_BYTES = 4 * 1024**3
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def failed(error: str) -> dict[str, Any]:
    """The index of a trace that could not be indexed, with all fields: the trace is stored all the same."""
    return {**index_trace(b""), "error": error}


def memory_budget_bytes(files: Sequence[str] = _CGROUP_LIMITS) -> int:
    """What all workers may take together: half of the container's limit; of 4 GiB where there is none."""
    for name in files:
        try:
            return min(_NO_LIMIT_BYTES, int(Path(name).read_text())) // 2
        except (OSError, ValueError):  # cgroup v2 spells no limit "max"
            continue
    return _NO_LIMIT_BYTES // 2


def worker_count(budget_bytes: int | None = None) -> int:
    """One per two cores, four at most, as far as the memory goes."""
    room = (memory_budget_bytes() if budget_bytes is None else budget_bytes) // WORKER_BYTES
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2, room))


class Indexer:
    """A few worker processes, started when they are needed and started again when they die."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        workers: int | None = None,
        worker_bytes: int = WORKER_BYTES,
        command: Sequence[str] = (sys.executable, "-m", "shapetrace_collector.index_worker"),
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self._command = [*command, str(worker_bytes)]
        self._first_seconds = first_seconds
        # no credential, nothing of ours: only what starts a Python
        kept = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "HOME", "USER", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
        self._environment = {name: environment[name] for name in kept if name in environment}
        self._workers: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()
        for _ in range(workers or worker_count()):
            self._workers.put(None)
        self._hurry = threading.Event()

    def start(self, name: str, raw_bytes: int) -> Indexing:
        """Begin a trace, as soon as a worker is free. Never raises."""
        while not self._hurry.is_set():
            try:
                worker = self._workers.get(timeout=_SLICE_SECONDS)
            except queue.Empty:
                continue
            limit = min(LONGEST_SECONDS, self._first_seconds + SECONDS_PER_MEGABYTE * raw_bytes / 1e6)
            indexing = Indexing(name, self._workers, limit, self._hurry)
            try:
                indexing.worker = worker if worker is not None and worker.poll() is None else self._spawn(worker)
            except OSError as error:
                indexing.give_up(f"the indexer does not run: {error}")
            return indexing
        indexing = Indexing(name, None, 0, self._hurry)
        indexing.give_up("no time was left to index the trace")
        return indexing

    def hurry(self, on: bool) -> None:
        """While the time is over, indexes under way, and those to come, end with an error at once."""
        (self._hurry.set if on else self._hurry.clear)()

    def close(self) -> None:
        """End the workers that are free; the others end when they are given back or with this process."""
        self._hurry.set()
        while not self._workers.empty():
            _end(self._workers.get())

    def _spawn(self, dead: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes]:
        _end(dead)
        worker = subprocess.Popen(  # noqa: S603 - our own module
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment, bufsize=0
        )
        assert worker.stdin is not None
        os.set_blocking(worker.stdin.fileno(), False)
        with contextlib.suppress(OSError):  # only slower where the user may have no larger pipe
            fcntl.fcntl(worker.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return worker


class Indexing:
    """One trace on its way to a worker. No method raises, and none takes longer than the trace's time."""

    def __init__(
        self,
        name: str,
        workers: queue.SimpleQueue[subprocess.Popen[bytes] | None] | None,
        limit_seconds: float,
        hurry: threading.Event,
    ) -> None:
        self.worker: subprocess.Popen[bytes] | None = None
        self._name = name
        self._workers = workers
        self._limit_seconds = limit_seconds
        self._end = monotonic() + limit_seconds
        self._hurry = hurry
        self._index: dict[str, Any] | None = None

    def feed(self, block: bytes) -> None:
        """The next block of the trace's text, not empty."""
        if self._index is None and not (self._send(len(block).to_bytes(LENGTH_BYTES, "big")) and self._send(block)):
            self._lose()

    def result(self) -> dict[str, Any]:
        """The index, when all blocks were fed; the worker is free for the next trace then."""
        if self._index is None:
            answer = self._receive() if self._send(bytes(LENGTH_BYTES)) else None
            if answer is None:
                self._lose()
            else:
                self._index = answer
                if answer.get("error"):  # a bad trace may have left it without memory: not used again
                    _end(self.worker)
                    self.worker = None
        self._give_back()
        assert self._index is not None
        return self._index

    def close(self) -> None:
        """Give the worker back; one that waits for more of this trace is of no more use."""
        if self._workers is not None:
            _end(self.worker)
            self.worker = None
        self._give_back()

    def give_up(self, error: str) -> None:
        """Without a worker, or without one that still works."""
        _end(self.worker)
        self.worker = None
        self._index = failed(error)

    def _lose(self) -> None:
        LOG.warning("%s is not indexed: the indexer died, or needed over %.0f s", self._name, self._limit_seconds)
        self.give_up("the trace could not be indexed within the collector's time and memory")

    def _give_back(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.put(self.worker)

    @property
    def _is_late(self) -> bool:
        return self._hurry.is_set() or monotonic() > self._end

    def _send(self, block: bytes) -> bool:
        assert self.worker is not None
        assert self.worker.stdin is not None
        rest, pipe = memoryview(block), self.worker.stdin.fileno()
        while rest:
            if self._is_late:
                return False
            if select.select([], [pipe], [], _SLICE_SECONDS)[1]:
                try:
                    rest = rest[os.write(pipe, rest) :]
                except BlockingIOError:
                    continue
                except OSError:  # it has ended
                    return False
        return True

    def _receive(self) -> dict[str, Any] | None:
        assert self.worker is not None
        assert self.worker.stdout is not None
        answer = bytearray()
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self.worker.stdout], [], [], _SLICE_SECONDS)
            if self._is_late or len(answer) > MAX_INDEX_BYTES:
                return None
            if ready:
                block = self.worker.stdout.read(65536)
                if not block:
                    return None
                answer += block
        try:
            value = json.loads(answer)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def _end(worker: subprocess.Popen[bytes] | None) -> None:
    if worker is None:
        return
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()
