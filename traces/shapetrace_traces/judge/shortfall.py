"""Labels that claim more rows than their traces have, where no one assignment names what they hold. Pure.

More rows than claimed may be padding, fewer never are. What else makes fewer (:mod:`stray` has the list) is the rule of
a family, and not of one trace: rows that are sharded or stop growing follow the size all the same. So a label is not
borne out only where most of its family follow a rule that this trace breaks, or where all labels slipped by as many
places of their list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shapetrace_traces.judge.fit import Series
from shapetrace_traces.judge.padding import is_explained_by_parts, is_explained_with_limit
from shapetrace_traces.judge.stray import Products, is_called_alike

MIN_EXACT = 3
"""As many traces with the claimed rows are a rule, also where they are not most of the family."""
MIN_SLIPPED = 3
"""As many labels have to have slipped."""


@dataclass(frozen=True)
class Shortfall:
    """Which labels the rows of a family do not bear out."""

    evidence: Mapping[str, str]
    """Trace -> why."""
    is_rule_known: bool
    """Whether the others follow one rule, so that they can be judged without these."""


def find_shortfall(
    labels: Mapping[str, int], products: Mapping[str, Products], series: Sequence[Series], width: int = 1
) -> Shortfall | None:
    """The traces that have fewer rows than claimed in every product whose rows vary; None where there is no such."""
    varying = [item for item in series if len(set(item.rows.values())) > 1]
    sure = [item for item in varying if item.may_condemn]
    if not sure:
        return None
    claimed = set().union(*(_below_claim(labels, item, width) for item in sure))
    short = claimed & _in_all(varying, [_below_rule(labels, products, item, width) for item in varying])
    is_rule_known = bool(short)
    if not short and any(_is_slipped(labels, item, width) for item in sure) and is_called_alike(products, labels):
        short = _in_all(varying, [_below_claim(labels, item, width) for item in varying])
    evidence = {}
    for item in sorted(sure, key=lambda item: (item.calls, item.name)):  # the one that is called most is shown
        for trace in short & _below_claim(labels, item, width):
            few = f"rows {item.rows[trace]}, fewer than the {width * labels[trace]} that its label claims"
            evidence[trace] = f"{item.name} {few}"
    return Shortfall(evidence, is_rule_known) if evidence else None


def _in_all(series: Sequence[Series], short: Sequence[set[str]]) -> set[str]:
    """Those that are short in each of the series that they are in."""
    some = set().union(*short)
    return {
        trace
        for trace in some
        if all(trace in found or trace not in item.rows for item, found in zip(series, short, strict=True))
    }


def _below_claim(labels: Mapping[str, int], series: Series, width: int) -> set[str]:
    return {trace for trace, rows in series.rows.items() if rows < width * labels[trace]}


def _below_rule(labels: Mapping[str, int], products: Mapping[str, Products], series: Series, width: int) -> set[str]:
    """Traces with fewer rows than the factor of the others gives them, though some of these have more rows than they.

    Where the others have the very rows that are claimed, padding cannot have made so many of them. Of another factor it
    may have: then it must not explain the rows.
    """
    ratios = {trace: Fraction(rows, labels[trace]) for trace, rows in series.rows.items()}
    counts = Counter(ratios.values())
    factor, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    if counts[Fraction(width)] >= MIN_EXACT:
        factor = Fraction(width)
    elif count < 2 or 2 * count <= len(ratios):
        return set()
    if factor != width and is_explained_by_parts(labels, series.rows, width):
        return set()
    exact = [trace for trace, ratio in ratios.items() if ratio == factor]
    # rounding up gives several sizes the rows of one: of a width that nobody told, sharded, they look like this
    lumped = {series.rows[trace] for trace in exact} if is_explained_with_limit(labels, series.rows) else set()
    return {
        trace
        for trace, rows in series.rows.items()
        if rows < factor * labels[trace]
        and rows not in lumped
        and any(series.rows[other] > rows and is_called_alike(products, (trace, other)) for other in exact)
    }


def _is_slipped(labels: Mapping[str, int], series: Series, width: int) -> bool:
    """Whether each trace has the rows of the label that is so many places before its own, and nothing explains that."""
    order = sorted(series.rows, key=lambda trace: labels[trace])
    for places in range(1, len(order) - MIN_SLIPPED + 1):
        pairs = zip(order[places:], order, strict=False)
        if all(series.rows[trace] == width * labels[before] for trace, before in pairs):
            first = series.rows[order[0]] < width * labels[order[0]]
            return first and not is_explained_with_limit(labels, series.rows)
    return False
