"""Graphs: what was launched while a stream was being captured, and what ran when a graph was launched.

AMD's tracer names runtime calls ``hip...`` and NVIDIA's ``cuda...`` and ``cu...``, some with a version at the end
(``cudaStreamBeginCapture_v10000``); both write them into the categories ``cuda_runtime`` and ``cuda_driver``. Where
runtime and driver both report one call, they do so under one ``correlation``: it counts once. The GPU activities of one
graph launch carry its ``correlation`` on both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import gt, itemgetter
from typing import Any

from shapetrace_traces.fold.calls import Scope, Thread
from shapetrace_traces.fold.kernels import KernelNames
from shapetrace_traces.fold.values import scalar

MAX_LAUNCHES = 500_000
"""Launches, copies and graph launches held, 10 MB; a capture has some hundreds."""
MAX_ACTIVITIES = 2_000_000
"""GPU activities held, 16 MB."""
MAX_WINDOWS = 10_000
"""Stream captures of a trace; a combined file has one for each shape, and pieces of them."""
_MAX_THREADS = 256
"""That launch; an engine's process has a few."""
_NO_CORRELATION = -1
_LARGEST = 2**62
"""What an array of 64-bit numbers holds, with room for :data:`_NO_CORRELATION`."""

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
    """A stream capture, from its begin to its end on one thread; captures inside a whole one count as one."""

    scope: Scope
    kernels: array[int] = field(default_factory=lambda: array("I"))
    """The number of each launch's name (:class:`KernelNames`), in order of time."""
    copies: int = 0
    """Memory copies and fills."""

    @property
    def launches(self) -> int:
        """Kernels."""
        return len(self.kernels)


@dataclass
class Captures:
    """All windows of a trace and what fell into them."""

    windows: list[Window] = field(default_factory=list)
    """In order of their begin."""
    launches: int = 0
    """Kernels, in windows and out of them."""
    kernels_sha256: str | None = None
    """Of the names of the kernels in all windows."""
    unpaired: int = 0
    """Begins and ends that have no partner in the trace."""
    elsewhere: int = 0
    """Launches and copies of other threads during a window: whether they were captured is not in the trace."""
    activities: int = 0
    """GPU activities that were launched in a window: they ran, and were not captured."""


class _Nodes:
    """Launches, or copies, of one thread."""

    def __init__(self) -> None:
        self.starts = array("d")
        self.correlations = array("q")
        self.kernels = array("I")
        """The number of each launch's name; empty of copies."""

    def sort(self) -> None:
        """Into the order of time, in which a tracer writes one thread's calls anyway."""
        if any(map(gt, self.starts, islice(self.starts, 1, None))):
            order = sorted(range(len(self.starts)), key=self.starts.__getitem__)
            self.starts = array("d", map(self.starts.__getitem__, order))
            self.correlations = array("q", map(self.correlations.__getitem__, order))
            if self.kernels:
                self.kernels = array("I", map(self.kernels.__getitem__, order))

    def during(self, spans: Sequence[tuple[float, float]]) -> list[range]:
        """Places in each of some spans, which are in order; what lies in two belongs to the later one."""
        if not spans:
            return []
        firsts = [bisect_left(self.starts, begin) for begin, _ in spans]
        ends = [bisect_right(self.starts, end) for _, end in spans]
        nexts = [*firsts[1:], len(self.starts)]
        return [
            range(first, max(first, min(end, after))) for first, end, after in zip(firsts, ends, nexts, strict=True)
        ]

    def once(self, places: Iterable[int], seen: set[int]) -> Iterator[int]:
        """Of some places those whose call is not ``seen`` yet; from then on it is."""
        for place in places:
            correlation = self.correlations[place]
            if correlation == _NO_CORRELATION:
                yield place
            elif correlation not in seen:
                seen.add(correlation)
                yield place


