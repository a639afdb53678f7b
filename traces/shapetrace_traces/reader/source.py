"""The plain text of a trace in blocks: gzip or not, bounded, and UTF-8 as far as the first bytes tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from isal import isal_zlib

from shapetrace_traces.reader.errors import TooLongTraceError, UnreadableTraceError

MAX_RAW_BYTES = 8 * 1024**3
"""A longer trace is not read: what a small compressed file unpacks to is its author's choice."""
BLOCK_BYTES = 256 * 1024
"""Of plain text: it stays in a core's cache while it is unpacked, parsed and folded."""
_LEAST_BYTES = 64 * 1024
_PACKED_BYTES = 16 * 1024
"""Unpacked they are about a block: each call gives one, and nothing is left over to be copied."""
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31
"""zlib's wbits for a gzip wrapper with its checksum; the header of one that is written has no time and no name."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Read = Callable[[int], bytes]


class Reads(Protocol):
    """All that reading a trace needs of a stream."""

    def read(self, count: int, /) -> bytes:
        """At most so many bytes, none at the end."""


def open_blocks(
    stream: Reads, max_raw_bytes: int | None = None, see: Callable[[bytes], object] | None = None
) -> Iterator[bytes]:
    """The blocks of plain text, none of them empty. ``see`` is given every block before it is read, to hash it.

    :class:`UnreadableTraceError` for damaged gzip and for another encoding than UTF-8, :class:`TooLongTraceError` for
    more than ``max_raw_bytes`` (:data:`MAX_RAW_BYTES`).
    """
    limit = MAX_RAW_BYTES if max_raw_bytes is None else max_raw_bytes
    head = _read_at_least(stream.read, len(GZIP_MAGIC), b"")
    if head.startswith(GZIP_MAGIC):
        blocks, verb = _unpacked(stream.read, head), "unpacks to"
    else:
        blocks, verb = _plain(stream.read, head), "has"

    def counted() -> Iterator[bytes]:
        count = 0
        for block in _gathered(blocks):
            count += len(block)
            if count > limit:
                raise TooLongTraceError(f"the trace {verb} more than {limit} bytes")
            if see is not None:
                see(block)
            yield block

    yield from _recognised(counted())


def _read_at_least(read: Read, count: int, head: bytes) -> bytes:
    while len(head) < count and (more := read(BLOCK_BYTES)):
        head += more
    return head


def _plain(read: Read, head: bytes) -> Iterator[bytes]:
    block = head
    while block:
        yield block
        block = read(BLOCK_BYTES)


def _unpacked(read: Read, head: bytes) -> Iterator[bytes]:
    rest = head
    while rest:  # gzip allows several members one after the other
        if not (rest := _read_at_least(read, len(GZIP_MAGIC), rest)).startswith(GZIP_MAGIC):
            raise UnreadableTraceError("damaged gzip: something else follows the compressed trace")
        unpacker = isal_zlib.decompressobj(wbits=GZIP_WINDOW)
        while not unpacker.eof:
            if not rest and not (rest := read(_PACKED_BYTES)):
                raise UnreadableTraceError("the gzip stream ends early")
            # in small pieces: what one call leaves over is copied by the next
            piece, rest = rest[:_PACKED_BYTES], rest[_PACKED_BYTES:]
            while piece and not unpacker.eof:
                try:
                    block = unpacker.decompress(piece, BLOCK_BYTES)
                except isal_zlib.IsalError as error:  # type: ignore[misc]  # its stub says an instance
                    raise UnreadableTraceError(f"damaged gzip: {error}") from None
                piece = unpacker.unconsumed_tail
                if block:
                    yield block
        rest = unpacker.unused_data + rest or read(_PACKED_BYTES)


def _gathered(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """No tiny blocks: each one costs its reader a copy of what is held."""
    pieces: list[bytes] = []
    count = 0
    for block in blocks:
        pieces.append(block)
        count += len(block)
        if count >= _LEAST_BYTES:
            yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces, count = [], 0
    if count:
        yield b"".join(pieces)


def _recognised(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Without a byte order mark; an error for what is evidently not UTF-8."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= 4:
            break
    # JSON begins with ASCII: in UTF-16 and UTF-32 one of its first bytes is zero
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in head[:4]:
        raise UnreadableTraceError("not JSON in UTF-8: it looks like UTF-16 or UTF-32")
    if head := head.removeprefix(BYTE_ORDER_MARK):
        yield head
    yield from blocks
