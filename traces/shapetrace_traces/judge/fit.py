"""Whether the rows of matrix products fit the sizes that a family of traces is labelled with. Numbers only, pure.

The claim of a label is ``rows = factor * size`` with one factor for each product of the model. It is tested over a
family: traces of one runner and variant set that differ in nothing but the size. Among all ways to hand the family's
labels to its traces, the only one that can fit such a claim is the one that puts the rows in order, so nothing has to
be searched: the labels are compared with that one assignment.

The factor matters too: labels that all slipped by one (32 on what is 64, 16 on what is 32, ...) fit every product with
a factor of two. So a label is proven only where a product has the very rows that it claims: the size, times the width
that the runner's name tells (tokens a request). Products with other factors (gathered, sharded) support it beside such
a one; what they leave open is in :mod:`rivals`.

What is deliberately not condemned: rows that were padded, rows that stop growing, products that exist at some sizes
only, and anything that an operator with an exact fit contradicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd
from typing import Literal

Word = Literal["proven", "consistent", "unproven", "contradicted"]

MIN_FIT_WITHOUT_ALL = 3
"""A better assignment that leaves traces unexplained (padding) has to explain at least this many."""


@dataclass(frozen=True)
class Series:
    """The rows of one product of the model, in the traces of a family that have it."""

    name: str
    rows: Mapping[str, int]
    """Trace -> rows."""
    calls: int = 1
    """How often the product is called in a trace: its weight against others."""
    may_condemn: bool = True
    """False where the rows were picked among several: such a series may support a label, not contradict it."""


@dataclass(frozen=True)
class Fit:
    """What a family says of one trace's size."""

    word: Word
    evidence: str
    holds: str | None = None
    """The size that a contradicted trace really holds: ``8``, or ``at most 8`` where padding hides which."""
    is_scaled: bool = False
    """The rows fit exactly, with a factor that the label does not claim, in every product."""


@dataclass(frozen=True)
class _Alternative:
    """An assignment of the family's labels that fits a series better than its labels do."""

    series: Series
    moves: Mapping[str, str]
    """Trace -> what it holds instead."""
    calls: int
    explains_all: bool
    factor: Fraction
    is_padded: bool = False


@dataclass
class _Evidence:
    """What the series of a family say, gathered."""

    fits: dict[str, list[tuple[Series, Fraction]]] = field(default_factory=dict)
    varies: set[str] = field(default_factory=set)
    short: dict[str, str] = field(default_factory=dict)
    """Traces with fewer rows than claimed in every product whose rows vary -> the rows of one."""
    alternatives: list[_Alternative] = field(default_factory=list)


def fit_family(labels: Mapping[str, int], series: Iterable[Series], width: int = 1) -> dict[str, Fit]:
    """The size support of each trace. ``labels`` maps trace -> size; traces that a series names must be among them.

    ``width`` is how many rows the label claims for each unit of its size.
    """
    if len(set(labels.values())) < 2:
        return dict.fromkeys(labels, Fit("consistent", "the only size of its family"))
    evidence = _gather(labels, series, width)
    accepted = _accepted(labels, evidence)
    moves = {trace: size for item in accepted for trace, size in item.moves.items()}
    claimed = [item for item in accepted if item.explains_all and item.factor == width]
    settled = {trace for item in claimed for trace in item.series.rows}
    return {trace: _judge(trace, size, width, evidence, accepted, moves, settled) for trace, size in labels.items()}


def _judge(
    trace: str,
    size: int,
    width: int,
    evidence: _Evidence,
    accepted: Sequence[_Alternative],
    moves: Mapping[str, str],
    settled: set[str],
) -> Fit:
    if trace in moves:
        shown = max((item for item in accepted if trace in item.moves), key=lambda item: item.calls).series
        return Fit("contradicted", f"{shown.name} rows {shown.rows[trace]}", moves[trace])
    fits = evidence.fits.get(trace, [])
    if not fits:
        if trace in settled:
            return Fit("proven", "fits the one assignment of sizes that the rows allow")
        if trace in evidence.short:
            few = f"{evidence.short[trace]}, fewer than the {width * size} that its label claims"
            return Fit("consistent", f"{few}: sharded, at a limit, or another size?")
        if trace in evidence.varies:
            return Fit("consistent", "rows grow with the size, with no one factor: padded?")
        return Fit("consistent", "no product's rows vary with the size")
    calls = sum(item.calls for item, _ in fits)
    against = sum(item.calls for item in evidence.alternatives if trace in item.moves)
    if against >= calls:
        return Fit("consistent", "operators disagree: some fit the label, as many fit another size")
    shown, factor = max(fits, key=lambda pair: (pair[1] == width, pair[0].calls, pair[0].name))
    more = f" and {len(fits) - 1} more" if len(fits) > 1 else ""
    claim = f"rows {shown.rows[trace]} = {factor} x {size} in {shown.name}{more}"
    if factor != width:  # rows may be sharded or gathered; labels that slipped look the same
        what = "the size" if width == 1 else f"{width} x the size"
        return Fit("consistent", f"{claim}, and no product has {what} as rows", is_scaled=True)
    return Fit("proven", claim)


