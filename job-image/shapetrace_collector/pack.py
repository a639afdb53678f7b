"""Compressing: a stream is read once, in blocks; out come the gzip file and the hashes of both sides.

isal at level 1: 87 times as fast as gzip at level 9 at 1.6 times its size, measured on a 3.9 MB trace. The gzip header
carries no time and no name, so the same trace always makes the same object.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib
from shapetrace_traces.reader.source import GZIP_WINDOW
from shapetrace_traces.store import Body

_LEVEL = 1
_BLOCK_BYTES = 1024 * 1024
MEMORY_BYTES = 32 * 1024 * 1024
"""Compressed bytes that stay in memory (a trace of about 350 MB); more goes to a temporary file."""


@dataclass(frozen=True)
class Packed:
    """A compressed stream, usable as the body of a ``put`` while the context of :func:`pack` is open."""

    body: Body
    bytes: int
    sha256: str
    raw_bytes: int
    raw_sha256: str


@contextmanager
def pack(
    stream: BinaryIO, memory_bytes: int = MEMORY_BYTES, see: Callable[[bytes], object] | None = None
) -> Iterator[Packed]:
    """Compress what is left of ``stream``; ``see`` is given every block of it."""
    compressor = isal_zlib.compressobj(_LEVEL, wbits=GZIP_WINDOW)
    raw, stored = hashlib.sha256(), hashlib.sha256()
    raw_bytes = stored_bytes = 0
    with tempfile.SpooledTemporaryFile(max_size=memory_bytes) as sink:

        def write(block: bytes) -> None:
            nonlocal stored_bytes
            stored.update(block)
            stored_bytes += len(block)
            sink.write(block)

        while block := stream.read(_BLOCK_BYTES):
            if see is not None:
                see(block)
            raw.update(block)
            raw_bytes += len(block)
            write(compressor.compress(block))
        write(compressor.flush())
        if stored_bytes > memory_bytes:
            sink.flush()
            # the file has no name any more, so it vanishes with this process whatever happens
            body: Body = Path(f"/proc/self/fd/{sink.fileno()}")
        else:
            sink.seek(0)
            body = sink.read()
        yield Packed(body, stored_bytes, stored.hexdigest(), raw_bytes, raw.hexdigest())
