"""The captures in a file: what role a trace has by its events, and a combined file taken apart by capture window."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shapetrace_contract.tag import Shape

from shapetrace_traces.foreign.names import Layout, Name, read_name
from shapetrace_traces.foreign.scan import File, Kind
from shapetrace_traces.judge.evidence import Signature, counts, shape_of, signature_of

_SPAN = re.compile(r"capture_([1-9][0-9]{0,8})_([A-Za-z_]{1,40})")
"""vLLM's own annotation of a capture, and that of engines patched by TraceLens."""


class Role(StrEnum):
    """What a trace is, by its events."""

    CAPTURE = "capture"
    REPLAY = "replay"
    """Graphs were launched in it, and none captured."""
    EAGER = "eager"
    """Work was done, and no graph captured or launched."""
    EMPTY = "empty"
    TOO_LARGE = "too-large"
    """It holds more than is held of a trace: whether graphs were captured in it is not known."""


CUTS = {"operators": "operators", "gemms": "products", "gemmRows": "row counts", "windows": "stream captures"}
"""Fields of an index whose bound may cut what a capture is judged by, in words."""


@dataclass(frozen=True)
class Capture:
    """One captured graph, or what claims to be one: a file, or one capture window of a combined file."""

    file: str
    name: Name
    window: int | None
    """Its number in a combined file, from 0 on; None where the whole file is one capture."""
    index: Mapping[str, Any]
    """What the capture called, with the fields of an index."""
    rank: int | None
    """By what the trace says; by the name where it says nothing."""
    raw_sha256: str | None = None
    metadata: Shape | None = None
    """What our own metadata in the trace says."""
    copied_from: str | None = None
    """Where ``relabel`` wrote that metadata: what it made the label from."""
    details: int | None = None
    """The size that ``execution_details.json`` gives it."""
    span: tuple[int, str] | None = None
    """Size and mode of its ``capture_<size>_<mode>`` span."""
    launches: int | None = None
    began_nanoseconds: int | None = None
    step: int | None = None
    """``ProfilerStep#k``, where there is exactly one."""
    device: str | None = None
    unpaired: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What it is judged by and what the index had no room for -> how many of them."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Unique in the directory."""
        return self.file if self.window is None else f"{self.file}#{self.window}"

    @property
    def runner(self) -> str | None:
        """The runner that metadata or name claim."""
        return str(self.metadata.runner) if self.metadata is not None else self.name.runner

    @property
    def rows(self) -> int | None:
        """The row count that most of its matrix products have."""
        found: Counter[int] = Counter()
        for by_rows in (self.index.get("gemmRows") or {}).values():
            for rows, calls in counts(by_rows).items():
                found[int(rows)] += calls
        return min(found, key=lambda rows: (-found[rows], rows)) if found else None

    @property
    def signature(self) -> Signature:
        """What tells two captures of one size apart."""
        return signature_of(self.index)


def role_of(file: File) -> Role:
    """The role of a readable trace."""
    index, name = file.index, read_name(file.path)
    own = index.get("metadata") or {}
    is_ours = bool(own.get("tag"))
    if is_ours and own.get("stage") == "replay":
        return Role.REPLAY
    if index["windows"] or index["unpairedWindows"] or (is_ours and index["device"] == "cpu"):
        return Role.CAPTURE
    if index["unpairedWindows"] is None:
        return Role.CAPTURE if is_ours else Role.TOO_LARGE
    if index["graphLaunches"]:
        return Role.REPLAY
    # where launches were recorded, the begin of a stream capture would have been too
    if any(_SPAN.fullmatch(span) for span in index["spans"]) and not index["launches"] and not is_ours:
        return Role.CAPTURE
    # no runtime call at all: recorded without a GPU, where a capture has no window
    is_claimed = name.shape is not None or name.layout not in (Layout.UNKNOWN, Layout.SHAPETRACE)
    if is_claimed and not index["launches"] and index["operators"] and index["device"] == "cpu":
        return Role.CAPTURE
    return Role.EAGER if index["operators"] or index["launches"] or index["gpuMicroseconds"] else Role.EMPTY


def captures_of(file: File, details: int | None) -> list[Capture]:
    """The captures of a file whose role is :attr:`Role.CAPTURE`."""
    index, name = file.index, read_name(file.path)
    windows = index["windows"]
    whole = _whole(file, name, details)
    if not is_combined(index, name):
        return [whole]
    base = index["baseTimeNanoseconds"]
    found = []
    for number, window in enumerate(windows):
        began = None if base is None else base + int(window["beginMicroseconds"] * 1000)
        found.append(
            Capture(
                file=file.path,
                name=name,
                window=number,
                index=window,
                rank=whole.rank,
                span=_span(window.get("spans") or ()),
                launches=window["launches"],
                began_nanoseconds=began,
                device=whole.device,
                details=details,
                left_out=_left_out(window, whole.left_out),
            )
        )
    return found


