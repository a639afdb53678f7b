"""One reading of one trace in a process of its own: ``python reading.py READER FILE`` prints seconds, memory, events.

Imports lie outside the time, which is the processor's: all readers have one thread, and a busy machine counts less. The
same file runs in the environment of each reader.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def unpacked() -> Callable[[Path], int]:
    """isal alone: the limit of every reader of ``.json.gz``."""
    from isal import isal_zlib

    def read(path: Path) -> int:
        unpacker = isal_zlib.decompressobj(wbits=31)
        with path.open("rb") as stream:
            while piece := stream.read(32 * 1024):
                while piece:
                    unpacker.decompress(piece, 256 * 1024)
                    piece = unpacker.unconsumed_tail
        return 0

    return read


def indexed() -> Callable[[Path], int]:
    """Ours: the whole index."""
    from shapetrace_traces.index import index_stream

    def read(path: Path) -> int:
        with path.open("rb") as stream:
            index = index_stream(stream)
        if index["error"] or index["gemmRows"]["aten::mm"].keys() != {"8"}:
            raise RuntimeError(f"the index is not right: {index}")
        return int(index["events"])

    return read


def loaded() -> Callable[[Path], int]:
    """``json.load``, with nothing made of it."""

    def read(path: Path) -> int:
        with gzip.open(path) as stream:
            return len(json.load(stream)["traceEvents"])

    return read


def hta() -> Callable[[Path], int]:
    """HolisticTraceAnalysis' parser with its default configuration: a table of the complete events."""
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    def read(path: Path) -> int:
        with contextlib.redirect_stdout(io.StringIO()):
            return len(parse_trace_dataframe(str(path), ParserConfig.get_default_cfg())[1])

    return read


def tracelens() -> Callable[[Path], int]:
    """TraceLens' loader: everything as Python objects."""
    from TraceLens import DataLoader

    return lambda path: len(DataLoader.load_data(str(path))["traceEvents"])


READERS: dict[str, Callable[[], Callable[[Path], int]]] = {
    "isal": unpacked, "shapetrace": indexed, "json": loaded, "hta": hta, "tracelens": tracelens,
}  # fmt: skip


def _status(key: str) -> int:
    """Of this process, in kB: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def main(name: str, path: Path) -> None:
    """Measure one reading."""
    read = READERS[name]()
    path.read_bytes()[:0]  # from the page cache, for everybody
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is now
    before = _status("VmRSS")
    begun = time.process_time()
    events = read(path)
    seconds = time.process_time() - begun
    found: dict[str, Any] = {"seconds": seconds, "events": events, "grownMB": (_status("VmHWM") - before) / 1024}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
