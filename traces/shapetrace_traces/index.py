"""The index of one trace: the few facts that judging needs, small enough to travel in a part.

Made in one pass and in constant memory; every field is described in :mod:`shapetrace_traces.index_fields`, which
docs/trace-index.md is generated from.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shapetrace_contract import VERSION

from shapetrace_traces.fold import Fold
from shapetrace_traces.fold.calls import Called, Scope
from shapetrace_traces.fold.events import STACK_CATEGORY
from shapetrace_traces.fold.graphs import Window
from shapetrace_traces.fold.values import bounded
from shapetrace_traces.reader import Reads, TooLongTraceError, UnreadableTraceError, Walk, open_blocks
from shapetrace_traces.tracer import TOP_LEVEL_KEYS, describe_tracer

MAX_OPERATORS = 512
"""Distinct operator names kept; a real capture has about a hundred."""
MAX_SPANS = 64
MAX_GEMMS = 256
"""Distinct (operator, weight) pairs kept; a real model has about ten."""
MAX_ROWS = 64
"""Distinct row counts kept of one operator."""
MAX_WINDOWS = 64
"""Capture windows kept; vLLM's piecewise captures have one per piece, about thirty."""
MAX_SPLIT_WINDOWS = 1024
"""The same of a file that is split by window: a combined one holds every size and variant of a runner."""
MAX_REPLAYS = 64
MAX_METADATA_CHARACTERS = 4096
"""Ours has about 300; it is copied into parts."""
_CAPTURE = re.compile(r"capture_[0-9]+_[A-Za-z_]+")
"""As engines name the span around the capture of a size."""
_STEP = re.compile(r"ProfilerStep#([0-9]{1,9})")


def index_trace(raw: bytes, *, by_window: bool = False) -> dict[str, Any]:
    """:func:`index_stream` of bytes that are in memory."""
    return index_stream(io.BytesIO(raw), by_window=by_window)


def index_stream(
    stream: Reads,
    *,
    max_raw_bytes: int | None = None,
    by_window: bool = False,
    see: Callable[[bytes], object] | None = None,
) -> dict[str, Any]:
    """Index a trace, plain or gzip, to the end of a stream.

    Never raises but for the stream's own OSError and MemoryError: what is not one whole trace gives the same fields,
    empty, and the cause in ``error``, so that no number is ever that of half a trace; ``unread`` is there where it was
    too long. Operators, rows and sequence are those inside the span that carries the trace's own tag, on its thread; of
    the whole trace where there is no such span (``scope`` says which). Every list is bounded by a cut that depends on
    the content alone, and ``leftOut`` counts what was cut.

    ``by_window`` adds to each capture window what it called: for combined files, which hold several captures. ``see``
    is given the plain text block by block, to hash it; all of it where there is no ``error``.
    """
    fold = Fold()
    try:
        walk = Walk(open_blocks(stream, max_raw_bytes, see), fold.add, TOP_LEVEL_KEYS)
        walk.run()
        return _index(walk, fold, by_window)
    except TooLongTraceError as error:
        return {**_empty(str(error)), "unread": True}
    except UnreadableTraceError as error:
        return _empty(str(error))
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # hostile or damaged input of a kind not thought of: a trace without index is a result, a lost part is not
        return _empty(f"{type(error).__name__}: {error}")


def _empty(error: str | None) -> dict[str, Any]:
    return {
        "v": VERSION,
        "events": 0,
        "categories": {},
        "stacksShare": None,
        "metadata": None,
        "spans": [],
        "profilerSteps": [],
        "scope": None,
        "operators": {},
        "sequenceSha256": None,
        "gemmRows": {},
        "gemms": {},
        "launches": None,
        "windows": [],
        "launchesInWindows": None,
        "nodesInWindows": None,
        "nodesElsewhere": None,
        "kernelSequenceSha256": None,
        "gpuInWindows": None,
        "gpuOutsideWindows": None,
        "unpairedWindows": None,
        "graphLaunches": None,
        "replayedNodes": {},
        "gpuMicroseconds": {},
        **describe_tracer({}),
        "device": None,
        "lenient": False,
        "leftOut": {},
        "error": None if error is None else bounded(error),
    }


def _index(walk: Walk, fold: Fold, by_window: bool) -> dict[str, Any]:
    index = _empty(None)
    left: dict[str, int] = {}
    index["events"] = walk.events
    index["categories"] = fold.categories
    if walk.events:
        index["stacksShare"] = round(fold.categories.get(STACK_CATEGORY, 0) / walk.events, 4)
    index["metadata"] = _metadata(walk.top.get("shapetrace"))
    index["gpuMicroseconds"] = fold.gpu_microseconds
    index.update(describe_tracer(walk.top, fold.runtime_calls, has_activities=bool(index["gpuMicroseconds"])))
    index["lenient"] = walk.is_lenient
    own = index["metadata"].get("tag") if index["metadata"] else None
    scope = fold.spans.scope(own) if isinstance(own, str) else None
    index["scope"] = "trace" if scope is None else "span"
    names = fold.spans.names()
    index["spans"], left["spans"] = _spans(names, own)
    left["spans"] += fold.spans.too_many
    steps = sorted({int(found[1]) for name in names if (found := _STEP.fullmatch(name))})
    index["profilerSteps"], left["profilerSteps"] = steps[:MAX_SPANS], max(0, len(steps) - MAX_SPANS)
    if fold.calls.too_many or (own is not None and scope is None and fold.spans.too_many):
        # which calls belong to the scope is not known, so nothing is said of them
        left["operators"] = max(1, fold.calls.too_many)
    else:
        _add_calls(index, left, fold.calls.called(scope))
    _add_graphs(index, left, fold, by_window)
    index["leftOut"] = {key: count for key, count in left.items() if count}
    return index