class Graphs:
    """Runtime calls and GPU activities."""

    def __init__(self) -> None:
        self._nodes: dict[Thread, tuple[_Nodes, _Nodes]] = {}
        """Thread -> launches, copies."""
        self._marks: list[tuple[float, int, bool, Thread]] = []
        self._replays = array("q")
        self._activities = array("q")
        """The correlation of each."""
        self._counts = [0, 0]
        """Launches, copies: by their kind."""
        self.graph_launches = 0
        self.too_many = 0
        """Launches, windows and activities that came when no more could be held: then nothing is known of windows."""
        self._activities_beyond = 0
        self.names = KernelNames()

    def add(self, kind: int, start: float, event: Any, number: int) -> None:
        """A runtime call that has a kind."""
        if kind > COPY:
            self._add_rare(kind, start, event, number)
            return
        self._counts[kind] += 1
        try:
            thread = event["pid"], event["tid"]
            nodes: tuple[_Nodes, _Nodes] | None = self._nodes[thread]
        except (KeyError, TypeError):  # new, without a thread, or a process that is a list
            nodes = self._of_new_thread((scalar(event.get("pid")), scalar(event.get("tid"))))
        if nodes is None or self._counts[KERNEL] + self._counts[COPY] > MAX_LAUNCHES:
            self.too_many += 1
            return
        of_kind = nodes[kind]
        of_kind.starts.append(start)
        try:
            arguments = event["args"]
        except KeyError:
            arguments = None
        of_kind.correlations.append(_number(arguments))
        if kind == KERNEL:
            of_kind.kernels.append(self.names.code(arguments))

    @property
    def calls(self) -> int:
        """Launches of kernels, also those that could not be held; of those that are reported twice both."""
        return self._counts[KERNEL]

    def _add_rare(self, kind: int, start: float, event: Any, number: int) -> None:
        if kind == GRAPH:
            self.graph_launches += 1
            if len(self._replays) < MAX_LAUNCHES:
                self._replays.append(_correlation(event))
            else:
                self.too_many += 1
        elif len(self._marks) < 2 * MAX_WINDOWS:
            thread = scalar(event.get("pid")), scalar(event.get("tid"))
            self._marks.append((start, number, kind == BEGIN, thread))
        else:
            self.too_many += 1

    def _of_new_thread(self, thread: Thread) -> tuple[_Nodes, _Nodes] | None:
        nodes = self._nodes.get(thread)
        if nodes is None and len(self._nodes) < _MAX_THREADS:
            nodes = self._nodes[thread] = _Nodes(), _Nodes()
        return nodes

    def add_activity(self, event: Any) -> None:
        """Something that ran on a GPU."""
        if len(self._activities) >= MAX_ACTIVITIES:
            self.too_many += 1
            self._activities_beyond += 1
            return
        self._activities.append(_correlation(event))

    def captures(self) -> Captures:
        """Pair begins with ends, and see what lies between."""
        found = self._paired()
        anywhere = _merged(window.scope for window in found.windows)
        inside: set[int] = set()
        for thread, (launches, copies) in self._nodes.items():
            own = [window for window in found.windows if window.scope.thread == thread]
            spans = [(window.scope.begin, window.scope.end) for window in own]
            launches.sort()
            copies.sort()
            launched, copied = launches.during(spans), copies.during(spans)
            for window, of_launches, of_copies in zip(own, launched, copied, strict=True):
                seen: set[int] = set()
                window.kernels.extend(map(launches.kernels.__getitem__, launches.once(of_launches, seen)))
                window.copies = _count(copies.once(of_copies, seen))
                inside |= seen
            seen = set()
            for nodes, taken in ((launches, launched), (copies, copied)):
                for gap in _gaps(taken, len(nodes.starts)):
                    for place in nodes.once(gap, seen):
                        found.launches += nodes is launches
                        found.elsewhere += _is_in(nodes.starts[place], anywhere)
        found.launches += sum(window.launches for window in found.windows)
        found.kernels_sha256 = self.names.sequence_sha256(window.kernels for window in found.windows)
        found.activities = sum(map(inside.__contains__, self._activities))
        return found

    def _paired(self) -> Captures:
        opened: dict[Thread, list[float]] = {}
        closed: dict[Thread, list[tuple[float, float, int]]] = {}
        found = Captures()
        for start, number, is_begin, thread in sorted(self._marks, key=lambda mark: mark[:2]):
            begins, spans = opened.setdefault(thread, []), closed.setdefault(thread, [])
            if is_begin:
                begins.append(start)
            elif not begins:
                found.unpaired += 1
            else:
                begin = begins.pop()
                # those inside it; not those inside a begin that never ends, which are whole captures
                while spans and spans[-1][0] >= begin:
                    spans.pop()
                spans.append((begin, start, number))
        found.unpaired += sum(len(begins) for begins in opened.values())
        order = sorted((*span, thread) for thread, spans in closed.items() for span in spans)
        found.windows = [Window(Scope(begin, end, thread)) for begin, end, _, thread in order]
        return found

    @property
    def activities(self) -> int:
        """GPU activities, held or not."""
        return len(self._activities) + self._activities_beyond

    @property
    def has_marks(self) -> bool:
        """Whether a stream capture begins or ends in the trace."""
        return bool(self._marks)

    def replays(self) -> Counter[int]:
        """GPU activities of a graph launch -> how many launches have so many."""
        counts = Counter[int]()
        for correlation in self._replays:
            if correlation != _NO_CORRELATION:
                counts[correlation] = 0
        if counts:
            for correlation in self._activities:
                if correlation in counts:
                    counts[correlation] += 1
        return Counter(counts.values())


def _merged(scopes: Iterable[Scope]) -> list[tuple[float, float]]:
    """Spans of time in order, none touching another."""
    merged: list[tuple[float, float]] = []
    for scope in scopes:
        if merged and scope.begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], scope.end)
        else:
            merged.append((scope.begin, scope.end))
    return merged


def _gaps(taken: Iterable[range], length: int) -> Iterator[range]:
    """What lies between ranges of places, which are in order."""
    first = 0
    for places in taken:
        yield range(first, places.start)
        first = places.stop
    yield range(first, length)


def _is_in(moment: float, spans: Sequence[tuple[float, float]]) -> bool:
    """Whether a moment lies in one of some spans as :func:`_merged` gives them."""
    number = bisect_right(spans, moment, key=itemgetter(0)) - 1
    return number >= 0 and moment <= spans[number][1]


def _count(places: Iterable[int]) -> int:
    return sum(1 for _ in places)


def _correlation(event: Any) -> int:
    try:
        return _number(event["args"])
    except KeyError:
        return _NO_CORRELATION


def _number(arguments: Any) -> int:
    try:
        value: Any = arguments["correlation"]
    except (KeyError, TypeError, IndexError):  # no arguments, or something else in their place
        return _NO_CORRELATION
    # tracers count from 1, and 0 is none of theirs
    return value if type(value) is int and 0 < value < _LARGEST else _NO_CORRELATION
