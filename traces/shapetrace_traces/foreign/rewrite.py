"""Writing a trace anew, in constant memory: whole, with metadata at its head, or the windows of a combined file."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from types import TracebackType
from typing import Any, BinaryIO, Self

from isal import isal_zlib

from shapetrace_traces.reader import UnreadableTraceError, Walk, open_blocks
from shapetrace_traces.reader.source import GZIP_WINDOW

METADATA = "shapetrace"
_LEVEL = 1
"""As the collector packs (shapetrace_collector.pack)."""
_BUFFER_BYTES = 64 * 1024
_STEADY_CATEGORIES = ("cpu_op",)
"""Events that belong to a window only if they begin in it; of frames and spans it is enough that they reach into it."""


class Packer:
    """A gzip file that is written in pieces, and its hash. An error of the sink's is that of ``name``."""

    def __init__(self, sink: BinaryIO | FileIO, name: str = "") -> None:
        self._sink, self._name = sink, name
        self._compressor = isal_zlib.compressobj(_LEVEL, wbits=GZIP_WINDOW)
        self._pieces: list[bytes] = []
        self._held = 0
        self.sha256 = hashlib.sha256()
        self.bytes = 0

    def write(self, text: bytes) -> None:
        """Add plain text."""
        self._pieces.append(text)
        self._held += len(text)
        if self._held >= _BUFFER_BYTES:
            self._pack(b"".join(self._pieces))
            self._pieces, self._held = [], 0

    def _pack(self, text: bytes) -> None:
        self._store(self._compressor.compress(text))

    def _store(self, packed: bytes) -> None:
        self.sha256.update(packed)
        self.bytes += len(packed)
        rest = memoryview(packed)
        try:
            while rest:  # without a buffer of its own a file may take less
                rest = rest[self._sink.write(rest) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name or None) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._pack(b"".join(self._pieces))
            self._store(self._compressor.flush())


def copy_trace(source: BinaryIO, packer: Packer, metadata: Mapping[str, Any] | None) -> None:
    """The same trace, byte for byte, with ``metadata`` as its first key."""
    blocks = open_blocks(source)
    if metadata is None:
        for block in blocks:
            packer.write(block)
        return
    head = next(blocks, b"").lstrip(b" \t\r\n")
    own = json.dumps(metadata, ensure_ascii=False).encode()
    is_list = head.startswith(b"[")
    if is_list:  # bare events
        packer.write(b'{"%s": %s, "traceEvents": ' % (METADATA.encode(), own))
    elif head.startswith(b"{"):
        packer.write(b'{"%s": %s,' % (METADATA.encode(), own))
        head = head[1:]
    else:
        raise UnreadableTraceError("not JSON: a trace begins with { or [")
    packer.write(head)
    for block in blocks:
        packer.write(block)
    if is_list:
        packer.write(b"}\n")


@dataclass(frozen=True)
class Piece:
    """One window of a combined file, and where it goes."""

    number: int
    """Of the window in its file."""
    begin: float
    end: float
    thread: tuple[Any, Any]
    packer: Packer
    metadata: Mapping[str, Any]


def split_trace(source: BinaryIO, pieces: Sequence[Piece]) -> None:
    """Write each window as a trace of its own: the capturing thread's events in it, and all that stands beside events.

    The frames and spans around a window are kept in each. The trace id becomes one of the window's own, or each would
    be taken for a copy of the others.
    """
    splitter = _Splitter(pieces)
    walk = Walk(open_blocks(source), splitter.add, _EveryKey())
    splitter.begin()
    walk.run()
    splitter.end(walk.top)


class _EveryKey(Collection[str]):
    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key != METADATA

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Splitter:
    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: (piece.begin, piece.end))
        self._begins = [piece.begin for piece in self._pieces]
        self._ends = [piece.end for piece in self._pieces]
        self._is_disjoint = self._ends == sorted(self._ends)
        self._has_written = [False] * len(pieces)

    def begin(self) -> None:
        """The head of every piece."""
        for piece in self._pieces:
            own = json.dumps(piece.metadata, ensure_ascii=False).encode()
            piece.packer.write(b'{"%s": %s, "traceEvents": [\n' % (METADATA.encode(), own))

    def add(self, events: Iterable[Any], first: int) -> None:
        """A batch of events."""
        for event in events:
            places = self._places(event)
            if not places:
                continue
            text = event.mini if hasattr(event, "mini") else json.dumps(event, ensure_ascii=False).encode()
            for place in places:
                piece = self._pieces[place]
                piece.packer.write(b",\n" + text if self._has_written[place] else text)
                self._has_written[place] = True

    def _places(self, event: Any) -> Sequence[int]:
        start = event.get("ts")
        if event.get("ph") == "M" or isinstance(start, bool) or not isinstance(start, (int, float)):
            return range(len(self._pieces))
        thread = event.get("pid"), event.get("tid")
        duration = event.get("dur", 0)
        end = start + duration if isinstance(duration, (int, float)) else start
        places: Sequence[int] = range(len(self._pieces))
        if self._is_disjoint:
            places = range(bisect_left(self._ends, start), bisect_right(self._begins, end))
        is_steady = event.get("cat") in _STEADY_CATEGORIES
        return [
            place
            for place in places
            if (piece := self._pieces[place]).thread == thread
            and start <= piece.end
            and (piece.begin <= start if is_steady else piece.begin <= end)
        ]

    def end(self, top: Mapping[str, Any]) -> None:
        """What stands beside the events, in every piece."""
        for piece in self._pieces:
            beside = dict(top)
            if isinstance(top.get("trace_id"), str):
                beside["trace_id"] = (
                    hashlib.sha256(f"{top['trace_id']} {piece.number}".encode()).hexdigest()[:32].upper()
                )
            piece.packer.write(b"\n]")
            for key, value in beside.items():
                piece.packer.write(b",\n%s: %s" % (json.dumps(key).encode(), json.dumps(value).encode()))
            piece.packer.write(b"\n}\n")
