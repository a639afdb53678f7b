"""A rank's part: its index in the bucket. Pure, and without a clock, so that writing it again gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shapetrace_contract import VERSION

from shapetrace_collector.record import Record

_COPIED = ("shape", "seq", "witnesses", "dirty", "timesSeconds")


def build(
    rank: int,
    *,
    record: Mapping[str, Any] | None,
    processes: Sequence[Mapping[str, Any]],
    plan: Sequence[Mapping[str, Any]],
    done: Mapping[str, Any] | None,
    stopped: Mapping[str, Any] | None,
    records: Sequence[Record],
    stored: Mapping[str, Mapping[str, Any]],
    refusals: Mapping[str, str],
    orphans: Sequence[str],
    missing: int,
) -> dict[str, Any]:
    """The part. ``stored`` and ``refusals`` are by file name; every record is in ``traces`` or in ``lost``."""
    traces, lost = [], []
    for item in records:
        line = stored.get(item.file) if item.file is not None else None
        if line is not None:
            traces.append(_trace(item, line))
        else:
            lost.append(_lost(item, refusals))
    return {
        "v": VERSION,
        "rank": rank,
        "record": record,
        "processes": list(processes),
        "plan": list(plan),
        "done": done,
        "stopped": stopped,
        "traces": sorted(traces, key=_order),
        "lost": sorted(lost, key=_order),
        "orphans": list(orphans),
        "missing": missing,
    }


def to_bytes(part: Mapping[str, Any]) -> bytes:
    """One spelling of a part."""
    return (json.dumps(part, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _trace(item: Record, line: Mapping[str, Any]) -> dict[str, Any]:
    entry = {name: line[name] for name in ("key", "sha256", "bytes", "rawSha256", "rawBytes")}
    entry |= {"tag": item.tag, "rank": item.rank, "stage": item.stage, "epoch": item.line.get("epoch", 1)}
    entry |= {name: item.line.get(name) for name in _COPIED}
    if item.error is not None:
        entry["error"] = item.error
    return {**entry, "index": line.get("index")}


def _lost(item: Record, refusals: Mapping[str, str]) -> dict[str, Any]:
    error = item.error
    if item.file is not None:
        error = refusals.get(item.file) or "captured, but not stored before the time was over"
    entry = {"tag": item.tag, "stage": item.stage, "epoch": item.line.get("epoch", 1), "error": error}
    return entry | {name: item.line.get(name) for name in ("shape", "seq", "dirty")}


def _order(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """By tag, epoch and stage; the numbers as text of one width, since a hostile line may hold anything."""
    return str(entry["tag"]), str(entry["epoch"]).zfill(9), entry["stage"], str(entry["seq"]).zfill(9)
