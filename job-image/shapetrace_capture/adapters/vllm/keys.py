"""vLLM's descriptors as shapes. Pure, and generic: a field that a later version adds becomes an axis by itself.

A field that is None or has its default is left out. So is the number of requests, where the other fields tell all
keys of a runner apart: it mostly follows from the tokens, and as an axis it would leave every family of traces with one
size, which proves none.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_capture.told import plain_fields

SIZE = "num_tokens"
REQUESTS = "num_reqs"
MODE = "mode"
_FILLERS = frozenset({"num", "has", "is", "cg"})
_NOTHING = object()


def fields_of(descriptor: Any) -> dict[str, tuple[Any, Any]]:
    """Field -> (value, default) of a dataclass or a named tuple."""
    if dataclasses.is_dataclass(descriptor):
        return {
            field.name: (
                getattr(descriptor, field.name),
                _NOTHING if field.default is dataclasses.MISSING else field.default,
            )
            for field in dataclasses.fields(descriptor)
        }
    defaults: Mapping[str, Any] = descriptor._field_defaults
    return {name: (getattr(descriptor, name), defaults.get(name, _NOTHING)) for name in descriptor._fields}


def axes(names: Iterable[str]) -> dict[str, str]:
    """Field -> axis: ``num_active_loras`` is ``activeloras``; the whole name where two would be alike."""
    short = {name: "".join(_letters(word) for word in name.split("_") if word not in _FILLERS) for name in names}
    seen = Counter(short.values())
    return {
        name: axis if re.match("[a-z]", axis) and axis != "epoch" and seen[axis] == 1 else f"x{_letters(name)}"
        for name, axis in short.items()
    }


def _letters(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, Enum) else str(value)


def spelled(descriptor: Any, mode: str = "", *, requests: bool = True) -> dict[str, str]:
    """Axis -> value. ``mode`` is the graph's, where the descriptor does not hold it."""
    named = axes(fields_of(descriptor))
    left_out = "" if requests else named.get(REQUESTS)
    return {axis: text for axis, text in state_of(descriptor, mode).items() if text and axis != left_out}


def state_of(descriptor: Any, mode: str = "") -> dict[str, str]:
    """The same of all fields, with no text for those that a tag leaves out."""
    fields = fields_of(descriptor)
    named = axes(fields)
    found = {MODE: mode} if mode else {}
    for name, (value, default) in fields.items():
        is_default = value is None or (default is not _NOTHING and value == default)
        if name != SIZE:
            found[named[name]] = "" if is_default else _text(value)
    return found


def verbatim(descriptor: Any, mode: str = "") -> dict[str, Any]:
    """All fields of a key as vLLM names them; ``mode`` as of :func:`spelled`."""
    fields = {name: value for name, (value, _) in fields_of(descriptor).items()}
    return plain_fields({**({"cudagraph_runtime_mode": mode} if mode else {}), **fields})


def agree(key: Any, descriptor: Any) -> bool:
    """Whether two descriptors, of one class or of two, say the same where both say something."""
    ours, theirs = fields_of(descriptor), fields_of(key)
    shared = [(ours[name][0], theirs[name][0]) for name in ours.keys() & theirs.keys()]
    return all(left is None or right is None or left == right for left, right in shared)


class Keys:
    """The keys of one runner, in the order in which it captures them. ``keys`` are descriptor and mode."""

    def __init__(self, runner: Runner, unit: str, keys: Iterable[tuple[Any, str]]) -> None:
        self._runner = runner
        self._unit = unit
        self._keys = list(dict.fromkeys(keys))
        self._requests = False
        self._requests = bool(self.alike)

    def shape(self, descriptor: Any, mode: str = "") -> Shape:
        """The shape of one key; TagError where it has no tag."""
        size = fields_of(descriptor)[SIZE][0]
        return Shape(self._runner, self._unit, size, spelled(descriptor, mode, requests=self._requests))

    @property
    def shapes(self) -> list[Shape]:
        """Of all keys that have a tag."""
        return [found for found in map(self._tagged, self._keys) if isinstance(found, Shape)]

    @property
    def refused(self) -> list[TagError]:
        """Why the other keys have none."""
        return [found for found in map(self._tagged, self._keys) if isinstance(found, TagError)]

    def _tagged(self, key: tuple[Any, str]) -> Shape | TagError:
        try:
            return self.shape(*key)
        except TagError as error:
            return error

    @property
    def alike(self) -> list[str]:
        """Tags that more than one key would get; empty unless two values of a field are spelled alike."""
        return [tag for tag, count in Counter(shape.tag for shape in self.shapes).items() if count > 1]
