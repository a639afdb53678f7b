"""Labels that a cursor gave: SGLang 0.5.18 to 0.5.21 name the n-th trace after the n-th size, largest first, whether or
not each size was captured once. With v captures of each size the n-th trace holds the (n div v)-th size.

Such labels are no permutation of the right ones, and look like padding: every trace has at least the rows that its
label claims. They differ from padding in one thing: padding leaves a size that is a padded one as it is. Numbers only,
pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shapetrace_traces.judge.fit import Series
from shapetrace_traces.judge.padding import is_explained, is_explained_with_limit

MIN_TRACES = 3
STEPS_EACH = 3
"""Steps of the profiler for each capture: schedule(wait=2, warmup=0, active=1). So the n-th trace, from 0 on, is of
step 3 n + 2."""


@dataclass(frozen=True)
class Slip:
    """What the traces of a family really hold."""

    held: Mapping[str, int]
    """Trace -> size."""
    turns: Mapping[str, int]
    """Trace -> its place among the captures of that size, from 0 on."""
    each: int
    """Captures of each size."""
    factor: Fraction
    series: Series
    """What shows it."""


def find_slip(
    labels: Mapping[str, int],
    series: Sequence[Series],
    steps: Mapping[str, int | None] | None = None,
    signatures: Mapping[str, Hashable] | None = None,
) -> Slip | None:
    """The slip that all products show, None where the labels may be right or no one slip fits.

    ``labels`` are the sizes that the names of one runner and rank claim, each once; ``steps`` the number of each
    trace's profiler step. The largest size is the first that is captured and the first in the cursor's list, so its
    trace is rightly named and tells the factor of every product. Where that trace is gone the steps have to confirm the
    places.

    Rows that stop growing look like the captures of the largest size. So the ``signatures`` (operators) have to take
    turns; or no padding with a limit explains the rows, and two traces below the largest size share their rows, as they
    never do before they stop growing, or the signatures of those that share a size differ.
    """
    if len(set(labels.values())) < len(labels):
        return None
    varying = [item for item in series if item.may_condemn and len(set(item.rows.values())) > 1]
    if not varying or any(is_explained(labels, item.rows) for item in varying):
        return None
    whole = [item for item in varying if len(item.rows) == len(labels) >= MIN_TRACES]
    whole.sort(key=lambda item: (-item.calls, item.name))
    largest = max(labels, key=lambda trace: labels[trace])
    for item in whole:
        factor = Fraction(item.rows[largest], labels[largest])
        if factor < 1:  # rows that stop growing (a limit of the engine) look just like that
            continue
        slip = _with_factor(labels, item, factor, {})
        is_told = slip is not None and set(slip.held.values()) <= set(labels.values())
        if slip is not None and is_told and _is_borne_out(slip, labels, varying, signatures or {}):
            return slip
    if not steps or any(steps.get(trace) is None for trace in labels):
        return None
    for item in whole:
        slip = _with_factor(labels, item, Fraction(1), steps)
        if slip is not None and _is_borne_out(slip, labels, varying, signatures or {}):
            return slip
    return None


def _is_borne_out(
    slip: Slip, labels: Mapping[str, int], series: Sequence[Series], signatures: Mapping[str, Hashable]
) -> bool:
    """Whether all products agree, and the captures of a size are no rows that were padded and stopped growing."""
    if not all(_agrees(slip.held, item) for item in series):
        return False
    if _take_turns(slip, signatures):
        return True
    if any(is_explained_with_limit(labels, item.rows) for item in series):
        return False
    return _shares_below(slip.held) or _are_apart(slip.held, signatures)


def _take_turns(slip: Slip, signatures: Mapping[str, Hashable]) -> bool:
    """Whether the captures of one turn are alike at all sizes and unlike those of the other turns."""
    by_turn: dict[int, set[Hashable]] = defaultdict(set)
    for trace, turn in slip.turns.items():
        by_turn[turn].add(signatures.get(trace))
    alike = [next(iter(found)) for found in by_turn.values() if len(found) == 1]
    is_repeated = len(slip.turns) > len(by_turn)
    return is_repeated and len(by_turn) > 1 and None not in alike and len(set(alike)) == len(by_turn)


def _with_factor(
    labels: Mapping[str, int], series: Series, factor: Fraction, steps: Mapping[str, int | None]
) -> Slip | None:
    held: dict[str, int] = {}
    for trace, rows in series.rows.items():
        size = Fraction(rows) / factor
        if size.denominator != 1 or size < labels[trace]:
            return None
        held[trace] = int(size)
    # the sizes that were captured: the first may have lost its file, the last ones were never reached
    sizes = sorted({*labels.values(), *held.values()}, reverse=True)
    place = {size: number for number, size in enumerate(sizes)}
    if any(step != STEPS_EACH * place[labels[trace]] + STEPS_EACH - 1 for trace, step in steps.items()):
        return None
    for each in range(2, len(sizes) + 1):
        if all(place[held[trace]] == place[labels[trace]] // each for trace in held):
            turns = {trace: place[labels[trace]] % each for trace in held}
            return Slip(held, turns, each, factor, series)
    return None


def _shares_below(held: Mapping[str, int]) -> bool:
    """Whether a size that is not the largest was captured twice."""
    below = [size for size in held.values() if size < max(held.values())]
    return len(set(below)) < len(below)


def _are_apart(held: Mapping[str, int], signatures: Mapping[str, Hashable]) -> bool:
    """Whether the captures of each size differ from each other."""
    known = [(size, signatures.get(trace)) for trace, size in held.items()]
    return None not in [signature for _, signature in known] and len(set(known)) == len(known)


def _agrees(held: Mapping[str, int], series: Series) -> bool:
    return len({Fraction(rows, held[trace]) for trace, rows in series.rows.items()}) == 1
