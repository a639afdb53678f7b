"""A captured shape and its tag: the one spelling of a shape in file names, object keys, metadata and spans.

Grammar (docs/contract.md, Tag)::

    <Runner>[-draft<i>][-step<k>][-w<width>][-n<ordinal>]__<unit>_<size>[__<axis>-<value>...][__epoch-<e>]

The grammar is reversible: ``Shape.from_tag(shape.tag) == shape`` for every shape that can be built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

MAX_TAG_BYTES = 200
"""Object stores and file systems allow 255 bytes for a name; the rest is left to suffixes and temporary names."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._")
_AXIS = re.compile(r"[a-z][a-z0-9]*")
_UNIT = re.compile(r"[a-z]+")
_RUNNER = re.compile(
    r"(?P<name>[^-]+)(?:-draft(?P<draft>\d+))?(?:-step(?P<step>\d+))?(?:-w(?P<width>\d+))?(?:-n(?P<ordinal>\d+))?"
)
_SGLANG_AXES = ("attention", "lora", "stream")
_SIZE = re.compile(r"(?P<unit>[a-z]+)_(?P<size>[1-9]\d*)")


class TagError(ValueError):
    """A shape that has no tag, or a text that is no tag."""


def escape(text: str) -> str:
    """Spell ``text`` with the bytes ``[A-Za-z0-9._]`` and ``~`` + two hex digits.

    An underscore after an underscore, and one at the end, is escaped too: ``__`` separates the fields of a tag.
    """
    out: list[str] = []
    raw = text.encode()
    for position, byte in enumerate(raw):
        underscore = byte == 0x5F
        doubled = underscore and bool(out) and out[-1] == "_"
        last = underscore and position == len(raw) - 1
        out.append(chr(byte) if byte in _PLAIN and not doubled and not last else f"~{byte:02x}")
    return "".join(out)


