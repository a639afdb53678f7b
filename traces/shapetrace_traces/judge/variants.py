"""Variant support: markers first, then the operator sequences of siblings (traces that differ in one axis only)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.markers import Marker, MarkerTable

Word = Literal["proven", "distinct", "unproven", "contradicted"]


@dataclass(frozen=True)
class VariantFit:
    """What the evidence says of one axis of one trace."""

    word: Word
    evidence: str
    holds: str | None = None
    """The value that a contradicted trace really holds."""


def judge_variants(traces: Sequence[Trace], table: MarkerTable) -> dict[str, dict[str, VariantFit]]:
    """Key -> axis -> support, for traces that could be indexed."""
    found: dict[str, dict[str, VariantFit]] = {trace.key: {} for trace in traces}
    for axis in sorted({axis for trace in traces for axis in trace.shape.variants}):
        of_axis = [trace for trace in traces if axis in trace.shape.variants]
        by_sequence = _by_sequence(axis, of_axis)
        for trace in of_axis:
            found[trace.key][axis] = _by_marker(axis, trace, table) or by_sequence[trace.key]
    for key, fits in _permuted(traces, found).items():
        found[key].update(fits)
    return found


def _by_marker(axis: str, trace: Trace, table: MarkerTable) -> VariantFit | None:
    value = trace.shape.variants[axis]
    marker = table.find(axis, trace.operators, trace.has_all_operators)
    if marker is None or not table.knows(axis, value):
        return None
    if marker.value == value:
        return VariantFit("proven", _shown(marker, trace.operators))
    return VariantFit("contradicted", _shown(marker, trace.operators), marker.value)


def _shown(marker: Marker, operators: Mapping[str, int]) -> str:
    called = [f"{operators[name]} {name}" for name in marker.present if operators.get(name)]
    return ", ".join([*called[:1], *(f"no {name}" for name in marker.absent)])


def _by_sequence(axis: str, traces: Sequence[Trace]) -> dict[str, VariantFit]:
    """Runner by runner. Siblings are alike but for ``axis``; the exchange of two values is voted on by all siblings of
    the runner, whatever their other variants, rank, size and epoch."""
    found: dict[str, VariantFit] = {}
    for of_runner in _grouped(traces, lambda trace: (str(trace.shape.runner), trace.shape.unit, trace.stage)):
        everywhere: list[list[Trace]] = []
        for context in _grouped(of_runner, lambda trace: [pair for pair in trace.variants if pair[0] != axis]):
            positions = _grouped(context, lambda trace: (trace.rank, trace.size, trace.epoch))
            for siblings in positions:
                for trace in siblings:
                    found[trace.key] = _among(axis, trace, [other for other in siblings if other is not trace])
            found.update(_chance(axis, positions, found))
            everywhere += positions
        found.update(_traded(axis, everywhere, found))
    return found


def _grouped(traces: Iterable[Trace], by: Callable[[Trace], Any]) -> list[list[Trace]]:
    groups: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        groups[repr(by(trace))].append(trace)
    return list(groups.values())


def _among(axis: str, trace: Trace, siblings: Sequence[Trace]) -> VariantFit:
    others = [other for other in siblings if other.sequence is not None]
    if trace.sequence is None:
        return VariantFit("unproven", "no operators were recorded")
    if not others:
        return VariantFit("unproven", "no marker, and no trace of another value to compare with")
    equal = [other.shape.variants[axis] for other in others if other.sequence == trace.sequence]
    if equal:
        return VariantFit("unproven", f"indistinct: the same operators as {axis} {', '.join(sorted(equal))}")
    return VariantFit("distinct", f"operators differ from {axis} {_names(axis, others)}")


def _names(axis: str, traces: Sequence[Trace]) -> str:
    return ", ".join(sorted(other.shape.variants[axis] for other in traces))


def _chance(axis: str, positions: Sequence[Sequence[Trace]], found: Mapping[str, VariantFit]) -> dict[str, VariantFit]:
    """Two values whose sequences are equal at most positions and differ at a few.

    What differs there is not the value: the first capture of a process sets things up that later ones find ready.
    """
    equal: Counter[tuple[str, str]] = Counter()
    differing: dict[tuple[str, str], list[tuple[Trace, Trace]]] = defaultdict(list)
    for siblings in positions:
        for low, high in _pairs(axis, siblings):
            values = (low.shape.variants[axis], high.shape.variants[axis])
            if low.sequence == high.sequence:
                equal[values] += 1
            else:
                differing[values].append((low, high))
    changed: dict[str, VariantFit] = {}
    for values, pairs in differing.items():
        if equal[values] < len(pairs):
            continue
        for low, high in pairs:
            for trace, other in ((low, high), (high, low)):
                if found[trace.key].word == "distinct":
                    text = f"operators differ from {axis} {other.shape.variants[axis]} here, and in few other traces"
                    changed[trace.key] = VariantFit("unproven", text)
    return changed


def _pairs(axis: str, siblings: Sequence[Trace]) -> Iterable[tuple[Trace, Trace]]:
    """Every two siblings with recorded operators, the lower value first."""
    recorded = [trace for trace in siblings if trace.sequence is not None]
    return combinations(sorted(recorded, key=lambda trace: trace.shape.variants[axis]), 2)


def _traded(axis: str, positions: Sequence[Sequence[Trace]], found: Mapping[str, VariantFit]) -> dict[str, VariantFit]:
    """Two values whose sequences are exchanged at some positions (rank, size, epoch, other variants).

    Most positions decide; the others hold each other's value. Where as many say so as say otherwise nobody knows which
    label is right, so none is distinct.
    """
    pairs: dict[Any, list[tuple[Trace, Trace]]] = defaultdict(list)
    for siblings in positions:
        for low, high in _pairs(axis, siblings):
            if found[low.key].word == "distinct" and found[high.key].word == "distinct":
                values = (low.shape.variants[axis], high.shape.variants[axis])
                pairs[(values, frozenset((low.sequence, high.sequence)))].append((low, high))
    changed: dict[str, VariantFit] = {}
    for pair in pairs.values():
        ways = Counter(low.sequence for low, _ in pair)
        if len(ways) < 2:
            continue
        (usual, most), (_, fewer) = ways.most_common(2)
        for low, high in pair:
            for trace, other in ((low, high), (high, low)):
                if most == fewer:
                    text = f"its operators change places with {axis} {other.shape.variants[axis]} between traces"
                    changed[trace.key] = VariantFit("unproven", text)
                elif low.sequence != usual:
                    text = (
                        f"the operators of {axis} {other.shape.variants[axis]} in {most} of {most + fewer} comparisons"
                    )
                    changed[trace.key] = VariantFit("contradicted", text, other.shape.variants[axis])
    return changed


def _permuted(
    traces: Sequence[Trace], found: Mapping[str, Mapping[str, VariantFit]]
) -> dict[str, dict[str, VariantFit]]:
    """Traces of one size whose labels changed places in several axes at once, so that no two of one axis traded.

    Each has the operators that another's whole label usually has, at most positions of the runner; and all of them
    together are labelled with what they hold, in another order. Where two hold the same (sparse attention that is dense
    at small sizes) nothing is contradicted.
    """
    changed: dict[str, dict[str, VariantFit]] = {}
    for of_runner in _grouped(traces, lambda trace: (str(trace.shape.runner), trace.shape.unit, trace.stage)):
        users: dict[str | None, Counter[tuple[tuple[str, str], ...]]] = defaultdict(Counter)
        for trace in of_runner:
            users[trace.sequence][trace.variants] += 1
        for position in _grouped(of_runner, lambda trace: (trace.rank, trace.size, trace.epoch)):
            words = {fit.word for trace in position for fit in found[trace.key].values()}
            held = {trace.key: _usual(users[trace.sequence]) for trace in position if trace.sequence is not None}
            if "proven" in words or len(held) < len(position):
                continue
            if sorted(map(repr, held.values())) != sorted(repr(trace.variants) for trace in position):
                continue
            for trace in position:
                values = dict(held[trace.key] or ())
                axes = [axis for axis, value in trace.variants if values.get(axis, value) != value]
                text = f"the operators of {', '.join(f'{axis} {value}' for axis, value in values.items())} elsewhere"
                if any(found[trace.key][axis].holds != values[axis] for axis in axes):
                    changed[trace.key] = {axis: VariantFit("contradicted", text, values[axis]) for axis in axes}
    return changed


def _usual(users: Counter[tuple[tuple[str, str], ...]]) -> tuple[tuple[str, str], ...] | None:
    """Whose operators they are at most positions; None where two have them as often."""
    (values, most), *others = users.most_common(2)
    return None if others and others[0][1] == most else values
