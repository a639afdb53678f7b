"""Reading a directory: which files may be traces, and the index of each. All I/O of looking is here."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from isal import isal_zlib

from shapetrace_traces.foreign.names import is_trace_name
from shapetrace_traces.index import index_stream
from shapetrace_traces.reader.source import open_blocks

MAX_FILES = 100_000
MAX_DETAILS_BYTES = 1024 * 1024
DETAILS = "execution_details.json"
"""TraceLens' list of capture files with the batch size that it read or guessed."""
_HEAD_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


class Kind(StrEnum):
    """What a file is, by its content."""

    TRACE = "trace"
    DAMAGED = "damaged"
    """A trace, or what is named as one, that cannot be read to its end."""
    OTHER = "other"


@dataclass(frozen=True)
class File:
    """One file that was looked at. ``path`` is relative to the directory, with slashes."""

    path: str
    kind: Kind
    bytes: int = 0
    raw_sha256: str | None = None
    index: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""


def list_files(root: Path) -> list[str]:
    """The regular files below ``root`` in order, relative, without hidden ones; of a file, itself.

    Links to files are read; links to folders are not followed. OSError where a folder cannot be listed.
    """
    if root.is_file():
        return [root.name]
    found: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        here = Path(folder)
        found += [
            (here / name).relative_to(root).as_posix()
            for name in names
            if not name.startswith(".") and (here / name).is_file()
        ]
        if len(found) > MAX_FILES:
            raise ValueError(f"{root} has more than {MAX_FILES} files")
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def base_of(root: Path) -> Path:
    """What the paths of :func:`list_files` are relative to."""
    return root.parent if root.is_file() else root


def read_file(base: Path, path: str) -> File:
    """Look at one file; never raises for what it holds."""
    place = base / path
    try:
        size = place.stat().st_size
        with place.open("rb") as stream:
            if not _may_be_json(stream.read(_HEAD_BYTES)):
                named = is_trace_name(path)
                why = "it is empty" if not size else "it does not begin as JSON or gzip of JSON does"
                return File(path, Kind.DAMAGED if named else Kind.OTHER, size, fault=why if named else "")
            stream.seek(0)
            raw = hashlib.sha256()
            index = index_stream(stream, by_window=True, see=raw.update)
    except OSError as error:
        return File(path, Kind.DAMAGED, fault=f"{error.strerror or error}")
    if index["error"] is None:
        kind = Kind.TRACE if _has_trace_events(index) else Kind.OTHER
        return File(path, kind, size, raw.hexdigest(), index)
    if not is_trace_name(path) or _is_whole_json(place, size):
        return File(path, Kind.OTHER, size)
    return File(path, Kind.DAMAGED, size, index=index, fault=str(index["error"]))


def _may_be_json(head: bytes) -> bool:
    """Whether the first bytes are those of a JSON object or list, packed or not."""
    if head.startswith(_GZIP_MAGIC):
        try:
            head = isal_zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except isal_zlib.IsalError:  # type: ignore[misc]  # its stub says an instance
            return False
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def _has_trace_events(index: Mapping[str, Any]) -> bool:
    """A list of objects of any kind reads as a trace without categories; an empty trace is still one."""
    return not index["events"] or set(index["categories"]) != {"(none)"}


def _is_whole_json(path: Path, size: int) -> bool:
    """Whether a file that is no trace is whole JSON all the same: a manifest, a part, an execution trace."""
    if size > 64 * MAX_DETAILS_BYTES:
        return False
    try:
        with path.open("rb") as stream:
            text = b"".join(open_blocks(stream, 64 * MAX_DETAILS_BYTES))
        value = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, (dict, list)) and not (isinstance(value, dict) and "traceEvents" in value)


def read_details(base: Path, paths: Iterable[str]) -> dict[str, int]:
    """Path of a trace -> batch size, from each ``execution_details.json`` among ``paths``."""
    found: dict[str, int] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        place = base / path
        if name != DETAILS:
            continue
        try:
            entries = json.loads(place.read_bytes()) if place.stat().st_size <= MAX_DETAILS_BYTES else []
        except (OSError, ValueError, RecursionError):
            continue
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("file"), str):
                size = entry.get("batch_size")
                if isinstance(size, int) and not isinstance(size, bool) and size > 0:
                    found[f"{folder}/{entry['file']}".lstrip("/")] = size
    return found
