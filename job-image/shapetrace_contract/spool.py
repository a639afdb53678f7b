"""The spool: the folder through which engine, launcher and collector of one pod speak.

Rules (docs/contract.md, Spool): whole files appear by temporary name + rename; records are lines of JSON; a last line
without its newline does not exist yet; readers look at ``done.json`` and ``stopped.json`` before they read lines.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import VERSION, keys
from shapetrace_contract.reading import read_lines
from shapetrace_contract.reading import read_object as read_json

__all__ = [
    "CAPTURES",
    "DONE",
    "DRAINED",
    "ENGINE_LOG",
    "PLAN",
    "RANK",
    "RESERVE_BYTES",
    "STOPPED",
    "UPLOADED",
    "append_line",
    "process_file",
    "rank_folder",
    "rank_folders",
    "read_json",
    "read_lines",
    "temporary",
    "trace_file",
    "write_json",
]

RANK = "rank.json"
PLAN = "plan.jsonl"
CAPTURES = "captures.jsonl"
DONE = "done.json"
UPLOADED = "uploaded.jsonl"
STOPPED = "stopped.json"
DRAINED = "drained"
ENGINE_LOG = "engine.log"

RESERVE_BYTES = 64 * 1024 * 1024
"""The hook takes no trace while less than this, or a tenth of the spool, is free: the small files always fit."""

_TEMPORARY = ".tmp-"


def rank_folder(spool: Path, rank: int) -> Path:
    """``<spool>/rank-00003``."""
    return spool / keys.rank_name(rank)


def rank_folders(spool: Path) -> dict[int, Path]:
    """The ranks that have a folder, in order."""
    found = {}
    for path in sorted(spool.glob("rank-[0-9][0-9][0-9][0-9][0-9]")):
        found[int(path.name.removeprefix("rank-"))] = path
    return found


def process_file(spool: Path, pid: int) -> Path:
    """The record of one process at load."""
    return spool / f"process-{pid}.json"


def trace_file(folder: Path, sequence: int) -> Path:
    """The raw trace of capture number ``sequence`` (from 0) of a rank."""
    return folder / f"{sequence:06d}.json"


def temporary(path: Path) -> Path:
    """Where ``path`` is written before its rename, in the same folder; readers never match it."""
    return path.with_name(f"{_TEMPORARY}{os.getpid()}-{path.name}")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a whole object so that a reader sees all of it or nothing; ``v`` is added."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = temporary(path)
    part.unlink(missing_ok=True)  # its name can be guessed: never written through a link
    with part.open("xb") as stream:
        stream.write(_to_line(value))
    part.replace(path)


def _to_line(value: Mapping[str, Any]) -> bytes:
    """UTF-8 whatever the locale; half a surrogate pair (a name of a file, an error's text) becomes a question mark."""
    return (json.dumps({"v": VERSION, **value}, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one record. A line that an earlier writer left without its newline is cut off first.

    One ``write`` of the whole line: a reader in another process sees it whole or sees a line without newline.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    line = _to_line(value)
    # not through a link, and not waiting at a pipe: the folder is the engine's
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        whole = _end_of_whole_lines(descriptor, end)
        if whole != end:
            os.ftruncate(descriptor, whole)
        os.lseek(descriptor, whole, os.SEEK_SET)
        written = os.write(descriptor, line)
        if written != len(line):  # a full spool: take the torn line back, so that the file stays readable
            os.ftruncate(descriptor, whole)
            raise OSError(errno.ENOSPC, "no space left for a record", str(path))
    finally:
        os.close(descriptor)


def _end_of_whole_lines(descriptor: int, end: int) -> int:
    """Position after the last newline before ``end``; 0 without one."""
    block = 4096
    position = end
    while position > 0:
        start = max(0, position - block)
        found = os.pread(descriptor, position - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        position = start
    return 0
