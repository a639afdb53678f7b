"""Whether an attempt's objects are what its manifest says: each is read once, through the store."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from shapetrace_contract import keys, names
from shapetrace_contract.message import counted
from shapetrace_contract.reasons import GOOD_VERDICTS
from shapetrace_contract.tag import Shape, TagError

from shapetrace_traces.index import index_stream
from shapetrace_traces.judge.evidence import Trace, shape_of
from shapetrace_traces.judge.identity import find_mismatch
from shapetrace_traces.manifest import Manifest, ManifestTrace, digest_of_json
from shapetrace_traces.store import ObjectInfo, ObjectMissing, Store

FOLDERS = (keys.TRACES, keys.REPLAYS)
"""Where the objects are that a manifest lists."""
MAX_LATE = 10_000
"""Of a bucket that somebody else fills too; what came late of a run are a few."""
_BLOCK_BYTES = 1024 * 1024
_BEYOND_BYTES = 8 * 1024 * 1024
"""Read of an object that is larger than the manifest says: mostly another shape's trace, and then its tag is known."""


@dataclass(frozen=True)
class Checked:
    """One listed object and what is wrong with it."""

    key: str
    bytes: int
    faults: tuple[str, ...] = ()
    is_missing: bool = False
    note: str = ""
    """What could not be looked at."""


@dataclass
class Hashed:
    """A stream that is hashed while it is read."""

    stream: BinaryIO
    limit_bytes: int
    sha256: Any = field(default_factory=hashlib.sha256)
    count: int = 0
    is_cut: bool = False
    """Whether more was wanted than the limit allows: that the stream seems to end there says nothing."""

    def read(self, count: int, /) -> bytes:
        """The next bytes; none beyond the limit."""
        self.is_cut = self.is_cut or self.count >= self.limit_bytes
        block = self.stream.read(min(count, self.limit_bytes - self.count))
        self.sha256.update(block)
        self.count += len(block)
        return block

    def drain(self) -> None:
        """Read what is left."""
        while self.read(_BLOCK_BYTES):
            pass


def check_trace(store: Store, entry: ManifestTrace, run_uid: str, attempt: int) -> Checked:
    """Hash, size, whole gzip, and that metadata, tag, span and the object's own metadata agree with the label.

    Raises the store's errors, but for an object that is not there.
    """
    faults = list(_entry_faults(entry))
    try:
        info = store.head(entry.key)
        with store.open(entry.key) as stream:
            hashed = Hashed(stream, entry.stored_bytes + _BEYOND_BYTES)
            raw, raw_bytes = hashlib.sha256(), 0

            def see(block: bytes) -> None:
                nonlocal raw_bytes
                raw_bytes += len(block)
                raw.update(block)

            index = index_stream(hashed, see=see)
            is_half_read = hashed.is_cut
            hashed.drain()
    except ObjectMissing:
        return Checked(entry.key, 0, ("the manifest lists it, the store does not have it",), is_missing=True)
    note = ""
    if index.get("unread"):
        note = f"its content was not looked at: {index['error']}"
    elif index["error"] is None:
        faults += _content_faults(entry, index)
    elif not is_half_read:
        faults.append(f"content: {index['error']}")
    if stored := _stored_fault(entry, hashed):
        faults.append(stored)  # what it unpacks to is another then, and no news
    elif index["error"] is None:
        faults += _raw_faults(entry, raw_bytes, raw.hexdigest())
    faults += _object_faults(entry, info, run_uid, attempt)
    return Checked(entry.key, min(hashed.count, entry.stored_bytes), tuple(faults), note=note)


def _stored_fault(entry: ManifestTrace, hashed: Hashed) -> str:
    if hashed.count >= hashed.limit_bytes:
        more = f"more than {_BEYOND_BYTES // 1024**2} MiB beyond them is stored and was not read"
        return f"size: the manifest says {entry.stored_bytes} bytes, {more}"
    if hashed.count != entry.stored_bytes:
        return f"size: {hashed.count} bytes are stored, the manifest says {entry.stored_bytes}"
    found = hashed.sha256.hexdigest()
    return "" if found == entry.sha256 else f"SHA-256: stored is {found}, the manifest says {entry.sha256}"


def _raw_faults(entry: ManifestTrace, raw_bytes: int, sha256: str) -> Iterator[str]:
    if entry.raw_bytes is not None and entry.raw_bytes != raw_bytes:
        yield f"unpacked it has {raw_bytes} bytes, the manifest says {entry.raw_bytes}"
    elif entry.raw_sha256 is not None and entry.raw_sha256 != sha256:
        yield f"unpacked its SHA-256 is {sha256}, the manifest says {entry.raw_sha256}"