def unescape(text: str) -> str:
    """The inverse of :func:`escape`; refuses anything that ``escape`` would not have written."""
    try:
        raw = re.sub(rb"~([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode("ascii"))
        plain = raw.decode()
    except UnicodeError as error:
        raise TagError(f"{text!r} is not an escaped text: {error}") from None
    if escape(plain) != text:
        raise TagError(f"{text!r} is not the way {plain!r} is escaped")
    return plain


@dataclass(frozen=True)
class Runner:
    """The engine's object that captures. The optional parts exist only where the engine's adapter reports them."""

    name: str
    draft: int | None = None
    step: int | None = None
    width: int | None = None
    ordinal: int | None = None

    def __str__(self) -> str:
        parts = [escape(self.name)]
        for word, value in (("draft", self.draft), ("step", self.step), ("w", self.width), ("n", self.ordinal)):
            if value is not None:
                parts.append(f"{word}{value}")
        return "-".join(parts)

    @classmethod
    def parse(cls, text: str) -> Runner:
        """Read the runner's part of a tag."""
        match = _RUNNER.fullmatch(text)
        if match is None:
            raise TagError(f"{text!r} names no runner")
        number = {key: None if match[key] is None else int(match[key]) for key in ("draft", "step", "width", "ordinal")}
        return cls(unescape(match["name"]), **number)


@dataclass(frozen=True)
class Shape:
    """The engine's key of a captured graph.

    ``size`` counts ``unit``: ``bs`` requests, ``tok`` tokens, ``unknown`` where no adapter describes the runner.
    ``variants`` maps a further axis of the key to its value. ``epoch`` counts captures of the same key by one engine
    process, from 1.
    """

    runner: Runner
    unit: str
    size: int
    variants: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "variants", dict(sorted(self.variants.items())))
        if not self.runner.name:
            raise TagError("a shape needs a runner")
        if not _UNIT.fullmatch(self.unit):
            raise TagError(f"unit {self.unit!r} is not of the form [a-z]+")
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise TagError(f"size {self.size!r} is not a whole number from 1 on")
        if isinstance(self.epoch, bool) or not isinstance(self.epoch, int) or self.epoch < 1:
            raise TagError(f"epoch {self.epoch!r} is not a whole number from 1 on")
        for axis, value in self.variants.items():
            if not _AXIS.fullmatch(axis) or axis == "epoch":
                raise TagError(f"axis {axis!r} is not of the form [a-z][a-z0-9]*, or is the word epoch")
            if not isinstance(value, str) or not value:
                raise TagError(f"axis {axis} has no value")
        if len(self.tag) > MAX_TAG_BYTES:
            raise TagError(f"the tag {self.tag[:60]}... has {len(self.tag)} bytes, {MAX_TAG_BYTES} are allowed")

    def __hash__(self) -> int:
        return hash(self.tag)

    @property
    def tag(self) -> str:
        """The reversible spelling, at most 200 bytes of ASCII."""
        parts = [str(self.runner), f"{self.unit}_{self.size}"]
        parts += [f"{axis}-{escape(value)}" for axis, value in self.variants.items()]
        if self.epoch > 1:
            parts.append(f"epoch-{self.epoch}")
        return "__".join(parts)

    @classmethod
    def from_tag(cls, tag: str) -> Shape:
        """Read a tag; :class:`TagError` for any text that :attr:`tag` would not have produced."""
        runner, _, rest = tag.partition("__")
        size, *pairs = rest.split("__")
        match = _SIZE.fullmatch(size)
        if match is None:
            raise TagError(f"{tag!r} is no tag: {size!r} is not <unit>_<size>")
        epoch = 1
        if pairs and pairs[-1].startswith("epoch-"):
            text = pairs.pop().removeprefix("epoch-")
            if not re.fullmatch(r"[1-9]\d*", text):
                raise TagError(f"{tag!r} is no tag: epoch {text!r}")
            epoch = int(text)
        variants: dict[str, str] = {}
        for pair in pairs:
            axis, dash, value = pair.partition("-")
            if not dash or axis in variants:
                raise TagError(f"{tag!r} is no tag: {pair!r} is not <axis>-<value>")
            variants[axis] = unescape(value)
        shape = cls(Runner.parse(runner), match["unit"], int(match["size"]), variants, epoch)
        if shape.tag != tag:
            raise TagError(f"{tag!r} is not the way its shape is spelled, {shape.tag!r} is")
        return shape

    def with_epoch(self, epoch: int) -> Shape:
        """The same key captured again by the same process."""
        return replace(self, epoch=epoch)

    def to_json(self) -> dict[str, Any]:
        """The ``shape`` object of records, metadata, parts and manifests."""
        return {"runner": str(self.runner), "unit": self.unit, "size": self.size, "variants": dict(self.variants)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], epoch: int = 1) -> Shape:
        """Read what :meth:`to_json` wrote; unknown fields are ignored."""
        try:
            variants = {str(axis): str(name) for axis, name in dict(value.get("variants") or {}).items()}
            return cls(Runner.parse(str(value["runner"])), str(value["unit"]), value["size"], variants, epoch)
        except (KeyError, TypeError, AttributeError) as error:
            raise TagError(f"{value!r} is no shape: {error}") from None


def sglang_name(shape: Shape, tensor_rank: int) -> str | None:
    """The name that SGLang, from 0.5.22 on, gives its own trace of the same capture; None where it writes none.

    ``DecodeCudaGraphRunner._set_profile_trace_tag`` and ``_profile_runner_name``: of this class and those made from it,
    whose names end as its own does. The plain class of a draft has a prefix; steps, indices and further axes are not in
    the name, so that it may be that of several captures.
    """
    name = shape.runner.name
    if shape.unit != "bs" or not name.endswith("CudaGraphRunner"):
        return None
    if name == "DecodeCudaGraphRunner" and shape.runner.draft is not None:
        name = f"Draft{name}"
    variants = {axis: value for axis, value in shape.variants.items() if axis in _SGLANG_AXES}
    return _spelled(name, shape, variants, tensor_rank)


def upstream_alias(shape: Shape, tensor_rank: int) -> str:
    """A shape in SGLang's manner, with all of its axes."""
    return _spelled(shape.runner.name, shape, shape.variants, tensor_rank)


def _spelled(name: str, shape: Shape, axes: Mapping[str, str], tensor_rank: int) -> str:
    """Attention, lora, stream; further axes follow in sorted order."""
    variants = dict(axes)
    parts = [name, f"{shape.unit}_{shape.size}"]
    parts += [variants.pop(axis) for axis in ("attention", "lora") if axis in variants]
    if "stream" in variants:
        parts.append(f"stream_{variants.pop('stream')}")
    parts += list(variants.values())
    return "_".join([*parts, f"rank{tensor_rank}"])
