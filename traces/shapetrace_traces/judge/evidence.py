"""A part's trace entries as values that the judging functions share. Parts are read as hostile input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapetrace_contract.tag import Shape, TagError

Signature = tuple[str | None, int | None]
"""Hash of the operator names in time order, and how many kernels were launched: some are launched by no operator."""


@dataclass(frozen=True)
class Trace:
    """One stored trace with its label and what was seen in it."""

    key: str
    rank: int
    tag: str
    shape: Shape
    stage: str
    epoch: int
    witnesses: Mapping[str, Any]
    dirty: tuple[str, ...]
    index: Mapping[str, Any]
    raw_sha256: str | None = None

    @property
    def size(self) -> int:
        """The label's size."""
        return self.shape.size

    @property
    def error(self) -> str | None:
        """Why the trace could not be indexed."""
        if not self.index:
            return "it was not indexed"
        error = self.index.get("error")
        return str(error) if error else None

    @property
    def is_unread(self) -> bool:
        """Whether nobody looked: stored and listed, but too long to be indexed. That is no fault of the trace."""
        return self.index.get("unread") is True

    @property
    def operators(self) -> Mapping[str, int]:
        """Operator -> calls; empty where the index has none."""
        return counts(self.index.get("operators"))

    @property
    def sequence(self) -> str | None:
        """Hash of the operator names in time order."""
        return self.signature[0]

    @property
    def signature(self) -> Signature:
        """What tells two traces of one size apart."""
        return signature_of(self.index)

    @property
    def windows(self) -> int | None:
        """How many stream captures it has; None where that is not known or there is none."""
        windows, left_out = self.index.get("windows"), self.index.get("leftOut")
        if not isinstance(windows, list) or not windows or self.index.get("unpairedWindows"):
            return None
        return len(windows) + (counts(left_out).get("windows", 0))

    @property
    def products(self) -> Mapping[str, Mapping[int, int]]:
        """Product of the model -> rows -> calls; by operator and weight where the index tells the weights apart."""
        by_name = self.index.get("gemms") or self.index.get("gemmRows")
        found: dict[str, Mapping[int, int]] = {}
        for name, rows in by_name.items() if isinstance(by_name, Mapping) else ():
            found[str(name)] = {int(key): calls for key, calls in counts(rows).items() if key.isdecimal() and int(key)}
        return found

    @property
    def has_all_operators(self) -> bool:
        """Whether the absence of an operator's name means that it was not called."""
        left_out = self.index.get("leftOut")
        return not (isinstance(left_out, Mapping) and left_out.get("operators"))

    @property
    def is_empty(self) -> bool:
        """Whether a capture is known to hold nothing: no operator called, and nothing launched without one."""
        has_none = self.index.get("operators") == {} and self.has_all_operators
        return self.stage == "capture" and has_none and not self.index.get("launches") and not self.index.get("windows")

    @property
    def place(self) -> tuple[int, str, str, str, int]:
        """What a family shares but for its variants: rank, runner, unit, stage, epoch."""
        return (self.rank, str(self.shape.runner), self.shape.unit, self.stage, self.epoch)

    @property
    def runner(self) -> tuple[str, str, str]:
        """What captures: runner, unit, stage. Its keys have the same axes on every rank."""
        return (str(self.shape.runner), self.shape.unit, self.stage)

    @property
    def variants(self) -> tuple[tuple[str, str], ...]:
        """The label's variants, sorted."""
        return tuple(sorted(self.shape.variants.items()))

    def witness(self, name: str) -> Any:
        """A witness of the capture, None where it was not taken."""
        return self.witnesses.get(name)


def shape_of(tag: object) -> Shape | None:
    """The shape that a text names; None for anything that is no tag."""
    try:
        return Shape.from_tag(tag) if isinstance(tag, str) else None
    except TagError:
        return None


def runner_of(tag: str) -> str:
    """The runner that a tag names, by which tags are grouped; ``?`` for anything that is no tag."""
    shape = shape_of(tag)
    return "?" if shape is None else str(shape.runner)


def signature_of(index: Mapping[str, Any]) -> Signature:
    """Operators and launches of a capture: of what lies in the stream captures of a trace that has some."""
    sequence = index.get("sequenceSha256")
    launches = index.get("launchesInWindows" if index.get("windows") else "launches")
    is_known = isinstance(launches, int) and not isinstance(launches, bool)
    return (sequence if isinstance(sequence, str) and sequence else None, launches if is_known else None)


def counts(value: Any) -> dict[str, int]:
    """The entries of an object that are whole numbers from 1 on."""
    if not isinstance(value, Mapping):
        return {}
    return {
        str(key): count
        for key, count in value.items()
        if isinstance(count, int) and not isinstance(count, bool) and count > 0
    }


def texts(value: Any, limit: int = 32) -> tuple[str, ...]:
    """The entries of a list as text, at most ``limit`` of them."""
    return tuple(str(item) for item in value[:limit]) if isinstance(value, list) else ()


def read_trace(entry: Mapping[str, Any], rank: int) -> Trace | None:
    """A trace entry of a part; None where key or tag cannot be used."""
    shape, key = shape_of(entry.get("tag")), entry.get("key")
    if shape is None or not isinstance(key, str) or not key:
        return None
    raw = entry.get("rawSha256")
    witnesses, index = entry.get("witnesses"), entry.get("index")
    return Trace(
        key=key,
        rank=rank,
        tag=shape.tag,
        shape=shape,
        stage=str(entry.get("stage") or "capture"),
        epoch=shape.epoch,
        witnesses=witnesses if isinstance(witnesses, Mapping) else {},
        dirty=texts(entry.get("dirty")) + ((str(entry["error"]),) if entry.get("error") else ()),
        index=index if isinstance(index, Mapping) else {},
        raw_sha256=raw if isinstance(raw, str) and raw else None,
    )
