"""The process that indexes traces for the collector: one request a line on stdin, one answer a line on stdout.

A trace is parsed here and not in the collector because it is hostile input of any size: this process holds no
credential, has a limit on its memory, and can be ended when it takes too long. It also keeps a long parse from holding
up ``GET /progress``. It ends when its stdin does, so it cannot outlive the collector.
"""

from __future__ import annotations

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
            return dict(index_trace(stream.read()))
    except MemoryError:
        return failed("the trace is too large to be indexed in the collector's memory")
    except Exception as error:  # whatever the trace makes of the parser, the trace itself is still worth keeping
        return failed(shorten(f"{type(error).__name__}: {error}"))


def to_line(index: dict[str, Any]) -> bytes:
    """One line of strict JSON: a trace may hold half surrogate pairs and numbers that JSON does not know."""
    try:
        return json.dumps(index, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
    except (ValueError, RecursionError):
        return json.dumps(failed("what the trace holds cannot be written as JSON")).encode() + b"\n"


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the requests end."""
    for line in requests:
        answers.write(to_line(index_file(Path(json.loads(line)["path"]))))
        answers.flush()


def main(memory_bytes: int) -> None:
    """Limit this process, then serve."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    os.nice(_NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to the log, not between the answers
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