def _add_calls(index: dict[str, Any], left: dict[str, int], called: Called) -> None:
    index["sequenceSha256"] = called.sequence_sha256
    index["operators"], left["operators"] = _most(called.operators, MAX_OPERATORS)
    products = called.products.items()
    index["gemmRows"], left["gemmRows"] = _rows((name, rows, calls) for (name, _, rows), calls in products)
    index["gemms"], left["gemms"] = _rows((f"{name} {weight}", rows, calls) for (name, weight, rows), calls in products)


def _add_graphs(index: dict[str, Any], left: dict[str, int], fold: Fold, by_window: bool) -> None:
    graphs = fold.graphs
    index["launches"], index["graphLaunches"] = graphs.calls, graphs.graph_launches
    if graphs.too_many and graphs.has_marks:
        left["windows"] = graphs.too_many
        return
    captures = graphs.captures()
    windows = captures.windows
    if not graphs.too_many:
        index["launches"] = captures.launches
    index["launchesInWindows"] = sum(window.launches for window in windows)
    index["nodesInWindows"] = index["launchesInWindows"] + sum(window.copies for window in windows)
    index["nodesElsewhere"] = captures.elsewhere
    index["kernelSequenceSha256"] = captures.kernels_sha256
    left["kernelSequenceSha256"] = graphs.names.too_many
    index["gpuInWindows"] = captures.activities
    index["gpuOutsideWindows"] = graphs.activities - captures.activities
    index["unpairedWindows"] = captures.unpaired
    kept = windows[: MAX_SPLIT_WINDOWS if by_window else MAX_WINDOWS]
    index["windows"] = [_window(window, fold, by_window) for window in kept]
    left["windows"] = len(windows) - len(index["windows"])
    if graphs.too_many:  # which activities are whose is not known, but none was launched in a window
        left["replayedNodes"] = graphs.too_many
        return
    counts, left["replayedNodes"] = _most(Counter({str(n): k for n, k in graphs.replays().items()}), MAX_REPLAYS)
    index["replayedNodes"] = counts


def _window(window: Window, fold: Fold, by_window: bool) -> dict[str, Any]:
    scope: Scope = window.scope
    found: dict[str, Any] = {
        "beginMicroseconds": scope.begin,
        "endMicroseconds": scope.end,
        "launches": window.launches,
        "nodes": window.launches + window.copies,
    }
    if by_window and not fold.calls.too_many:
        left: dict[str, int] = {}
        _add_calls(found, left, fold.calls.called(scope))
        found["spans"], left["spans"] = _spans(fold.spans.around(scope), None)
        found["thread"] = list(scope.thread)
        found["leftOut"] = {key: count for key, count in left.items() if count}
    return found


def _metadata(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    try:
        text = json.dumps(value, allow_nan=False)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except ValueError as error:
        raise UnreadableTraceError(f"the metadata cannot be written as JSON: {error}") from None
    if len(text) > MAX_METADATA_CHARACTERS:
        raise UnreadableTraceError(f"the metadata has {len(text)} characters, {MAX_METADATA_CHARACTERS} are read")
    return value


def _most(counts: Counter[str], limit: int) -> tuple[dict[str, int], int]:
    """The ``limit`` most frequent, ties by name, in the order of names; and how many were cut."""
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return dict(sorted(kept)), len(counts) - len(kept)


def _spans(names: Sequence[str], own: Any) -> tuple[list[str], int]:
    """In time order; the trace's own tag, and spans that name a capture, are cut last."""
    if len(names) <= MAX_SPANS:
        return list(names), 0
    first = sorted(names, key=lambda name: 0 if name == own else 1 if _CAPTURE.fullmatch(name) else 2)
    kept = set(first[:MAX_SPANS])
    return [name for name in names if name in kept], len(names) - MAX_SPANS


def _rows(counted: Iterable[tuple[str, int, int]]) -> tuple[dict[str, dict[str, int]], int]:
    """Name -> rows -> calls; rows as text, because these are the keys of a JSON object."""
    by_name: dict[str, Counter[str]] = {}
    for name, rows, calls in counted:
        by_name.setdefault(name, Counter())[str(rows)] += calls
    order = sorted(by_name, key=lambda name: (-by_name[name].total(), name))
    kept, cut = {}, 0
    for name in sorted(order[:MAX_GEMMS]):
        kept[name], rows_cut = _most(by_name[name], MAX_ROWS)
        cut += rows_cut
    return kept, cut + max(0, len(order) - MAX_GEMMS)
