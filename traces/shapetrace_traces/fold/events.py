"""Folding: each event is looked at once, and only as far as its category asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from shapetrace_traces.fold.calls import Calls
from shapetrace_traces.fold.graphs import Graphs, kind_of
from shapetrace_traces.fold.spans import Spans
from shapetrace_traces.fold.values import MAX_MICROSECONDS, MAX_NAME_CHARACTERS, microseconds, text
from shapetrace_traces.reader.errors import UnreadableTraceError

MAX_CATEGORIES = 64
"""Distinct categories kept; Kineto has about twenty."""
_CATEGORY_LENGTH = 64
"""Characters at the most; Kineto's have about twenty."""
NO_CATEGORY = "(none)"
OTHER_CATEGORIES = "(other)"
MAX_KNOWN = 1000
"""Names of runtime calls that are remembered; CUDA and HIP have some hundreds."""
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")
STACK_CATEGORY = "python_function"

_Take = Callable[[Any, int, list[Any]], None]


class Fold:
    """What a trace's events come to."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.spans = Spans()
        self.graphs = Graphs()
        self._kinds: dict[str, int | None] = {}
        """What runtime calls of these names are to a graph."""
        takes: dict[str, _Take] = {"cpu_op": self._take_call, "user_annotation": self._take_span}
        takes.update(dict.fromkeys(GPU_CATEGORIES, self._take_activity))
        takes.update(dict.fromkeys(RUNTIME_CATEGORIES, self._take_runtime))
        self._frames = 0
        # events, what takes them, sum of their durations
        self._table: dict[Any, list[Any]] = {name: [0, take, None] for name, take in takes.items()}

    def add(self, events: Iterable[Any], first: int) -> None:
        """Take in a batch; ``first`` is the number of its first event."""
        table, frames = self._table, 0
        for number, event in enumerate(events, first):
            # by [], which is faster than get, and tells what is no object too
            try:
                category = event["cat"]
            except KeyError:
                category = None
            except (TypeError, IndexError):
                raise UnreadableTraceError(f"event {number} is not an object") from None
            if category == STACK_CATEGORY:  # nine of ten
                frames += 1
                continue
            try:
                entry = table[category]
            except (KeyError, TypeError):
                entry = self._entry(category)
            entry[0] += 1
            take = entry[1]
            if take is None:
                continue
            try:
                is_complete = event["ph"] == "X"
            except KeyError:
                continue
            if is_complete:
                take(event, number, entry)
        self._frames += frames

    def _entry(self, category: Any) -> list[Any]:
        if category is None:
            category = NO_CATEGORY
        elif not isinstance(category, str) or len(category) > _CATEGORY_LENGTH or len(self._table) >= MAX_CATEGORIES:
            category = OTHER_CATEGORIES
        return self._table.setdefault(category, [0, None, None])

    @property
    def categories(self) -> dict[str, int]:
        """Category -> events."""
        counts = {name: count for name, (count, _, _) in self._table.items()} | {STACK_CATEGORY: self._frames}
        return {name: count for name, count in sorted(counts.items()) if count}

    @property
    def runtime_calls(self) -> Collection[str]:
        """Names of runtime calls, the first thousand."""
        return self._kinds.keys()

    @property
    def gpu_microseconds(self) -> dict[str, float]:
        """Category -> sum of the durations, in the order of the file."""
        return {name: microseconds for name, (_, _, microseconds) in self._table.items() if microseconds is not None}

    def _take_call(self, event: Any, number: int, _: list[Any]) -> None:
        try:
            name, start, duration = event["name"], event["ts"], event["dur"]
        except KeyError:
            name, start, duration = event.get("name"), event.get("ts"), event.get("dur", 0)
        if type(start) is not float or not -MAX_MICROSECONDS < start < MAX_MICROSECONDS:
            start = microseconds(start, number)
        if type(duration) is not float or not -MAX_MICROSECONDS < duration < MAX_MICROSECONDS:
            duration = microseconds(duration, number)
        self.calls.add(name if type(name) is str else text(name, number), start, duration, event)

    def _take_span(self, event: Any, number: int, _: list[Any]) -> None:
        start, duration = microseconds(event.get("ts"), number), microseconds(event.get("dur", 0), number)
        self.spans.add(text(event.get("name"), number), start, duration, event, number)

    def _take_runtime(self, event: Any, number: int, _: list[Any]) -> None:
        try:
            kind = self._kinds[event["name"]]
        except (KeyError, TypeError):  # new, or no name
            kind = self._new_kind(text(event.get("name"), number))
        if kind is not None:
            start = event.get("ts")
            if type(start) is not float or not -MAX_MICROSECONDS < start < MAX_MICROSECONDS:
                start = microseconds(start, number)
            self.graphs.add(kind, start, event, number)

    def _new_kind(self, name: str) -> int | None:
        kind = kind_of(name)
        if len(self._kinds) < MAX_KNOWN and len(name) < MAX_NAME_CHARACTERS:
            self._kinds[name] = kind
        return kind

    def _take_activity(self, event: Any, number: int, entry: list[Any]) -> None:
        duration = event.get("dur", 0)
        if type(duration) is not float or not -MAX_MICROSECONDS < duration < MAX_MICROSECONDS:
            duration = microseconds(duration, number)
        entry[2] = duration if entry[2] is None else entry[2] + duration
        self.graphs.add_activity(event)
