"""What a manifest lists, read as hostile input: every key, hash and size is checked before anything uses it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapetrace_contract import VERSION, keys
from shapetrace_contract.tag import Shape, TagError
from shapetrace_traces.reader.errors import json_fault

from shapetrace_cli.errors import CliError
from shapetrace_cli.text import plain

_SEGMENT = re.compile(r"(?!\.{1,2}$|\.shapetrace-)[A-Za-z0-9._~-]{1,255}")
"""Every key that shapetrace makes is of these (docs/contract.md, Tag). No slash, no escape, no drive letter;
none begins as our own temporary files do."""
_FOLDERS = (keys.TRACES, keys.REPLAYS)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestError(CliError):
    """A manifest that cannot be used; nothing of it was fetched."""


def safe_key(key: object) -> str:
    """``key`` if it is relative, within its folder and of harmless characters; ValueError otherwise."""
    if not isinstance(key, str) or len(key) > 1024:
        raise ValueError(f"key {plain(key, 80)!r} is no text of at most 1024 characters")
    if not all(_SEGMENT.fullmatch(segment) for segment in key.split("/")):
        raise ValueError(f"key {plain(key, 80)!r} may lead out of the folder or holds odd characters")
    return key


@dataclass(frozen=True)
class Trace:
    """One trace that the manifest lists. ``key`` is safe to join to a folder; the texts are safe to print."""

    key: str
    sha256: str
    size_bytes: int
    rank: int
    tag: str
    runner: str
    unit: str
    size: int
    epoch: int
    stage: str
    variants: Mapping[str, str]
    size_support: str
    variant_support: Mapping[str, str]
    dirty: bool = False

    @property
    def row(self) -> tuple[str, str, int, tuple[tuple[str, str], ...], int, str]:
        """What makes a row of the table: the shape, without the rank."""
        return (self.runner, self.unit, self.size, tuple(sorted(self.variants.items())), self.epoch, self.stage)


@dataclass(frozen=True)
class Lost:
    """A trace that was planned or begun and is not there."""

    rank: int | None
    tag: str
    error: str


@dataclass(frozen=True)
class Untagged:
    """A place that captured graphs and that no hook covers."""

    caller: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Listing:
    """What the commands need of a manifest."""

    run: Mapping[str, Any]
    verdict: str
    expected: int | None
    uploaded: int
    ranks: tuple[int, ...]
    rank_verdicts: Mapping[int, str]
    traces: tuple[Trace, ...]
    lost: tuple[Lost, ...] = ()
    untagged: tuple[Untagged, ...] = ()
    reasons: tuple[str, ...] = ()
    failure: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


def read_listing(body: bytes) -> Listing:
    """Read ``manifest.json``; :class:`ManifestError` names the entry that cannot be used."""
    try:
        value = json.loads(body)
        if not isinstance(value, dict):
            raise ValueError("it is no JSON object")
        return _listing(value)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ManifestError(
            f"the manifest cannot be used: {plain(json_fault(error), 300)}",
            "It was damaged, or made by something else; nothing that it lists was fetched.",
        ) from None


def _listing(value: dict[str, Any]) -> Listing:
    if value.get("v") != VERSION:
        raise ValueError(f"it is of version {plain(value.get('v'), 20)!r}, this shapetrace reads version {VERSION}")
    traces = tuple(_trace(entry) for entry in _list(value, "traces"))
    seen: set[str] = set()
    for trace in traces:
        if trace.key in seen:
            raise ValueError(f"key {trace.key!r} is listed twice")
        seen.add(trace.key)
    rank_entries = [entry for entry in _list(value, "ranks") if isinstance(entry, dict)]
    verdicts = {_count(entry, "rank"): plain(entry.get("verdict") or "-", 40) for entry in rank_entries}
    run = value.get("run")
    return Listing(
        run={key: _identity(content) for key, content in run.items()} if isinstance(run, dict) else {},
        verdict=plain(value.get("verdict") or "-", 40),
        expected=None if value.get("expected") is None else _count(value, "expected"),
        uploaded=_count(value, "uploaded") if value.get("uploaded") is not None else len(traces),
        ranks=tuple(sorted({*verdicts, *(trace.rank for trace in traces)})),
        rank_verdicts=verdicts,
        traces=traces,
        lost=tuple(_lost(entry) for entry in _list(value, "lost")),
        untagged=tuple(_untagged(entry) for entry in _list(value, "untagged") if isinstance(entry, dict)),
        reasons=tuple(plain(reason, 300) for reason in _list(value, "reasons")),
        failure=_failure(value.get("failure")),
        raw=value,
    )


def _identity(content: Any) -> str | int:
    """A part of the run's identity: the attempt is a number, all else is text."""
    number = isinstance(content, int) and not isinstance(content, bool) and 0 <= content < 2**53
    return int(content) if number else plain(content, 253)


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    content = value.get(name)
    if content is None:
        return []
    if not isinstance(content, list):
        raise ValueError(f"{name!r} is no list")
    return content


