"""Reading the spool. The engine writes it, and it may run anybody's code: what lies there is hostile input.

So a symbolic link is never followed (it could name a file that only the collector's container holds, such as a
credential, and have it uploaded), only regular files are read, and every read has a limit.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_RECORD_BYTES = 4 * 1024 * 1024
"""Longest record (a line, or a whole small file) that is read; those seen are a few kB."""

MAX_DEPTH = 32
"""Nesting of a record; those seen have five levels."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; OSError for anything else, also where its folder is a symbolic link."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # O_NONBLOCK: opening a named pipe would wait for its writer for ever
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


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
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
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


class Tail:
    """The lines of a growing JSON-lines file, each once. A last line without its newline does not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any] | None]:
        """The lines that are new since the last call; None for a line that is no JSON object."""
        try:
            if self._path.lstat().st_size <= self._offset:
                return []
            with open_regular(self._path) as stream:
                stream.seek(self._offset)
                return list(self._lines(stream))
        except FileNotFoundError:
            return []

    def _lines(self, stream: BinaryIO) -> list[dict[str, Any] | None]:
        found = []
        while line := stream.readline(MAX_RECORD_BYTES):
            if not line.endswith(b"\n"):
                if len(line) < MAX_RECORD_BYTES:
                    break
                while line and not line.endswith(b"\n"):  # over the limit: dropped whole, and counted as unreadable
                    self._offset += len(line)
                    line = stream.readline(MAX_RECORD_BYTES)
            self._offset += len(line)
            found.append(parse_object(line))
        return found
