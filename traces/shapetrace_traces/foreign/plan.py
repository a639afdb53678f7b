"""Which copy gets which name: decided before anything is written, refused where evidence is missing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shapetrace_contract import VERSION, keys
from shapetrace_contract.tag import Shape, upstream_alias

from shapetrace_traces.foreign.findings import Finding
from shapetrace_traces.foreign.lacking import cut_text
from shapetrace_traces.foreign.names import NO_RUNNER, read_name
from shapetrace_traces.foreign.report import Report

Names = Literal["tag", "upstream"]


@dataclass(frozen=True)
class Copy:
    """One trace that is to be written."""

    finding: Finding
    shape: Shape
    rank: int
    target: str
    """Relative to the new directory, with slashes."""
    metadata: Mapping[str, Any] | None
    """What the copy says of itself; None where the trace says it already."""


@dataclass(frozen=True)
class Plan:
    """All copies, and why a trace gets none."""

    copies: tuple[Copy, ...]
    refused: Mapping[str, str]
    """File or capture -> what is missing."""


def make_plan(report: Report, names: Names) -> Plan:
    """Name every capture of a directory anew."""
    refused = {path: f"cannot be read: {why}" for path, why in report.damaged.items()} | dict(report.lacking)
    copies: list[Copy] = []
    shapes = Counter((item.rank or 0, item.shape.tag) for item in report.findings if item.shape is not None)
    for item in report.findings:
        why = _missing(item, shapes)
        if why:
            refused[item.capture.key] = why
            continue
        assert item.shape is not None
        copies.append(_copy(item, item.shape, item.rank or 0, names))
    return Plan(tuple(sorted(copies, key=lambda copy: copy.target)), refused)


def _missing(item: Finding, shapes: Mapping[tuple[int, str], int]) -> str:
    """What evidence is missing for a name; empty where none is."""
    if item.duplicates:
        return f"is the same recording as {item.duplicates[0]}"
    if item.shape is None:
        return f"what it holds is not known: {item.wrong[-1] if item.wrong else item.evidence[0]}"
    if cut := cut_text(item.capture.left_out):
        return cut
    if item.capture.unpaired:
        return "a stream capture in it begins or ends outside the trace"
    if shapes[item.rank or 0, item.shape.tag] > 1:
        return f"another capture of its rank holds {item.shape.tag} too, and nothing tells them apart"
    try:
        keys.trace_key(item.rank or 0, item.shape.tag)
    except keys.KeyPartError as error:
        return f"cannot be named: {error}"
    own = item.capture.metadata
    if own is not None and own.tag != item.shape.tag:
        return f"its own metadata says {own.tag}, its events {item.shape.tag}: a copy would say the former"
    return ""


def _copy(item: Finding, shape: Shape, rank: int, names: Names) -> Copy:
    target = keys.trace_key(rank, shape.tag)
    if names == "upstream":
        alias = upstream_alias(shape, rank).removeprefix(f"{NO_RUNNER}_") + ".json.gz"
        # a name that would read back as another shape is worse than a name of ours
        if read_name(alias).shape == shape:
            target = alias
    return Copy(item, shape, rank, target, None if item.capture.metadata is not None else _metadata(item, shape, rank))


def _metadata(item: Finding, shape: Shape, rank: int) -> dict[str, Any]:
    capture = item.capture
    evidence = list(item.evidence)
    relabelled = {"from": capture.file, "window": capture.window, "label": item.origin, "evidence": evidence}
    return {
        "v": VERSION,
        "tag": shape.tag,
        "shape": shape.to_json(),
        "rank": rank,
        "stage": "capture",
        "epoch": shape.epoch,
        "relabelled": relabelled,
    }
