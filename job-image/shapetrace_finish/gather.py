"""Reads what an attempt left in the store: its claims, its parts, and the traces of ranks without a part."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapetrace_contract import VERSION, keys, names
from shapetrace_contract.tag import Shape, TagError
from shapetrace_traces.index import index_stream
from shapetrace_traces.judge.evidence import texts
from shapetrace_traces.store import ObjectInfo, ObjectMissing, Store

from shapetrace_finish.patience import Patience

_PART = re.compile(re.escape(keys.PARTS) + r"(\d{5})\.json")
_TRACE = re.compile(rf"(?P<folder>{keys.TRACES}|{keys.REPLAYS})rank-(?P<rank>\d{{5}})/(?P<tag>[^/]+)\.json\.gz")

MAX_REREAD_BYTES = 4 * 1024**3
"""Stored bytes of traces that are read again for an index, so that a finish ends within its deadline; what is beyond
is listed without one."""
MAX_REREAD_TRACE_BYTES = 512 * 1024**2
"""One trace is held in memory."""
MAX_REINDEX_RAW_BYTES = 128 * 1024**2
"""The JSON reader takes about eight times this; the finish has 2 GiB."""


@dataclass
class _Budget:
    """What may still be read again."""

    left_bytes: int = MAX_REREAD_BYTES

    def take(self, size: int) -> bool:
        if size > min(self.left_bytes, MAX_REREAD_TRACE_BYTES):
            return False
        self.left_bytes -= size
        return True


@dataclass
class Found:
    """What an attempt left."""

    claims: int = 0
    parts: list[Mapping[str, Any]] = field(default_factory=list)
    """In order of ranks; those with ``"recovered": true`` were put together here."""
    notes: list[str] = field(default_factory=list)
    """What was odd, for the log."""


def gather(store: Store, uid: str, patience: Patience) -> Found:
    """Read claims, parts and, where a rank's part is missing, its traces. Without a claim nothing else is read."""
    found = Found(claims=len(patience(lambda: list(store.list(keys.CLAIMS)))))
    if not found.claims:
        return found
    parts: dict[int, Mapping[str, Any]] = {}
    for info in patience(lambda: list(store.list(keys.PARTS))):
        match = _PART.fullmatch(info.key)
        if match is None:
            found.notes.append(f"{info.key} is no part")
            continue
        rank = int(match[1])
        part = _read_part(patience(lambda key=info.key: store.get(key)), rank)  # type: ignore[misc]
        if part is None:
            found.notes.append(f"{info.key} cannot be read; its traces are read again")
        else:
            parts[rank] = part
    budget = _Budget()
    objects = _traces(store, patience)
    sizes = {info.key: info.bytes for stored in objects.values() for info, _ in stored}
    for rank, part in parts.items():
        parts[rank] = _indexed(_there(part, sizes), sizes, store, patience, budget)
    for rank, stored in sorted(objects.items()):
        if rank not in parts:
            found.notes.append(f"rank {rank} left no part: {len(stored)} traces are read again")
            parts[rank] = _recover(rank, stored, store, uid, patience, budget)
    found.parts = [parts[rank] for rank in sorted(parts)]
    return found


def _read_part(body: bytes, rank: int) -> Mapping[str, Any] | None:
    try:
        part = json.loads(body)
    except ValueError:
        return None
    return part if isinstance(part, dict) and part.get("rank") == rank and _is_whole(part) else None


def _is_whole(part: Mapping[str, Any]) -> bool:
    """Whether each stored trace of a part can be listed in a manifest."""
    traces, lost = part.get("traces"), part.get("lost")
    if not isinstance(traces, list) or not isinstance(lost, list):
        return False
    return all(isinstance(item, dict) for item in lost) and all(
        isinstance(item, dict)
        and all(isinstance(item.get(name), str) for name in ("key", "tag", "sha256"))
        and isinstance(item.get("bytes"), int)
        for item in traces
    )


def _traces(store: Store, patience: Patience) -> dict[int, list[tuple[ObjectInfo, re.Match[str]]]]:
    found: dict[int, list[tuple[ObjectInfo, re.Match[str]]]] = {}
    for folder in (keys.TRACES, keys.REPLAYS):
        for info in patience(lambda folder=folder: list(store.list(folder))):  # type: ignore[misc]
            match = _TRACE.fullmatch(info.key)
            if match is not None:
                found.setdefault(int(match["rank"]), []).append((info, match))
    return found


