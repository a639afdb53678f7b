"""Folding: each event is looked at once, and only as far as its category asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import simdjson

from shapetrace_traces.fold.calls import Calls
from shapetrace_traces.fold.graphs import Graphs
from shapetrace_traces.fold.spans import Spans
from shapetrace_traces.fold.values import MAX_MICROSECONDS, microseconds, text
from shapetrace_traces.reader.errors import UnreadableTraceError

MAX_CATEGORIES = 64
"""Distinct categories kept; Kineto has about twenty."""
NO_CATEGORY = "(none)"
OTHER_CATEGORIES = "(other)"
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")
STACK_CATEGORY = "python_function"

_Take = Callable[[Any, int], None]


class Fold:
    """What a trace's events come to."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.spans = Spans()
        self.graphs = Graphs()
        self.gpu_microseconds: dict[str, float] = {}
        """Category -> sum of the durations, in the order of the file."""
        self._gpu_events: Counter[str] = Counter()
        takes: dict[str, _Take] = {"cpu_op": self._take_call, "user_annotation": self._take_span}
        takes.update(dict.fromkeys(GPU_CATEGORIES, self._take_activity))
        takes.update(dict.fromkeys(RUNTIME_CATEGORIES, self._take_runtime))
        self._table: dict[Any, list[Any]] = {name: [0, take] for name, take in takes.items()}

    def add(self, events: Iterable[Any], first: int) -> None:
        """Take in a batch; ``first`` is the number of its first event."""
        table = self._table
        number = first - 1
        for event in events:
            number += 1
            if type(event) is not simdjson.Object and type(event) is not dict:
                raise UnreadableTraceError(f"event {number} is not an object")
            category = event.get("cat")
            try:
                entry = table[category]
            except (KeyError, TypeError):
                entry = self._entry(category)
            entry[0] += 1
            take = entry[1]
            if take is not None and event.get("ph") == "X":
                take(event, number)

    def _entry(self, category: Any) -> list[Any]:
        if category is None:
            category = NO_CATEGORY
        elif not isinstance(category, str) or len(category) > MAX_CATEGORIES or len(self._table) >= MAX_CATEGORIES:
            category = OTHER_CATEGORIES
        return self._table.setdefault(category, [0, None])

    @property
    def categories(self) -> dict[str, int]:
        """Category -> events."""
        return {name: count for name, (count, _) in sorted(self._table.items()) if count}

    def _take_call(self, event: Any, number: int) -> None:
        start, duration = event.get("ts"), event.get("dur", 0)
        if type(start) is not float or not -MAX_MICROSECONDS < start < MAX_MICROSECONDS:
            start = microseconds(start, number)
        if type(duration) is not float or not -MAX_MICROSECONDS < duration < MAX_MICROSECONDS:
            duration = microseconds(duration, number)
        self.calls.add(text(event.get("name"), number), start, duration, event)

    def _take_span(self, event: Any, number: int) -> None:
        start, duration = microseconds(event.get("ts"), number), microseconds(event.get("dur", 0), number)
        self.spans.add(text(event.get("name"), number), start, duration, event, number)

    def _take_runtime(self, event: Any, number: int) -> None:
        kind = self.graphs.kind(text(event.get("name"), number))
        if kind is not None:
            self.graphs.add(kind, microseconds(event.get("ts"), number), event, number)

    def _take_activity(self, event: Any, number: int) -> None:
        duration = event.get("dur", 0)
        if type(duration) is not float or not -MAX_MICROSECONDS < duration < MAX_MICROSECONDS:
            duration = microseconds(duration, number)
        category = event.get("cat")
        self.gpu_microseconds[category] = self.gpu_microseconds.get(category, 0.0) + duration
        self.graphs.add_activity(event)
