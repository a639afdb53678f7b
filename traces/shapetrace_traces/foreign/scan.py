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

from shapetrace_traces.foreign.names import claims_capture, is_trace_name
from shapetrace_traces.index import index_stream
from shapetrace_traces.reader.errors import json_fault
from shapetrace_traces.reader.source import BYTE_ORDER_MARK, GZIP_MAGIC, GZIP_WINDOW, open_blocks
from shapetrace_traces.regular import TooLongFileError, open_regular, read_regular, what_is

MAX_FILES = 100_000
"""A slip of the pen, such as a home folder, must not be read for hours."""
MAX_DETAILS_BYTES = 1024 * 1024
DETAILS = "execution_details.json"
"""TraceLens' list of capture files with the batch size that it read or guessed."""
_HEAD_BYTES = 64 * 1024
"""Enough to see Kineto's first keys."""
_MAX_BESIDE_BYTES = 64 * 1024 * 1024
"""Of JSON that is no trace and lies beside them."""
_OF_TRACES = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"', b'"ph"')
"""Kineto writes one of these at its head."""
LINKED = "a link to a folder, which is not followed"
HIDDEN = "hidden, so it was not looked at"


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
    """What lies below ``root`` and may be looked at, in order, relative, without what is hidden; of a file, itself.

    Links to files are read, links to folders are listed and not followed. What is no file is listed too: its name may
    claim a capture. A hidden file and a folder are listed only where their names do. OSError where a folder cannot be
    listed, ValueError where ``root`` is neither a folder nor a regular file.
    """
    if not (kind := what_is(root)):
        return [root.name]
    if not root.is_dir():
        raise ValueError(f"{root} is {kind}, neither a folder nor a regular file")
    found: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_raise):
        here = Path(folder)
        odd = [name for name in folders if claims_capture(name, has_suffix=True) or (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        odd = [name for name in odd if not name.startswith(".")]
        seen = [name for name in names if not name.startswith(".") or claims_capture(name.lstrip("."))]
        found += [(here / name).relative_to(root).as_posix() for name in (*seen, *odd)]
        if len(found) > MAX_FILES:
            raise ValueError(f"{root} has more than {MAX_FILES} files")
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def base_of(root: Path) -> Path:
    """What the paths of :func:`list_files` are relative to."""
    return root if root.is_dir() else root.parent


def read_file(base: Path, path: str) -> File:
    """Look at one file; never raises for what it holds, or for what lies in its place."""
    place = base / path
    name, is_named = place.name, is_trace_name(path)
    if name.startswith("."):
        return File(path, Kind.OTHER, fault=HIDDEN)
    if kind := what_is(place):
        if place.is_dir() and not claims_capture(path):
            return File(path, Kind.OTHER, fault=LINKED)
        return File(path, Kind.DAMAGED if is_named else Kind.OTHER, fault=f"it is {kind}")
    try:
        with open_regular(place) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = _plain_head(stream.read(_HEAD_BYTES))
            if head[:1] not in (b"{", b"["):
                why = "it does not begin as JSON or gzip of JSON does" if size else "it is empty"
                return File(path, Kind.DAMAGED if is_named else Kind.OTHER, size, fault=why)
            stream.seek(0)
            raw = hashlib.sha256()
            index = index_stream(stream, by_window=True, see=raw.update)
    except OSError as error:
        return File(path, Kind.DAMAGED, fault=f"{error.strerror or error}")
    if index["error"] is None and _has_trace_events(index, head):
        return File(path, Kind.TRACE, size, raw.hexdigest(), index)
    if name == DETAILS and (why := _details(place)[1]):
        return File(path, Kind.DAMAGED, size, fault=why)
    if index["error"] is None or _is_whole_json(place, size):
        return File(path, Kind.OTHER, size, fault="it is JSON, and no trace")
    if is_named or any(key in head for key in _OF_TRACES):
        return File(path, Kind.DAMAGED, size, index=index, fault=str(index["error"]))
    return File(path, Kind.OTHER, size)


def _plain_head(head: bytes) -> bytes:
    """The first of the plain text, from the first byte that is no white space on; nothing of damaged gzip."""
    if head.startswith(GZIP_MAGIC):
        try:
            head = isal_zlib.decompressobj(wbits=GZIP_WINDOW).decompress(head, _HEAD_BYTES)
        except isal_zlib.IsalError:  # type: ignore[misc]  # its stub says an instance
            return b""
    return head.removeprefix(BYTE_ORDER_MARK).lstrip(b" \t\r\n")


def _has_trace_events(index: Mapping[str, Any], head: bytes) -> bool:
    """A list of objects of any kind reads as a trace without categories; an object without events is an empty one."""
    return set(index["categories"]) != {"(none)"} if index["events"] else head[:1] == b"{"


def _is_whole_json(path: Path, size: int) -> bool:
    """Whether a file that is no trace is whole JSON all the same: a manifest, a part, an execution trace."""
    if size > _MAX_BESIDE_BYTES:
        return False
    try:
        with open_regular(path) as stream:
            text = b"".join(open_blocks(stream, _MAX_BESIDE_BYTES))
        value = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, (dict, list)) and not (isinstance(value, dict) and "traceEvents" in value)


def read_details(base: Path, paths: Iterable[str]) -> dict[str, int]:
    """Path of a trace -> batch size, from each ``execution_details.json`` among ``paths`` that can be used."""
    found: dict[str, int] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name != DETAILS:
            continue
        for file, size in _details(base / path)[0]:
            found[f"{folder}/{file}".lstrip("/")] = size
    return found


def _details(place: Path) -> tuple[list[tuple[str, int]], str]:
    """File and batch size of each entry; and why it cannot be used, empty where it can."""
    try:
        entries = json.loads(read_regular(place, MAX_DETAILS_BYTES))
    except OSError as error:
        return [], f"{error.strerror or error}"
    except TooLongFileError as error:
        return [], f"{error}"
    except (ValueError, RecursionError) as error:
        return [], f"not JSON: {json_fault(error)}"
    if not isinstance(entries, list):
        return [], "it is no list of files"
    found = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("file"), str):
            size = entry.get("batch_size")
            if isinstance(size, int) and not isinstance(size, bool) and size > 0:
                found.append((entry["file"], size))
    return found, ""
