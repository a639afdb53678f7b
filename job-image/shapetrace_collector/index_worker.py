"""The process that indexes traces for the collector: one request a line on stdin, one answer a line on stdout.

A trace is parsed here and not in the collector because it is hostile input of any size: this process holds no
credential, has a limit on its memory, and can be ended when it takes too long. It also keeps a long parse from holding
up ``GET /progress``. It ends when its stdin does, so it cannot outlive the collector.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, BinaryIO

from shapetrace_contract.message import shorten
from shapetrace_traces.index import index_trace

from shapetrace_collector.files import open_regular
from shapetrace_collector.indexing import failed

_NICE = 10
"""The engine is being timed: it goes first."""


def index_file(path: Path) -> dict[str, Any]:
    """The index of a raw trace; with ``error`` set where it has none."""
    try:
        with open_regular(path) as stream:
            index = dict(index_trace(stream.read()))
    except MemoryError:
        return _too_large()
    except Exception as error:  # whatever the trace makes of the parser, the trace itself is still worth keeping
        return failed(shorten(f"{type(error).__name__}: {error}"))
    return _too_large() if str(index.get("error")).startswith("MemoryError") else index


def _too_large() -> dict[str, Any]:
    return failed("the trace needs more memory than the collector has for indexing; index what is stored instead")


def to_line(index: dict[str, Any]) -> bytes:
    """One line of strict JSON: a trace may hold half surrogate pairs and numbers that JSON does not know."""
    try:
        return json.dumps(index, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
    except (ValueError, RecursionError):
        return json.dumps(failed("what the trace holds cannot be written as JSON")).encode() + b"\n"


def limit_memory(more_bytes: int) -> None:
    """Allow this process so much more than it has now; a parser then gets a MemoryError, and nobody is killed."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes, hard))


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the requests end."""
    for line in requests:
        request = json.loads(line)
        limit_memory(request["memoryBytes"])
        answers.write(to_line(index_file(Path(request["path"]))))
        answers.flush()


def main() -> None:
    """Stand back behind the engine, then serve."""
    os.nice(_NICE)
    gc.disable()  # a trace makes no cycles, and looking for them doubles the time that a JSON reader takes
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to the log, not between the answers
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
