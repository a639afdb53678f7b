"""Labels that may all have slipped by the factor between two products of a model. Numbers only, pure.

Where parts are sharded by two, labels that slipped by two (32 on what is 64, 16 on what is 32, ...) have a product with
the very rows that they claim, and one with twice as many: as right labels have whose other parts are gathered over two
replicas. No product tells the one from the other, only the rows at the forward call do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from shapetrace_traces.judge.fit import Series


def find_rival(sizes: Mapping[str, int], series: Iterable[Series], width: int = 1) -> str | None:
    """A product whose rows are not the claimed ones and could be those of other sizes; None where there is none.

    ``sizes`` maps trace -> size, ``width`` is how many rows a label claims for each unit of its size. Two sizes have
    different rows in the same order, and a size is a whole number: so rows that were rounded up, of one token of
    several, or of experts, are a rival only where they look like that.
    """
    for item in series:
        rows = sorted({(sizes[trace], count) for trace, count in item.rows.items() if trace in sizes})
        grow = all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(rows))
        if len(rows) < 2 or not grow or any(count % width for _, count in rows):
            continue
        if any(count != width * size for size, count in rows):
            size, count = rows[-1]
            return f"{item.name} has rows {count} where the label is {size}, as size {count // width} would"
    return None
