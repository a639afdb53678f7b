"""Indexing traces in helper processes, bounded in memory, time and size of the answer."""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from shapetrace_traces.index import index_trace

from shapetrace_collector.budget import Budget

LOG = logging.getLogger("shapetrace.collector")

MAX_INDEX_BYTES = 256 * 1024
"""An index travels in a line of ``uploaded.jsonl`` on the memory-backed spool and in the part; usual are a few kB."""
FIRST_SECONDS = 30.0
SECONDS_PER_MEGABYTE = 1.0
"""A plain JSON reader does 19 MB/s on a quiet core: this leaves room for a machine that is busy with the engine."""
LONGEST_SECONDS = 300.0
MEMORY_PER_BYTE = 16
"""Of the trace. A plain JSON reader takes 5.5 times it, bytes and text are held beside, and odd JSON takes more."""
FIRST_MEMORY_BYTES = 32 * 1024**2
LARGE_RAW_BYTES = 16 * 1024**2
"""After a trace above this a worker is ended: an interpreter hardly gives memory back."""
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


def worker_count() -> int:
    """One per two cores, four at most."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))


class Indexer:
    """A few worker processes, started when they are needed and started again when they die."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        workers: int | None = None,
        memory_bytes: int | None = None,
        command: Sequence[str] = (sys.executable, "-m", "shapetrace_collector.index_worker"),
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        count = workers or worker_count()
        self._command = list(command)
        self._first_seconds = first_seconds
        # no credential, nothing of ours: only what starts a Python
        kept = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "HOME", "USER", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
        self._environment = {name: environment[name] for name in kept if name in environment}
        self._memory = Budget(memory_bytes or memory_budget_bytes())
        self._workers: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()
        for _ in range(count):
            self._workers.put(None)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="index")
        self._hurry = threading.Event()

    def start(self, path: Path, raw_bytes: int) -> Callable[[], dict[str, Any]]:
        """Begin; the function that comes back waits for the index, and never raises."""
        return self._pool.submit(self._index, path, raw_bytes).result

    def hurry(self, on: bool) -> None:
        """While the time is over, indexes under way, and those to come, end with an error at once."""
        (self._hurry.set if on else self._hurry.clear)()

    def close(self) -> None:
        """End the workers."""
        self._hurry.set()
        self._pool.shutdown(wait=True)
        while not self._workers.empty():
            _end(self._workers.get())

    def _index(self, path: Path, raw_bytes: int) -> dict[str, Any]:
        with self._memory.take(FIRST_MEMORY_BYTES + MEMORY_PER_BYTE * raw_bytes) as memory_bytes:
            worker = self._workers.get()
            answer: dict[str, Any] | None = None
            try:
                if self._hurry.is_set():
                    return failed("no time was left to index the trace")
                if worker is None or worker.poll() is not None:
                    _end(worker)
                    worker = self._spawn()
                limit = min(LONGEST_SECONDS, self._first_seconds + SECONDS_PER_MEGABYTE * raw_bytes / 1e6)
                answer = self._ask(worker, {"path": str(path), "memoryBytes": memory_bytes}, limit)
                if answer is None:
                    LOG.warning("%s is not indexed: the indexer died, or needed more than %.0f s", path.name, limit)
                    return failed("the trace could not be indexed within the collector's time and memory")
                return answer
            except OSError as error:
                return failed(f"the indexer does not run: {error}")
            finally:
                if answer is None or raw_bytes > LARGE_RAW_BYTES:
                    _end(worker)
                    worker = None
                self._workers.put(worker)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own module
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment, bufsize=0
        )

    def _ask(
        self, worker: subprocess.Popen[bytes], request: Mapping[str, Any], limit_seconds: float
    ) -> dict[str, Any] | None:
        """The answer; None where the worker is of no more use."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        end, answer = monotonic() + limit_seconds, bytearray()
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([worker.stdout], [], [], _SLICE_SECONDS)
            if self._hurry.is_set() or monotonic() > end or len(answer) > MAX_INDEX_BYTES:
                return None
            if ready:
                block = worker.stdout.read(65536)
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