def _gather(labels: Mapping[str, int], series: Iterable[Series], width: int) -> _Evidence:
    evidence = _Evidence()
    patterns: dict[tuple[object, ...], list[Series]] = {}
    for item in series:
        if len(set(item.rows.values())) < 2:
            continue  # constant rows say nothing of the size
        for trace, rows in item.rows.items():
            if rows >= width * labels[trace]:
                evidence.short.pop(trace, None)
            elif trace not in evidence.varies:
                evidence.short[trace] = f"{item.name} rows {rows}"
        evidence.varies.update(item.rows)
        common = gcd(*item.rows.values())
        shape = tuple(sorted((trace, rows // common) for trace, rows in item.rows.items()))
        patterns.setdefault((item.may_condemn, shape), []).append(item)
    for group in patterns.values():  # the products of a model have one pattern or two: each is looked at once
        first = group[0]
        ratios = {Fraction(rows, labels[trace]) for trace, rows in first.rows.items()}
        if len(ratios) == 1:
            for item in group:
                some = next(iter(item.rows))
                factor = Fraction(item.rows[some], labels[some])
                for trace in item.rows:
                    evidence.fits.setdefault(trace, []).append((item, factor))
        elif first.may_condemn:
            shown = max(group, key=lambda item: (item.calls, item.name))
            calls = sum(item.calls for item in group)
            found = _alternative(labels, shown, calls, width) or _padded_alternative(labels, shown, calls, width)
            if found is not None:
                evidence.alternatives.append(found)
    return evidence


def _alternative(labels: Mapping[str, int], series: Series, calls: int, width: int) -> _Alternative | None:
    """The assignment that puts the rows in order, if it fits strictly better than the labels do."""
    rows = series.rows
    ordered = sorted(rows, key=lambda trace: (rows[trace], labels[trace], trace))
    assigned = dict(zip(ordered, sorted(labels[trace] for trace in rows), strict=True))
    moves = {trace: size for trace, size in assigned.items() if size != labels[trace]}
    if not moves:
        return None
    ratios = {trace: Fraction(rows[trace], size) for trace, size in assigned.items()}
    factor, fitting = _most(ratios.values())
    if fitting <= _most(Fraction(rows[trace], labels[trace]) for trace in rows)[1]:
        return None
    if any(ratios[trace] != factor for trace in moves):
        return None
    explains_all = fitting == len(rows)
    # padding would explain the labels as they are, unless the rows in order are the very ones that were claimed
    if _is_padded(labels, rows) and not (explains_all and factor == width):
        return None
    anchored = fitting > len(moves)
    if not explains_all and not (anchored and fitting >= MIN_FIT_WITHOUT_ALL):
        return None
    return _Alternative(series, {trace: str(size) for trace, size in moves.items()}, calls, explains_all, factor)


def _padded_alternative(labels: Mapping[str, int], series: Series, calls: int, width: int) -> _Alternative | None:
    """The same where rows are padded: several sizes have equal rows, and a trace that is not among them stands out.

    A label that claims more rows than its trace has is wrong if, with the rows in order, no label does, and enough
    groups of equal rows have a size that needs no padding: neither padding nor rows that stop growing look like that.
    """
    rows = series.rows
    if all(rows[trace] >= width * labels[trace] for trace in rows):
        return None
    left = sorted(labels[trace] for trace in rows)
    moves: dict[str, str] = {}
    exact = 0
    for count in sorted(set(rows.values())):
        group = [trace for trace in rows if rows[trace] == count]
        sizes, left = left[: len(group)], left[len(group) :]
        if width * sizes[-1] > count:
            return None
        exact += width * sizes[-1] == count
        holds = str(sizes[0]) if sizes[0] == sizes[-1] else f"at most {sizes[-1]}"
        moves.update({trace: holds for trace in group if labels[trace] not in sizes})
    if exact < MIN_FIT_WITHOUT_ALL:
        return None
    return _Alternative(series, moves, calls, False, Fraction(width), is_padded=True)


def _most(ratios: Iterable[Fraction]) -> tuple[Fraction, int]:
    counts = Counter(ratios)
    factor = max(counts, key=lambda ratio: (counts[ratio], ratio))
    return factor, counts[factor]


def _is_padded(labels: Mapping[str, int], rows: Mapping[str, int]) -> bool:
    """Whether the labels hold if some traces were given more rows than they need: then nothing is contradicted.

    A permutation of labels gives some trace too few rows, under a factor that several others share; padding never does.
    """
    ratios = [Fraction(count, labels[trace]) for trace, count in rows.items()]
    least = min(ratios)
    return least >= 1 and ratios.count(least) >= 2


def _accepted(labels: Mapping[str, int], evidence: _Evidence) -> list[_Alternative]:
    """The alternatives that no operator speaks against and that agree with each other.

    What padding leaves vague is asked only where nothing says it exactly.
    """
    open_ones = [item for item in evidence.alternatives if not any(trace in evidence.fits for trace in item.moves)]
    open_ones = [item for item in open_ones if not item.is_padded] or open_ones
    sizes: dict[str, set[str]] = {}
    for item in open_ones:
        for trace in item.series.rows:
            if trace in item.moves or item.explains_all:
                sizes.setdefault(trace, set()).add(item.moves.get(trace, str(labels[trace])))
    return [item for item in open_ones if all(len(sizes[trace]) == 1 for trace in item.moves)]
