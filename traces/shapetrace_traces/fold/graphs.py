"""Graphs: what was launched while a stream was being captured, and what ran when a graph was launched.

AMD's tracer names runtime calls ``hip...`` and NVIDIA's ``cuda...`` and ``cu...``, some with a version at the end
(``cudaStreamBeginCapture_v10000``); both write them into the categories ``cuda_runtime`` and ``cuda_driver``. The GPU
activities of one graph launch carry its ``correlation`` on both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shapetrace_traces.fold.calls import Scope, Thread
from shapetrace_traces.fold.values import scalar

MAX_HELD = 1_000_000
"""Launches, and as many GPU activities: 28 MB, and more while they are compared."""
MAX_WINDOWS = 10_000
_MAX_THREADS = 10_000
_NO_CORRELATION = -1
_LARGEST = 2**62

KERNEL, COPY, BEGIN, END, GRAPH = range(5)


def kind_of(name: str) -> int | None:
    """What a runtime call is to a graph; None for the many that are nothing to it."""
    if "Launch" in name and "Kernel" in name and "Graph" not in name:
        return KERNEL
    if ("Memcpy" in name or "Memset" in name) and "Graph" not in name:
        return COPY
    if "StreamBeginCapture" in name:
        return BEGIN
    if "StreamEndCapture" in name:
        return END
    return GRAPH if "GraphLaunch" in name else None


@dataclass
class Window:
    """A stream capture, from its begin to its end on one thread; captures inside one another count as one."""

    scope: Scope
    launches: int = 0
    """Kernels."""
    copies: int = 0
    """Memory copies and fills."""


@dataclass
class Captures:
    """All windows of a trace and what fell into them."""

    windows: list[Window] = field(default_factory=list)
    """In order of their begin."""
    unpaired: int = 0
    """Begins and ends that have no partner in the trace."""
    elsewhere: int = 0
    """Launches and copies of other threads during a window: whether they were captured is not in the trace."""
    activities: int = 0
    """GPU activities that were launched in a window: they ran, and were not captured."""


class Graphs:
    """Runtime calls and GPU activities."""

    def __init__(self) -> None:
        self._kinds: dict[str, int | None] = {}
        self._threads: dict[Thread, int] = {}
        self._starts = array("d")
        self._codes = array("I")
        """Twice the thread's number, plus 1 for a copy."""
        self._marks: list[tuple[float, int, bool, Thread]] = []
        self._replays: list[int] = []
        self._launch_correlations = array("q")
        self._correlations = array("q")
        self.launches = 0
        self.graph_launches = 0
        self.too_many = 0
        """Launches, windows and activities that came when no more could be held: then nothing is known of windows."""

    def kind(self, name: str) -> int | None:
        """:func:`kind_of`, remembered."""
        try:
            return self._kinds[name]
        except KeyError:
            kind = kind_of(name)
            if len(self._kinds) < MAX_WINDOWS and len(name) < 200:
                self._kinds[name] = kind
            return kind

    def add(self, kind: int, start: float, event: Any, number: int) -> None:
        """A runtime call that has a kind."""
        if kind == GRAPH:
            self.graph_launches += 1
            if len(self._replays) < MAX_HELD:
                self._replays.append(_correlation(event))
            else:
                self.too_many += 1
            return
        thread = scalar(event.get("pid")), scalar(event.get("tid"))
        if kind in (BEGIN, END):
            if len(self._marks) < 2 * MAX_WINDOWS:
                self._marks.append((start, number, kind == BEGIN, thread))
            else:
                self.too_many += 1
            return
        if kind == KERNEL:
            self.launches += 1
        code = self._threads.get(thread)
        if code is None and len(self._threads) < _MAX_THREADS:
            code = self._threads[thread] = len(self._threads)
        if code is None or len(self._starts) >= MAX_HELD:
            self.too_many += 1
            return
        self._starts.append(start)
        self._codes.append(2 * code + (kind == COPY))
        self._launch_correlations.append(_correlation(event))

    def add_activity(self, event: Any) -> None:
        """Something that ran on a GPU."""
        if len(self._correlations) >= MAX_HELD:
            self.too_many += 1
            return
        self._correlations.append(_correlation(event))

    def captures(self) -> Captures:
        """Pair begins with ends, and see what lies between."""
        found = self._paired()
        if not found.windows:
            return found
        by_thread: dict[int, _Spans] = {}
        for window in found.windows:
            number = self._threads.get(window.scope.thread, -1)
            by_thread.setdefault(number, _Spans()).add(window.scope, window)
        anywhere = _Spans()
        for window in found.windows:
            anywhere.add(window.scope, window)
        inside: set[int] = set()
        for start, code, correlation in zip(self._starts, self._codes, self._launch_correlations, strict=True):
            spans = by_thread.get(code // 2)
            own = spans.at(start) if spans is not None else None
            if own is None:
                found.elsewhere += anywhere.at(start) is not None
                continue
            if code % 2:
                own.copies += 1
            else:
                own.launches += 1
            inside.add(correlation)
        inside.discard(_NO_CORRELATION)
        found.activities = sum(correlation in inside for correlation in self._correlations)
        return found

    def _paired(self) -> Captures:
        opened: dict[Thread, list[float]] = {}
        found = Captures()
        for start, _, is_begin, thread in sorted(self._marks, key=lambda mark: mark[:2]):
            begins = opened.setdefault(thread, [])
            if is_begin:
                begins.append(start)
            elif not begins:
                found.unpaired += 1
            else:
                begin = begins.pop()
                if not begins:
                    found.windows.append(Window(Scope(begin, start, thread)))
        found.unpaired += sum(len(begins) for begins in opened.values())
        found.windows.sort(key=lambda window: (window.scope.begin, window.scope.end))
        return found

    @property
    def activities(self) -> int:
        """GPU activities that are held."""
        return len(self._correlations)

    def replays(self) -> Counter[int]:
        """GPU activities of a graph launch -> how many launches have so many."""
        counts = Counter[int]()
        for correlation in self._replays:
            if correlation != _NO_CORRELATION:
                counts[correlation] = 0
        if counts:
            for correlation in self._correlations:
                if correlation in counts:
                    counts[correlation] += 1
        return Counter(counts.values())


class _Spans:
    """Spans of time in order of their begin; of those that overlap, an earlier one that lasts longer goes on."""

    def __init__(self) -> None:
        self._begins: list[float] = []
        self._spans: list[tuple[float, Window]] = []

    def add(self, scope: Scope, window: Window) -> None:
        end = scope.end
        if self._spans and self._spans[-1][0] > end:
            end, window = self._spans[-1]
        self._begins.append(scope.begin)
        self._spans.append((end, window))

    def at(self, time: float) -> Window | None:
        """A window that a time lies in."""
        place = bisect_right(self._begins, time) - 1
        if place < 0 or self._spans[place][0] < time:
            return None
        return self._spans[place][1]


def _correlation(event: Any) -> int:
    arguments = event.get("args")
    value = arguments.get("correlation") if hasattr(arguments, "get") else None
    return value if isinstance(value, int) and 0 <= value < _LARGEST else _NO_CORRELATION
