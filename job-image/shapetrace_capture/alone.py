"""One writer at a time among the processes of one rank: workers of a script that have no RANK of their own are all
rank 0, and what one of them numbered or stored must not be told as another's."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep the other processes that ask for ``folder`` out; it is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: one process a rank, as it should be
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):  # not by closing alone: a child forked meanwhile has the descriptor too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def size_bytes(path: Path) -> int:
    """0 where there is no file."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
