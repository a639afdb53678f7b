"""A line of ``captures.jsonl``, checked: nothing from the engine reaches a path or an object key unchecked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapetrace_contract import keys
from shapetrace_contract.message import shorten
from shapetrace_contract.tag import Shape, TagError

_FILE = re.compile(r"\d{6,12}\.json")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Record:
    """One capture of a rank. ``error`` says why there is no trace, or what is wrong with the one there is."""

    rank: int
    line: Mapping[str, Any]
    tag: str
    stage: str
    file: str | None
    error: str | None

    @property
    def key(self) -> str:
        """The object key, relative to the attempt's folder."""
        return keys.trace_key(self.rank, self.tag, self.stage)


def parse(rank: int, line: Mapping[str, Any] | None) -> Record:
    """Check a line. What cannot be used becomes a record without a file whose error says why."""
    if line is None:
        return _refused(rank, {}, "the record is no JSON object")
    tag, stage, file, error = (line.get(name) for name in ("tag", "stage", "file", "error"))
    try:
        shape = Shape.from_tag(tag if isinstance(tag, str) else "")
    except TagError as fault:
        return _refused(rank, line, f"the record's tag cannot be used: {fault}")
    if stage not in (keys.CAPTURE, keys.REPLAY):
        return _refused(rank, line, f"the record's stage {stage!r} is unknown")
    if file is not None and not (isinstance(file, str) and _FILE.fullmatch(file)):
        return _refused(rank, line, f"the record's file {file!r} is no trace of this rank")
    if error is not None:
        error = shorten(str(error))
    elif file is None:
        error = "the capture left neither a trace nor an error"
    elif not _agree(line, shape):
        error = "tag, shape and epoch of the record disagree"
    return Record(rank, line, str(tag), str(stage), file, error)


def _agree(line: Mapping[str, Any], shape: Shape) -> bool:
    try:
        return Shape.from_json(line["shape"], line.get("epoch", 1)).tag == shape.tag
    except (TagError, KeyError, TypeError, AttributeError):
        return False


def _refused(rank: int, line: Mapping[str, Any], error: str) -> Record:
    tag = line.get("tag")
    shown = tag[:_SHOWN_CHARACTERS] if isinstance(tag, str) else ""
    return Record(rank, line, shown, keys.CAPTURE, None, shorten(error))


def is_trace_name(name: str) -> bool:
    """Whether a file in a rank's folder is a trace by its name."""
    return _FILE.fullmatch(name) is not None