def _count(entry: Mapping[str, Any], name: str) -> int:
    number = entry.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**53:
        raise ValueError(f"{name!r} is {plain(number, 40)!r}, not a whole number from 0 on")
    return number


def _trace(entry: Any) -> Trace:
    if not isinstance(entry, dict):
        raise ValueError("an entry of 'traces' is no object")
    key = safe_key(entry.get("key"))
    if not key.startswith(_FOLDERS):
        raise ValueError(f"key {key!r} is in none of the folders {', '.join(_FOLDERS)}")
    sha256 = entry.get("sha256")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{key}: {plain(sha256, 80)!r} is no SHA-256")
    rank = _count(entry, "rank")
    try:
        shape = Shape.from_tag(str(entry.get("tag")))
    except TagError as error:
        raise ValueError(f"{key}: {error}") from None
    support = entry.get("support") if isinstance(entry.get("support"), dict) else {}
    assert isinstance(support, dict)
    variants = support.get("variants") if isinstance(support.get("variants"), dict) else {}
    assert isinstance(variants, dict)
    return Trace(
        key=key,
        sha256=sha256,
        size_bytes=_count(entry, "bytes"),
        rank=rank,
        tag=shape.tag,
        runner=plain(shape.runner),
        unit=shape.unit,
        size=shape.size,
        epoch=shape.epoch,
        stage=plain(entry.get("stage") or "capture", 20),
        variants={axis: plain(name) for axis, name in shape.variants.items()},
        size_support=plain(support.get("size") or "-", 20),
        variant_support={plain(axis, 40): plain(word or "-", 20) for axis, word in variants.items()},
        dirty=bool(entry.get("dirty")),
    )


def _lost(entry: Any) -> Lost:
    if not isinstance(entry, dict):
        return Lost(None, "?", plain(entry, 200))
    rank = entry.get("rank")
    return Lost(
        rank if isinstance(rank, int) and not isinstance(rank, bool) else None,
        plain(entry.get("tag") or "?", 200),
        plain(entry.get("error") or entry.get("reason") or "not captured", 200),
    )


def _untagged(entry: dict[str, Any]) -> Untagged:
    ranks = entry.get("ranks")
    whole = [item for item in ranks if isinstance(item, int) and not isinstance(item, bool)] if ranks else []
    return Untagged(plain(entry.get("caller") or "?", 200), tuple(whole))


def _failure(value: Any) -> str:
    if not value:
        return ""
    if not isinstance(value, dict):
        return plain(value, 512)
    message = plain(value.get("message") or "", 512)
    if value.get("rank") is not None:
        rank = f"rank {plain(value['rank'], 20)}"
        if not re.match(rf"{re.escape(rank)}\b", message):  # most messages begin with it
            message = f"{rank}: {message}" if message else rank
    return plain(", ".join(text for text in (plain(value.get("reason") or "", 64), message) if text), 512)
