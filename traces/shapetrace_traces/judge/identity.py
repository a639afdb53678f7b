"""Whether a trace's own words agree with its record: metadata, spans and the engine's state at the forward call.

Metadata and spans come from the value that became the tag, so their agreement shows only that nothing was mixed up
later; a disagreement shows that something was. The engine's state is a witness of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shapetrace_contract.tag import Shape

from shapetrace_traces.judge.evidence import Trace, shape_of
from shapetrace_traces.judge.siblings import ABSENT, named


@dataclass
class Mismatch:
    """How a trace contradicts its label."""

    size: str | None = None
    """Evidence against the size, None if there is none."""
    variants: dict[str, str] = field(default_factory=dict)
    """Axis -> evidence against its value."""
    holds: list[str] = field(default_factory=list)
    """What the trace says it holds, in words."""
    notes: list[str] = field(default_factory=list)
    """Those of :attr:`holds` that are no shape."""


def find_mismatch(trace: Trace, axes: Collection[str] = ()) -> Mismatch | None:
    """None where nothing disagrees. ``axes`` are those of the trace's runner: its label may leave some out."""
    found = Mismatch()
    metadata = trace.index.get("metadata")
    if isinstance(metadata, Mapping):
        _compare_metadata(trace, metadata, found)
    spans = trace.index.get("spans")
    if isinstance(spans, list) and trace.tag not in spans:
        others = [shape for shape in map(shape_of, spans) if shape is not None]
        if others:
            _compare_shape(trace, others[0], "its span", found)
    state = trace.witness("engine")
    if isinstance(state, Mapping):
        for axis in sorted({*trace.shape.variants, *axes}):
            seen = state.get(axis)
            if isinstance(seen, str) and seen != trace.shape.variants.get(axis, ABSENT):
                found.variants[axis] = f"the engine's state at the capture was {named(axis, seen)}"
                found.holds.append(f"{named(axis, seen)} (the engine's state at the capture)")
    return found if found.holds else None


def _compare_metadata(trace: Trace, metadata: Mapping[str, Any], found: Mismatch) -> None:
    shape = shape_of(metadata.get("tag"))
    if shape is None:
        found.size = "its metadata holds no tag"
        found.notes.append("no tag that can be read (metadata)")
        found.holds += found.notes
        return
    _compare_shape(trace, shape, "its metadata", found)
    for name, value in (("rank", trace.rank), ("stage", trace.stage)):
        seen = metadata.get(name)
        if seen is not None and seen != value:
            found.size = f"its metadata says {name} {seen}"
            found.notes.append(f"{name} {seen} (its metadata)")
            found.holds.append(found.notes[-1])


def _compare_shape(trace: Trace, shape: Shape, where: str, found: Mismatch) -> None:
    if shape.tag == trace.tag:
        return
    found.holds.append(f"{shape.tag} ({where})")
    label = trace.shape
    axes = {axis for axis in (*label.variants, *shape.variants) if label.variants.get(axis) != shape.variants.get(axis)}
    for axis in axes & set(label.variants):
        found.variants[axis] = f"{where} says {axis} {shape.variants.get(axis, 'nothing')}"
    same_graph = (label.runner, label.unit, label.size, label.epoch) == (
        shape.runner,
        shape.unit,
        shape.size,
        shape.epoch,
    )
    if not same_graph or not axes & set(label.variants):
        found.size = f"{where} says {shape.tag}"


def find_duplicates(traces: Sequence[Trace]) -> dict[str, tuple[str, ...]]:
    """Key -> the other keys that hold the same recording, by the hash of the raw trace or by Kineto's trace id.

    Equal operator sequences are no duplicates: streams and the steps of a draft have them by nature.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for same in (_groups((trace.raw_sha256, trace.key) for trace in traces), _groups(_identities(traces))):
        for keys in same:
            for key in keys:
                found[key] |= keys - {key}
    return {key: tuple(sorted(others)) for key, others in found.items()}


def _identities(traces: Iterable[Trace]) -> Iterable[tuple[str | None, str]]:
    for trace in traces:
        value = trace.index.get("traceId")
        yield (value if isinstance(value, str) and value else None), trace.key


def _groups(pairs: Iterable[tuple[str | None, str]]) -> list[set[str]]:
    groups: dict[str, set[str]] = defaultdict(set)
    for value, key in pairs:
        if value is not None:
            groups[value].add(key)
    return [keys for keys in groups.values() if len(keys) > 1]
