"""Writing the copies of a plan: into a folder of its own that takes its name when it is whole."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shapetrace_traces.foreign.plan import Copy, Plan
from shapetrace_traces.foreign.rewrite import Packer, Piece, copy_trace, split_trace
from shapetrace_traces.regular import open_regular

MAX_OPEN_FILES = 256
"""Windows that are written in one reading; processes may often open no more than 1024 files."""


class RelabelError(Exception):
    """Nothing was written; the text says why."""


@dataclass(frozen=True)
class Written:
    """One copy that is there."""

    copy: Copy
    sha256: str
    bytes: int


def check_target(base: Path, out: Path) -> None:
    """:class:`RelabelError` unless ``out`` can take the copies and is outside of what is read."""
    here, there = base.resolve(), out.resolve()
    if there == here or there.is_relative_to(here):
        raise RelabelError(f"{out} lies in {base}, which is not to be touched")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise RelabelError(f"{out} is there and no folder")
    if out.is_dir() and any(out.iterdir()):
        raise RelabelError(f"{out} is not empty")


def relabel(base: Path, plan: Plan, out: Path, step: Callable[[int], object]) -> list[Written]:
    """Write the copies. ``out`` appears at once, whole, or not at all. ``step`` is told the bytes of each source file.

    :class:`RelabelError` where ``out`` cannot be used, OSError where something cannot be read or written.
    """
    check_target(base, out)
    made = [folder for folder in (out.parent, *out.parent.parents) if not folder.exists()]
    part = out.parent / f".{out.name}.shapetrace-part-{uuid.uuid4().hex[:8]}"
    try:
        part.mkdir(parents=True)
        by_file: dict[str, list[Copy]] = defaultdict(list)
        for copy in plan.copies:
            by_file[copy.finding.capture.file].append(copy)
        written: list[Written] = []
        for path, copies in sorted(by_file.items()):
            for first in range(0, len(copies), MAX_OPEN_FILES):
                written += _write(base / path, copies[first : first + MAX_OPEN_FILES], part, out)
            step((base / path).stat().st_size)
        part.replace(out)  # an empty folder of this name gives way
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):  # somebody put something there, or it was never made
                folder.rmdir()
        if isinstance(error, OSError) and str(error.filename or "").startswith(str(part)):
            raise OSError(error.errno, error.strerror, str(error.filename).replace(str(part), str(out), 1)) from None
        raise
    return sorted(written, key=lambda item: item.copy.target)


def _write(path: Path, copies: list[Copy], part: Path, out: Path) -> list[Written]:
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(open_regular(path))
        packers = []
        for copy in copies:
            place = part / copy.target
            place.parent.mkdir(parents=True, exist_ok=True)
            # unbuffered: what could not be written is not tried again when the file is closed
            sink = stack.enter_context(place.open("xb", buffering=0))
            packers.append(stack.enter_context(Packer(sink, str(out / copy.target))))
        try:
            if copies[0].finding.capture.window is None:
                copy_trace(source, packers[0], copies[0].metadata)
            else:
                split_trace(source, [_piece(copy, packer) for copy, packer in zip(copies, packers, strict=True)])
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or str(path)) from None
    return [
        Written(copy, packer.sha256.hexdigest(), packer.bytes) for copy, packer in zip(copies, packers, strict=True)
    ]


def _piece(copy: Copy, packer: Packer) -> Piece:
    capture = copy.finding.capture
    window, number = capture.index, capture.window
    assert number is not None  # it is one of a combined file
    process, thread = window["thread"]
    return Piece(
        number=number,
        begin=window["beginMicroseconds"],
        end=window["endMicroseconds"],
        thread=(process, thread),
        packer=packer,
        metadata=copy.metadata or {},
    )