def _whole(file: File, name: Name, details: int | None) -> Capture:
    index = file.index
    windows, steps, base = index["windows"], index["profilerSteps"], index["baseTimeNanoseconds"]
    place, own = index["distributed"] or {}, index["metadata"] or {}
    told = [own.get("rank"), place.get("rank"), name.rank]
    ranks = [rank for rank in told if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0]
    inside = _inside(index)
    left = {key: count for key, count in inside["leftOut"].items() if key in CUTS}
    if count := index["leftOut"].get("windows"):
        left["windows"] = count
    began = None
    if base is not None and windows:
        began = base + int(windows[0]["beginMicroseconds"] * 1000)
    return Capture(
        file=file.path,
        name=name,
        window=None,
        index=inside,
        rank=ranks[0] if ranks else None,
        raw_sha256=file.raw_sha256,
        metadata=shape_of(own.get("tag")),
        copied_from=_copied_from(own),
        details=details,
        span=_span(index["spans"]),
        launches=index["launchesInWindows"] if windows else index["launches"],
        began_nanoseconds=began,
        step=steps[0] if len(steps) == 1 else None,
        device=index["device"],
        unpaired=index["unpairedWindows"] or 0,
        left_out=left,
        extra={"worldSize": place.get("worldSize"), "traceRank": place.get("rank")},
    )


def _left_out(window: Mapping[str, Any], whole: Mapping[str, int]) -> dict[str, int]:
    """Of one window: where none could be told its calls, those of the whole file."""
    if "leftOut" not in window:
        return {key: count for key, count in whole.items() if key == "operators"}
    return {key: count for key, count in window["leftOut"].items() if key in CUTS}


def is_combined(index: Mapping[str, Any], name: Name) -> bool:
    """Whether the windows of a trace are captures of their own, and not the pieces of one.

    They are where one product has other rows from window to window; and where the exporter of combined files wrote it.
    Where the name says one size, most products have to differ, and none may have the rows of that size in every window.
    """
    windows = index["windows"]
    if not windows or (isinstance(index.get("metadata"), Mapping) and index["metadata"].get("tag")):
        return False
    if name.layout is Layout.SGLANG_COMBINED and len(windows) + (index["unpairedWindows"] or 0) > 1:
        return True
    if len(windows) < 2:
        return False
    by_product: dict[str, set[tuple[str, ...]]] = {}
    for window in windows:
        for product, rows in (window.get("gemms") or {}).items():
            by_product.setdefault(product, set()).add(tuple(sorted(rows)))
    everywhere = Counter(product for window in windows for product in window.get("gemms") or {})
    shared = [rows for product, rows in by_product.items() if everywhere[product] == len(windows)]
    varying = sum(1 for rows in shared if len(rows) > 1)
    if name.size is None:
        return varying > 0
    # pieces of one capture differ too, in the rows of experts: but not in what has a row for each token
    alike = [int(next(iter(rows))[0]) for rows in shared if len(rows) == 1 and len(next(iter(rows))) == 1]
    return name.size not in alike and varying > sum(1 for rows in alike if rows >= name.size)


def _inside(index: Mapping[str, Any]) -> Mapping[str, Any]:
    """The index of what lies in the windows: what is launched around them is no part of the graph."""
    windows: Sequence[Mapping[str, Any]] = index["windows"]
    if index["scope"] == "span" or not windows or not all(window.get("operators") for window in windows):
        return index
    sequences = [str(window["sequenceSha256"]) for window in windows]
    sequence = sequences[0] if len(sequences) == 1 else hashlib.sha256("\n".join(sequences).encode()).hexdigest()
    left = Counter[str]()
    for window in windows:
        left.update(window["leftOut"])
    merged = {name: _sum(window[name] for window in windows) for name in ("gemmRows", "gemms")}
    operators = Counter[str]()
    for window in windows:
        operators.update(window["operators"])
    return {**index, **merged, "operators": dict(operators), "sequenceSha256": sequence, "leftOut": dict(left)}


def _sum(items: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for item in items:
        for name, rows in item.items():
            found.setdefault(name, Counter()).update(rows)
    return {name: dict(rows) for name, rows in found.items()}


def _span(names: Iterable[str]) -> tuple[int, str] | None:
    found = [match for name in names if (match := _SPAN.fullmatch(name))]
    return (int(found[0][1]), found[0][2]) if len(found) == 1 else None


def _copied_from(metadata: Mapping[str, Any]) -> str | None:
    relabelled = metadata.get("relabelled")
    label = relabelled.get("label") if isinstance(relabelled, Mapping) else None
    return label if isinstance(label, str) else None


def readable(files: Iterable[File]) -> list[File]:
    """The traces among the files."""
    return [file for file in files if file.kind is Kind.TRACE]
