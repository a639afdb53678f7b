"""Whether padding explains the rows of a product. Numbers only, pure."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor


def is_explained(labels: Mapping[str, int], rows: Mapping[str, int]) -> bool:
    """Whether labels and rows can both be right: rows = factor x (the smallest padded size that is large enough)."""
    least, most = _factors(labels, rows, list(rows))
    return least < most


def is_explained_with_limit(labels: Mapping[str, int], rows: Mapping[str, int]) -> bool:
    """The same where rows may stop growing: the traces with the most rows may have too few."""
    growing = [trace for trace, count in rows.items() if count < max(rows.values())]
    if not growing:
        return True
    least, most = _factors(labels, rows, growing)
    return least < most


def is_explained_by_parts(labels: Mapping[str, int], rows: Mapping[str, int], width: int) -> bool:
    """The same, with a factor that is a multiple or a part of the claimed ``width``: gathered or sharded."""
    growing = [trace for trace, count in rows.items() if count < max(rows.values())]
    if not growing:
        return True
    least, most = (bound / width for bound in _factors(labels, rows, growing))
    parts = ceil(1 / most)  # 1/parts <= most, and no larger part is
    return least < Fraction(1, parts) or least < floor(most)


def _factors(labels: Mapping[str, int], rows: Mapping[str, int], growing: list[str]) -> tuple[Fraction, Fraction]:
    """The factors that explain the rows: more than the first number, at most the second.

    Of a factor f that makes it true: f x label <= rows of every trace (that has no limit), and no smaller row count of
    the family would have been enough, so that the next smaller one is < f x label.
    """
    below: dict[int, int] = {}
    last = 0
    for count in sorted(set(rows.values())):
        below[count], last = last, count
    least = max(Fraction(below[count], labels[trace]) for trace, count in rows.items())
    return least, min(Fraction(rows[trace], labels[trace]) for trace in growing)
