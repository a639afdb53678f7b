"""Following files of the spool that grow or are replaced; reading is :mod:`shapetrace_contract.reading`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from shapetrace_contract.reading import MAX_RECORD_BYTES, open_regular, parse_object, read_object


class Whole:
    """A small file that is replaced as a whole now and then; it is read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signature: tuple[int, int, int] | None = None
        self._value: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        """The object; None while there is no such file. ValueError or OSError otherwise."""
        try:
            seen = self._path.lstat()
        except FileNotFoundError:
            return self._value
        signature = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if signature != self._signature:
            self._value = read_object(self._path)
            self._signature = signature
        return self._value


class Tail:
    """The lines of a growing JSON-lines file, each once. A last line without its newline does not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._too_long = False
        """Inside a line over the limit: it is dropped in pieces, and counts once, as unreadable."""

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

    def _lines(self, stream: BinaryIO) -> Iterator[dict[str, Any] | None]:
        while piece := stream.readline(MAX_RECORD_BYTES):
            ended = piece.endswith(b"\n")
            if not ended and len(piece) < MAX_RECORD_BYTES:
                if self._too_long:
                    self._offset += len(piece)
                return
            self._offset += len(piece)
            if ended:
                yield None if self._too_long else parse_object(piece)
            self._too_long = not ended
