"""Opening files whose folders others filled: regular ones alone, never waiting, never more than was asked for.

A named pipe would wait for a writer for ever, a device may have no end, and a link may lead to either.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

NOTHING = "not there"
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotRegularError(OSError):
    """Something else lies in the place of a file; ``strerror`` says what."""


class TooLongFileError(ValueError):
    """A file has more bytes than whoever reads it takes."""


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, for reading; :class:`NotRegularError` or another OSError with the path."""
    _check(path, path.stat().st_mode)  # before it is opened: opening a device may do something
    # O_NONBLOCK: it may have become a pipe since
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """The content of a regular file; :class:`TooLongFileError` beyond the limit, OSError as of :func:`open_regular`."""
    with open_regular(path) as stream:
        body = stream.read(limit_bytes + 1)
    if len(body) > limit_bytes:
        raise TooLongFileError(f"it has more than {limit_bytes} bytes")
    return body


def what_is(path: Path) -> str:
    """What lies there instead of a regular file, for a person; empty for a regular one."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link to itself"
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return "a link to nothing" if path.is_symlink() else NOTHING
        return f"not to be looked at: {error.strerror}"
    return _kind(mode)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")


def _check(path: Path, mode: int) -> None:
    if kind := _kind(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise NotRegularError(number, f"it is {kind}, not a regular file", str(path))
