"""The process that indexes traces for the collector: a trace in blocks on stdin, its index as a line on stdout.

A trace is parsed here and not in the collector because it is hostile input of any size: this process holds no
credential, opens no file, has a limit on its memory, and can be ended when it takes too long. It also keeps a long
parse from holding up ``GET /progress``. It ends when its stdin does, so it cannot outlive the collector.
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
from shapetrace_traces.index import index_stream

from shapetrace_collector.indexing import LENGTH_BYTES, failed

_NICE = 10
"""The engine is being timed: it goes first."""


class Blocks:
    """One trace of several in a stream; reads like a file of its own."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left_bytes = 0
        self.is_over = False

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes, none at the trace's end."""
        if self.is_over:
            return b""
        if not self._left_bytes:
            self._left_bytes = int.from_bytes(self._exactly(LENGTH_BYTES), "big")
            if not self._left_bytes:
                self.is_over = True
                return b""
        block = self._exactly(min(count, self._left_bytes))
        self._left_bytes -= len(block)
        return block

    def skip(self) -> None:
        """Go to the trace's end."""
        while self.read(1024 * 1024):
            pass

    def _exactly(self, count: int) -> bytes:
        block = self._stream.read(count)
        if len(block) < count:
            raise EOFError("the collector has ended")
        return block


def index_blocks(blocks: Blocks) -> dict[str, Any]:
    """The index of a trace, with ``error`` set where it has none."""
    try:
        return dict(index_stream(blocks))
    except MemoryError:
        pass  # what took it is freed only behind this block
    except Exception as error:  # whatever the trace makes of the parser, the trace itself is still worth keeping
        return failed(shorten(f"{type(error).__name__}: {error}"))
    return failed("the trace needs more memory than the collector has for indexing; index what is stored")


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
    while True:
        blocks = Blocks(requests)
        try:
            index = index_blocks(blocks)
            blocks.skip()
        except EOFError:
            return
        answers.write(to_line(index))
        answers.flush()
        gc.collect()


def main() -> None:
    """Stand back behind the engine, then serve."""
    os.nice(_NICE)
    gc.disable()  # a trace makes no cycles, and looking for them doubles the time that a JSON reader takes
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints goes to the log, not between the answers
    limit_memory(int(sys.argv[1]))
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
