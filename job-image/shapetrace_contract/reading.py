"""Reading the spool. The engine writes it, and it may run anybody's code: what lies there is hostile input.

So a symbolic link is never followed (it could name a file that only the collector's container holds, such as a
credential, and have it uploaded), only regular files are read, and every read has a limit.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MAX_RECORD_BYTES = 4 * 1024 * 1024
"""Longest record (a line, or a whole small file) that is read; those seen are a few kB."""

MAX_DEPTH = 32
"""Nesting of a record; those seen have five levels."""


class NotRegularError(OSError):
    """Something else than a regular file in a real folder."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; :class:`NotRegularError` for anything else, also where its folder is a symbolic link."""
    try:
        descriptor = _open(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise NotRegularError(f"{path.name} is no regular file in a real folder") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(f"{path.name} is no regular file")
    return os.fdopen(descriptor, "rb")


def _open(path: Path) -> int:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # O_NONBLOCK: opening a named pipe would wait for its writer for ever
        return os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def read_object(path: Path, limit_bytes: int = MAX_RECORD_BYTES) -> dict[str, Any] | None:
    """The JSON object in a small file; None where there is no such file. ValueError or OSError otherwise."""
    try:
        with open_regular(path) as stream:
            text = stream.read(limit_bytes + 1)
    except FileNotFoundError:
        return None
    if len(text) > limit_bytes:
        raise ValueError(f"{path.name} is larger than {limit_bytes} bytes")
    value = parse_object(text)
    if value is None:
        raise ValueError(f"{path.name} holds no JSON object")
    return value


def parse_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object that can be written again as strict JSON; None for anything else."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if not isinstance(value, dict) or not _is_shallow(value):
            return None
        # half a surrogate pair is no text, and 1e999 is read as a number that JSON cannot spell
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _is_shallow(value: Any) -> bool:
    """Whether nothing is nested so deep that writing it, inside a part, could exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file in order; nothing where it does not exist. A last line without newline is ignored.

    ValueError for a line that is no JSON object, OSError for what cannot be read.
    """
    try:
        stream = open_regular(path)
    except FileNotFoundError:
        return
    with stream:
        while line := stream.readline(MAX_RECORD_BYTES):
            if line.endswith(b"\n"):
                value = parse_object(line)
                if value is None:
                    raise ValueError(f"{path.name} holds a line that is no JSON object")
                yield value
            elif len(line) == MAX_RECORD_BYTES:
                raise ValueError(f"{path.name} holds a line of more than {MAX_RECORD_BYTES} bytes")
