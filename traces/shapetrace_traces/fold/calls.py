"""Operator calls: 20 bytes of each are held, because a scope and the order in time are known at the end only."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import simdjson

from shapetrace_traces.fold.values import bounded, plain_list, scalar
from shapetrace_traces.gemm import GEMM_RULES, rows_and_weight

MAX_CALLS = 1_000_000
"""Held, 20 MB; a capture has some thousands."""
MAX_KINDS = 50_000
"""Distinct combinations of name, thread, rows and weight; a capture has some hundreds."""
_LONGEST_DIMS = 256
_RUN = 65_536
"""Calls that are sorted at once."""

Thread = tuple[Any, Any]
"""Process and thread."""


@dataclass(frozen=True)
class Scope:
    """A span of time on one thread."""

    begin: float
    end: float
    thread: Thread


@dataclass(frozen=True)
class _Kind:
    name: str
    thread: Thread
    rows: int | None
    weight: str | None


@dataclass(frozen=True)
class Called:
    """What a scope called."""

    operators: Counter[str]
    sequence_sha256: str | None
    products: Counter[tuple[str, str, int]]
    """Operator, weight, rows -> calls."""


class Calls:
    """Calls in the order of the file."""

    def __init__(self) -> None:
        self._starts = array("d")
        self._durations = array("d")
        self._codes = array("I")
        self._code_of: dict[Any, int] = {}
        self._kinds: list[_Kind] = []
        self._names: dict[str, str] = {}
        self._sorted = 0, True
        """So many calls, and whether they are in the order of time."""
        self._products: dict[Any, tuple[int, str] | None] = {}
        """Operator and its shapes as text -> rows and weight: a model has few, and working them out is the most."""
        self.too_many = 0
        """Calls that came when no more could be held: then nothing is known of any scope."""

    def add(self, name: str, start: float, duration: float, event: Any) -> None:
        """One call of an operator."""
        try:
            key: tuple[Any, ...] = (name, event["pid"], event["tid"])
        except KeyError:
            key = (name, event.get("pid"), event.get("tid"))
        if name in GEMM_RULES:
            product = self._product(name, event)
            if product is not None:
                key += product
        try:
            code: int | None = self._code_of[key]
        except (KeyError, TypeError):  # new, or a process that is a list
            code = self._new_code(key)
        if code is None or len(self._codes) >= MAX_CALLS:
            self.too_many += 1
            return
        self._starts.append(start)
        self._durations.append(duration)
        self._codes.append(code)

    def _product(self, name: str, event: Any) -> tuple[int, str] | None:
        try:
            dims = event["args"]["Input Dims"]
        except (KeyError, TypeError, IndexError):  # no arguments, no shapes, or something else in their place
            return None
        key = (name, dims.mini) if type(dims) is simdjson.Array else None
        if key not in self._products:
            found = rows_and_weight(name, plain_list(dims))
            if key is None or len(self._products) >= MAX_KINDS or len(key[1]) > _LONGEST_DIMS:
                return found
            self._products[key] = found
        return self._products[key]

    def _new_code(self, key: tuple[Any, ...]) -> int | None:
        name, process, thread = key[0], scalar(key[1]), scalar(key[2])
        key = (name, process, thread, *key[3:])
        code = self._code_of.get(key)
        if code is None and len(self._kinds) < MAX_KINDS:
            code = self._code_of[key] = len(self._kinds)
            rows, weight = key[3:] or (None, None)
            name = self._names.setdefault(name, bounded(name))
            self._kinds.append(_Kind(name, (process, thread), rows, weight))
        return code

    def called(self, scope: Scope | None = None) -> Called:
        """What a scope called; of the whole trace without one. Calls are in it that start in it, on its thread."""
        operators: Counter[str] = Counter()
        products: Counter[tuple[str, str, int]] = Counter()
        codes = self._in(scope)
        sequence, is_first = hashlib.sha256(), True
        while some := list(islice(codes, _RUN)):
            names = "\n".join(self._kinds[code].name for code in some)
            sequence.update((names if is_first else "\n" + names).encode("utf-8", "replace"))
            is_first = False
            for code, count in Counter(some).items():
                kind = self._kinds[code]
                operators[kind.name] += count
                if kind.rows is not None and kind.weight is not None:
                    products[kind.name, kind.weight, kind.rows] += count
        return Called(operators, None if is_first else sequence.hexdigest(), products)

    def _are_sorted(self) -> bool:
        """By start; of two that start together the longer one first: as a tracer writes them. Looked at once a count:
        of a combined file each of its many windows is asked for."""
        starts, durations = self._starts, self._durations
        if self._sorted[0] != len(starts):
            pairs = zip(starts, islice(starts, 1, None), durations, islice(durations, 1, None), strict=False)
            in_order = all(
                first < second or (first == second and long >= short) for first, second, long, short in pairs
            )
            self._sorted = len(starts), in_order
        return self._sorted[1]

    def _in(self, scope: Scope | None) -> Iterator[int]:
        is_sorted = self._are_sorted()
        order = range(len(self._codes)) if is_sorted else self._in_time()
        if scope is None:
            return (self._codes[place] for place in order)
        if is_sorted:
            order = range(bisect_left(self._starts, scope.begin), bisect_right(self._starts, scope.end))
        there = {code for code, kind in enumerate(self._kinds) if kind.thread == scope.thread}
        starts, codes = self._starts, self._codes
        return (codes[place] for place in order if scope.begin <= starts[place] <= scope.end and codes[place] in there)

    def _in_time(self) -> Iterable[int]:
        """Places by start; of two that start together the longer one is the caller, then the order of the file."""
        starts, durations = self._starts, self._durations

        def key(place: int) -> tuple[float, float, int]:
            return starts[place], -durations[place], place

        # in runs: sorting takes ten times the memory of what is sorted
        runs = [
            array("I", sorted(range(begin, min(begin + _RUN, len(starts))), key=key))
            for begin in range(0, len(starts), _RUN)
        ]
        return heapq.merge(*runs, key=key)