def _there(part: Mapping[str, Any], sizes: Mapping[str, int]) -> Mapping[str, Any]:
    """The part, with the traces that are not in the store among the lost ones: a manifest lists what is there.

    Somebody may have removed an object, and the engine may have forged a line of ``uploaded.jsonl``.
    """
    gone = [entry for entry in part["traces"] if entry["key"] not in sizes]
    lost = [{**entry, "error": "its part lists it, the store does not have it"} for entry in gone]
    there = [entry for entry in part["traces"] if entry["key"] in sizes]
    return {**part, "traces": there, "lost": [*part["lost"], *lost]}


def _indexed(
    part: Mapping[str, Any], sizes: Mapping[str, int], store: Store, patience: Patience, budget: _Budget
) -> Mapping[str, Any]:
    """The part, with the traces read here that its collector had no time or no memory to index, or that changed."""
    traces = []
    for entry in part["traces"]:
        index = entry.get("index")
        if isinstance(index, Mapping) and not index.get("error") and sizes[entry["key"]] == entry["bytes"]:
            traces.append(entry)
            continue
        again = {**entry, "dirty": list(texts(entry.get("dirty")))}
        _read_again(again, store, patience, budget)
        traces.append(again)
    return {**part, "traces": traces}


def _recover(
    rank: int,
    stored: list[tuple[ObjectInfo, re.Match[str]]],
    store: Store,
    uid: str,
    patience: Patience,
    budget: _Budget,
) -> Mapping[str, Any]:
    """A part from the objects alone: they carry run, rank, tag and hash, and the trace itself says what it holds."""
    traces, orphans = [], []
    for info, match in stored:
        head = patience(lambda key=info.key: store.head(key))  # type: ignore[misc]
        try:
            shape = Shape.from_tag(match["tag"])
        except TagError:
            head = None
        if head is None or head.metadata.get(names.METADATA_RUN, uid) != uid:
            orphans.append(info.key)
            continue
        entry: dict[str, Any] = {
            "key": info.key,
            "sha256": head.sha256,
            "bytes": info.bytes,
            "rawSha256": head.metadata.get(names.METADATA_RAW_SHA256),
            "rawBytes": None,
            "tag": shape.tag,
            "shape": shape.to_json(),
            "rank": rank,
            "stage": keys.CAPTURE if match["folder"] == keys.TRACES else keys.REPLAY,
            "epoch": shape.epoch,
            "witnesses": {},
            "dirty": _metadata_faults(head.metadata, shape.tag, rank),
        }
        _read_again(entry, store, patience, budget)
        if entry["sha256"] is None:  # too large to read, and the store tells no hash: it cannot be listed truly
            orphans.append(info.key)
            continue
        traces.append(entry)
    part: dict[str, Any] = {
        "v": VERSION,
        "rank": rank,
        "recovered": True,
        "record": None,
        "processes": [],
        "plan": [],
        "done": None,
    }
    return {**part, "stopped": None, "traces": traces, "lost": [], "orphans": orphans, "missing": 0}


def _metadata_faults(metadata: Mapping[str, str], tag: str, rank: int) -> list[str]:
    expected = {names.METADATA_TAG: tag, names.METADATA_RANK: str(rank)}
    return [
        f"its object says {name} {metadata[name]}"
        for name, value in expected.items()
        if metadata.get(name, value) != value
    ]


def _read_again(entry: dict[str, Any], store: Store, patience: Patience, budget: _Budget) -> None:
    """Index what is stored, within the budget; a trace that is too long keeps its place and is marked unread."""
    if not budget.take(entry["bytes"]):
        entry["index"] = _unread(f"not read again: {entry['bytes']} stored bytes are too many")
        return
    try:
        body = patience(lambda: store.get(entry["key"]))
    except ObjectMissing:
        entry["dirty"].append("it vanished from the store")
        return
    sha256 = hashlib.sha256(body).hexdigest()
    if entry["sha256"] not in (None, sha256):
        entry["dirty"].append("its stored bytes are not those that were announced")
    entry["sha256"], entry["bytes"] = sha256, len(body)
    raw_sha256, raw_bytes = hashlib.sha256(), 0

    def see(block: bytes) -> None:
        nonlocal raw_bytes
        raw_bytes += len(block)
        raw_sha256.update(block)

    index = index_stream(io.BytesIO(body), max_raw_bytes=MAX_REINDEX_RAW_BYTES, see=see)
    entry["index"] = index
    if index["error"] is None:
        entry["rawBytes"], entry["rawSha256"] = raw_bytes, raw_sha256.hexdigest()


def _unread(why: str) -> dict[str, Any]:
    return {"v": VERSION, "error": why, "unread": True}