def _entry_faults(entry: ManifestTrace) -> Iterator[str]:
    """Where the manifest's own words about a trace disagree."""
    try:
        shape = Shape.from_tag(entry.tag)
    except TagError as error:
        yield f"the manifest's tag: {error}"
        return
    if entry.shape != shape.to_json():
        yield f"the manifest's shape {entry.shape} is not that of the tag {entry.tag}"
    expected = keys.trace_key(entry.rank, entry.tag, keys.CAPTURE if entry.stage == keys.CAPTURE else keys.REPLAY)
    if entry.key != expected:
        yield f"by rank, stage and tag its key is {expected}"


def _content_faults(entry: ManifestTrace, index: Mapping[str, Any]) -> Iterator[str]:
    """What the trace says of itself against the label."""
    shape = shape_of(entry.tag)
    if shape is None:
        return
    metadata = index["metadata"]
    trace = Trace(entry.key, entry.rank, entry.tag, shape, entry.stage, entry.epoch, {}, (), index)
    mismatch = find_mismatch(trace) if metadata is not None else None
    holds: dict[str, list[str]] = defaultdict(list)
    for text in mismatch.holds if mismatch is not None else ():
        what, _, witness = text.rpartition(" (")
        holds[what].append(witness.removesuffix(")"))
    yield from (f"it holds {what} ({', '.join(witnesses)})" for what, witnesses in holds.items())
    if metadata is None:
        yield "its metadata names no shape"
    elif metadata.get("shape") not in (shape.to_json(), _json_of(metadata.get("tag"))):
        yield f"its metadata's shape {_shape_text(metadata.get('shape'))}"
    if entry.tag not in index["spans"] and not any("its span" in witnesses for witnesses in holds.values()):
        yield f"no span in it is named {entry.tag}"


def _json_of(tag: Any) -> dict[str, Any] | None:
    shape = shape_of(tag)
    return None if shape is None else shape.to_json()


def _shape_text(value: Any) -> str:
    try:
        return f"is {Shape.from_json(value).tag}"
    except TagError:
        return "cannot be read"


def _object_faults(entry: ManifestTrace, info: ObjectInfo | None, run_uid: str, attempt: int) -> Iterator[str]:
    """What the stored object's metadata says against the label. A copy in a folder has none."""
    expected = {
        names.METADATA_RUN: run_uid,
        names.METADATA_ATTEMPT: str(attempt),
        names.METADATA_RANK: str(entry.rank),
        names.METADATA_TAG: entry.tag,
    }
    if entry.raw_sha256 is not None:
        expected[names.METADATA_RAW_SHA256] = entry.raw_sha256
    for name, value in expected.items():
        found = info.metadata.get(name) if info is not None else None
        if found is not None and found != value:
            yield f"its object says {name} {found}"


def digest_fault(stored: Mapping[str, Any]) -> str:
    """Whether a manifest's digest is that of what it lists, in any order; empty if it is. ``stored`` is its JSON."""
    said, found = stored.get("digest"), digest_of_json(stored.get("traces") or ())
    return "" if said == found else f"its digest is {said}, that of its traces {found}"


def count_faults(stored: Mapping[str, Any]) -> list[str]:
    """Where the counters in a manifest's JSON disagree with what it lists; those it does not have are not asked for.

    A counter may be above what is listed only where the verdict says that something is missing.
    """
    captures = [item for item in stored.get("traces") or () if item.get("stage", "capture") == "capture"]
    by_rank = Counter(item.get("rank") for item in captures)
    found = list(_counter_faults("it", stored, len(captures), stored.get("verdict")))
    for rank in stored.get("ranks") or ():
        number = rank.get("rank")
        found += _counter_faults(f"its rank {number}", rank, by_rank.pop(number, 0), rank.get("verdict"))
    if stored.get("ranks"):
        found += [
            f"it lists {counted(count, 'capture')} of rank {number}, which it does not know"
            for number, count in by_rank.items()
        ]
    return found


def _counter_faults(who: str, counters: Mapping[str, Any], listed: int, verdict: Any) -> Iterator[str]:
    may_lack = verdict not in GOOD_VERDICTS
    for name in ("captured", "uploaded"):
        count = counters.get(name)
        if isinstance(count, int) and (count < listed or (count > listed and not may_lack)):
            yield f"{who} says {name} {count}, and lists {counted(listed, 'capture')}"
    expected = counters.get("expected")
    if isinstance(expected, int) and verdict == "Complete" and listed < expected:
        yield f"{who} says expected {expected} and Complete, and lists {counted(listed, 'capture')}"


def late_objects(store: Store, manifest: Manifest) -> list[str]:
    """Objects among the traces that the manifest does not list: they came after it, or it was not we who put them.

    The first :data:`MAX_LATE`.
    """
    listed = {entry.key for entry in manifest.traces}
    found: list[str] = []
    for folder in FOLDERS:
        for info in store.list(folder):
            if info.key not in listed:
                found.append(info.key)
            if len(found) >= MAX_LATE:
                return found
    return found
