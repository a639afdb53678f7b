"""Names that changed places with those of another variant: their rows tell the size, and operators tell the variant.

A name that is wrong in its size is no witness of its variant. The captures whose sizes are right are: of which variant
its operators are at other sizes. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shapetrace_contract.tag import Shape

from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.fit import Fit
from shapetrace_traces.judge.markers import MarkerTable
from shapetrace_traces.judge.siblings import VariantFit, held_values
from shapetrace_traces.judge.variants import judge_variants

Variants = tuple[tuple[str, str], ...]
Found = Mapping[str, Mapping[str, VariantFit]]


@dataclass(frozen=True)
class Moved:
    """A capture whose name has the wrong size, as its rows tell."""

    shape: Shape | None
    """What it holds; None where its events do not tell the variant."""
    evidence: str
    """Why its variants are others than its name says, or cannot be told; empty where they are those of the name."""


def sort_out(traces: Sequence[Trace], sizes: Mapping[str, Fit]) -> tuple[dict[str, Moved], Found]:
    """Those with a wrong size, and what the evidence says of the variants of all when these are put right."""
    variants = judge_variants(traces, MarkerTable())
    moved = {trace.key: int(size) for trace in traces if (size := _held(sizes[trace.key])) is not None}
    if not moved:
        return {}, variants
    users = _users([trace for trace in traces if trace.key not in moved], variants)
    found: dict[str, Moved] = {}
    for trace in traces:
        if trace.key in moved:
            found[trace.key] = _moved(trace, moved[trace.key], users.get((_runner(trace), trace.sequence), Counter()))
    found |= _collided(traces, found)
    right = [_as_held(trace, found[trace.key].shape) if trace.key in found else trace for trace in traces]
    again = judge_variants([trace for trace in right if trace is not None], MarkerTable())
    return found, {**variants, **again}


def _held(fit: Fit) -> str | None:
    return fit.holds if fit.word == "contradicted" and fit.holds is not None and fit.holds.isdecimal() else None


def _runner(trace: Trace) -> tuple[str, str]:
    return str(trace.shape.runner), trace.shape.unit


def _users(settled: Sequence[Trace], variants: Found) -> dict[tuple[tuple[str, str], str | None], Counter[Variants]]:
    """Runner and operators -> variants that have them, of the traces whose size is right."""
    users: dict[tuple[tuple[str, str], str | None], Counter[Variants]] = defaultdict(Counter)
    for trace in settled:
        held = held_values(trace.shape.variants, variants[trace.key])
        if trace.sequence is not None:
            users[_runner(trace), trace.sequence][tuple(sorted(held.items()))] += 1
    return users


def _moved(trace: Trace, size: int, users: Counter[Variants]) -> Moved:
    if not users or trace.variants in users:
        return Moved(replace(trace.shape, size=size), "")
    if len(users) > 1:
        shown = " and ".join(sorted(_text(values) for values in users))
        return Moved(None, f"its operators are those of {shown}: which of them it is, its events do not tell")
    ((values, count),) = users.items()
    text = f"holds {_text(values)} (the operators of {count} traces of it)"
    return Moved(replace(trace.shape, size=size, variants=dict(values)), text)


def _collided(traces: Sequence[Trace], found: Mapping[str, Moved]) -> dict[str, Moved]:
    """Those whose shape another capture of the rank holds too: then the variant of their name is no evidence."""
    shapes = {trace.key: found[trace.key].shape if trace.key in found else trace.shape for trace in traces}
    held = Counter((trace.rank, shape.tag) for trace in traces if (shape := shapes[trace.key]) is not None)
    collided: dict[str, Moved] = {}
    for trace in traces:
        shape = shapes[trace.key]
        if trace.key in found and shape is not None and held[trace.rank, shape.tag] > 1:
            text = (
                f"another capture of its rank holds {shape.tag}: of which variant this one is, its events do not tell"
            )
            collided[trace.key] = Moved(None, text)
    return collided


def _as_held(trace: Trace, shape: Shape | None) -> Trace | None:
    return None if shape is None else replace(trace, shape=shape, tag=shape.tag)


def _text(values: Variants) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in values)
