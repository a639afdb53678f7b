"""The engine's output in the spool, bounded: the tail is kept."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MAX_LOG_BYTES = 64 * 1024 * 1024
"""The limit of the contract."""
SPOOL_SHARE = 16
"""And at most a sixteenth of the spool, which is memory."""
_BLOCK_BYTES = 1024 * 1024


class BoundedLog:
    """A file of at most ``max_bytes``; when it is full, its older half goes. A full spool loses lines, never raises."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._max_bytes = max(max_bytes, 4096)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._size = os.lseek(self._descriptor, 0, os.SEEK_END)

    @classmethod
    def in_spool(cls, path: Path) -> BoundedLog:
        """Sized to the file system that ``path`` lies on."""
        usage = os.statvfs(path.parent)
        return cls(path, min(MAX_LOG_BYTES, usage.f_blocks * usage.f_frsize // SPOOL_SHARE))

    def write(self, data: bytes) -> None:
        """Append, and drop the oldest where there is no room."""
        keep = self._max_bytes // 2
        if len(data) > keep:
            data = data[-keep:]
        with contextlib.suppress(OSError):
            if self._size + len(data) > self._max_bytes:
                self._drop_older_half(keep)
            self._size += os.pwrite(self._descriptor, data, self._size)

    def close(self) -> None:
        """Close the file; the log ends here."""
        os.close(self._descriptor)

    def _drop_older_half(self, keep: int) -> None:
        """Move the newer half to the front, from the first whole line on: in place, because the spool may be full."""
        source = self._size - min(keep, self._size)
        newline = os.pread(self._descriptor, _BLOCK_BYTES, source).find(b"\n")
        source += newline + 1 if newline >= 0 else 0
        target = 0
        while block := os.pread(self._descriptor, _BLOCK_BYTES, source):
            os.pwrite(self._descriptor, block, target)
            source += len(block)
            target += len(block)
        os.ftruncate(self._descriptor, target)
        self._size = target
