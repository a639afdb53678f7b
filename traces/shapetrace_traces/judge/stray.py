"""One wrong label among right ones: a trace with fewer rows than its label claims, where all others fit. Pure.

A label that no trace of the family holds cannot be found by handing the family's labels round (:mod:`fit`), and more
rows than claimed may be padding. Fewer rows are never padding; what else makes them is told apart so:

- a batch split in parts: its products are called more often than the siblings', or there are more products;
- rows sharded over ranks: all sizes share the factor, or the sharded rows stand beside products that have them all;
- rows that stop growing: no sibling has more rows;
- rows that are the data's (experts) or that do not vary: they do not follow the size in every product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shapetrace_traces.judge.fit import Series

MIN_OTHERS = 2
"""As many labels have to fit before one that does not is wrong."""

Products = Mapping[str, Mapping[int, int]]
"""Product -> rows -> calls."""


@dataclass(frozen=True)
class Stray:
    """A trace whose label is wrong."""

    trace: str
    size: int
    """What it holds."""
    evidence: str


def find_stray(
    labels: Mapping[str, int], products: Mapping[str, Products], series: Sequence[Series], width: int = 1
) -> Stray | None:
    """The one trace of a family whose label is too large, None where all may be right or several are wrong.

    ``labels`` maps trace -> size, ``series`` are the rows of the family's ``products``; ``width`` is how many rows a
    label claims for each unit of its size.
    """
    varying = [item for item in series if len(set(item.rows.values())) > 1]
    if not varying or not is_called_alike(products, labels):
        return None
    # products with another factor support one with the claimed rows; alone, padding can look like such a factor
    claimed = [item for item in varying if len(_misfits(labels, item, width)) == 1]
    if not claimed or len(labels) - 1 < MIN_OTHERS:
        return None
    shown = max(claimed, key=lambda item: (item.calls, item.name))
    trace = _misfits(labels, shown, width)[0]
    others = {labels[other] for other in labels if other != trace}
    size = Fraction(shown.rows[trace], width)
    if size.denominator != 1 or size > labels[trace] or size in others or size > max(others):
        return None
    held = {**labels, trace: int(size)}
    if any(len({Fraction(rows, held[key]) for key, rows in item.rows.items()}) > 1 for item in varying):
        return None
    each = "the size" if width == 1 else f"{width} x the size"
    evidence = f"{shown.name} rows {shown.rows[trace]}, and {each} in all other traces"
    return Stray(trace, int(size), evidence)


def is_called_alike(products: Mapping[str, Products], traces: Iterable[str]) -> bool:
    """Whether each of the traces calls the same products, each as often as every other trace does."""
    calls = [{name: sum(rows.values()) for name, rows in products[trace].items()} for trace in traces]
    return all(item == calls[0] for item in calls)


def _misfits(labels: Mapping[str, int], series: Series, width: int) -> list[str]:
    """The traces that do not have the rows that their labels claim."""
    return [trace for trace, rows in series.rows.items() if rows != width * labels[trace]]
