"""What each capture of a directory is labelled with, and the label that its rows give it where nobody wrote one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_traces.foreign.captures import Capture
from shapetrace_traces.foreign.names import NO_RUNNER, Layout
from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.size import build_series

ROWS, SPAN = "rows", "its span"
"""What a label was made from where nobody wrote one."""
_TOKENS = ("prefill", "piecewise", "extend")
"""In a runner's class name: its graphs are keyed by tokens, not by requests."""


def claim_of(capture: Capture) -> tuple[Shape, str] | None:
    """The shape that a capture, or the file of a window, is labelled with, and where; our own metadata speaks after the
    name, not for it."""
    if (shape := capture.name.shape) is not None:
        return shape, "its name"
    if capture.metadata is not None:
        return capture.metadata, "its metadata"
    if capture.details is not None:
        shape = _shape(capture, capture.details)
        return None if shape is None else (shape, "execution_details.json")
    return None


def measured_labels(captures: Sequence[Capture], width: int) -> dict[str, tuple[Shape, str]]:
    """Labels for captures that have none, and what made them: the size of the engine's own span, or else the rows,
    ``width`` a request."""
    found: dict[str, tuple[Shape, str]] = {}
    for group in _by_family(captures):
        rows = _rows(group)
        for capture in group:
            size = capture.span[0] if capture.span is not None else None
            per_unit = 1 if is_by_tokens(capture) else width
            if size is None and (count := rows.get(capture.key)) and not count % per_unit:
                size = count // per_unit
            shape = _shape(capture, size) if size else None
            if shape is not None:
                found[capture.key] = shape, ROWS if capture.span is None else SPAN
    return found


def as_trace(capture: Capture, label: Shape) -> Trace:
    """As the judge takes it. The span's size is what the engine itself says of the forward call's tokens."""
    rows = capture.span[0] if capture.span is not None else None
    return Trace(
        key=capture.key,
        rank=capture.rank or 0,
        tag=label.tag,
        shape=label,
        stage="capture",
        epoch=label.epoch,
        witnesses={} if rows is None else {"rows": rows},
        dirty=(),
        index=capture.index,
        raw_sha256=capture.raw_sha256,
    )


def _by_family(captures: Iterable[Capture]) -> list[list[Capture]]:
    groups: dict[tuple[int, str], list[Capture]] = defaultdict(list)
    for capture in captures:
        groups[capture.rank or 0, capture.runner or ""].append(capture)
    return list(groups.values())


def _rows(captures: Sequence[Capture]) -> Mapping[str, int]:
    """Rows of each capture: of the product that is called most and is in all of them, else the usual rows of each."""
    label = Shape(Runner(NO_RUNNER), "unknown", 1)
    series = [
        item
        for item in build_series([as_trace(capture, label) for capture in captures])
        if len(item.rows) == len(captures) and len(set(item.rows.values())) > 1
    ]
    if series:
        return max(series, key=lambda item: (item.may_condemn, item.calls, -max(item.rows.values()), item.name)).rows
    return {capture.key: rows for capture in captures if (rows := capture.rows) is not None}


def is_by_tokens(capture: Capture) -> bool:
    """Whether its graphs are keyed by tokens."""
    name = (capture.runner or NO_RUNNER).lower()
    return capture.name.layout in (Layout.VLLM, Layout.XDIT) or any(word in name for word in _TOKENS)


def _shape(capture: Capture, size: int) -> Shape | None:
    variants = {}
    if capture.span is not None and capture.span[1] in ("FULL", "PIECEWISE") and capture.name.layout is Layout.VLLM:
        variants["mode"] = capture.span[1]
    try:
        return Shape(Runner(capture.runner or NO_RUNNER), "tok" if is_by_tokens(capture) else "bs", size, variants)
    except TagError:
        return None
