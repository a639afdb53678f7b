"""Delivering one trace: read once to hash, compress and index it, then PUT; its line for ``uploaded.jsonl``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from shapetrace_contract import names
from shapetrace_contract.reading import NotRegularError, open_regular
from shapetrace_contract.settings import RunId
from shapetrace_traces.store import ObjectExists, Store, StoreUnreachable

from shapetrace_collector.pack import Packed, pack
from shapetrace_collector.record import Record

CONTENT_TYPE = "application/gzip"


class Indexing(Protocol):
    """Takes a trace block by block and gives its index; nothing of it raises."""

    def feed(self, block: bytes) -> None:
        """The next block."""

    def result(self) -> dict[str, Any]:
        """The index, after the last block."""

    def close(self) -> None:
        """Let go of it, finished or not."""


StartIndex = Callable[[str, int], Indexing]
"""Begins to index a raw trace of this name and this many bytes."""


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The trace can never be stored; the message says why."""


def object_metadata(run: RunId, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Metadata that every object of an attempt carries, and ``more`` of its own."""
    return {names.METADATA_RUN: run.uid, names.METADATA_ATTEMPT: str(run.attempt), **(more or {})}


class Deliver:
    """Delivers traces to one store; safe to use from several threads."""

    def __init__(self, store: Store, run: RunId, start_index: StartIndex) -> None:
        self._store = store
        self._run = run
        self._start_index = start_index
        self._indexes: dict[Path, dict[str, Any]] = {}
        """Of traces whose upload is tried again: it would be the same."""

    def __call__(self, folder: Path, record: Record) -> dict[str, Any]:
        """The capture's line with ``key``, ``sha256``, ``bytes``, ``rawSha256``, ``rawBytes`` and ``index``.

        :class:`Refused` where it can never be stored; StoreError and OSError where trying again may help.
        """
        path = folder / str(record.file)
        try:
            line = self._deliver(path, record)
        except Refused:
            self._indexes.pop(path, None)
            raise
        self._indexes.pop(path, None)
        return line

    def _deliver(self, path: Path, record: Record) -> dict[str, Any]:
        try:
            stream = open_regular(path)
        except FileNotFoundError:
            raise Refused("the trace's file is gone") from None
        except NotRegularError as error:
            raise Refused(str(error)) from None
        with stream, self._packed(path, stream) as packed:
            sha256, stored_bytes = self._put(record, packed)
            return {
                **record.line,
                "key": record.key,
                "sha256": sha256,
                "bytes": stored_bytes,
                "rawSha256": packed.raw_sha256,
                "rawBytes": packed.raw_bytes,
                "index": self._indexes[path],
            }

    @contextmanager
    def _packed(self, path: Path, stream: BinaryIO) -> Iterator[Packed]:
        """Compress the trace; its index is there then, made of the same blocks: a trace is read once."""
        if path in self._indexes:
            with pack(stream) as packed:
                yield packed
            return
        indexing = self._start_index(path.name, os.fstat(stream.fileno()).st_size)
        try:
            with pack(stream, see=indexing.feed) as packed:
                self._indexes[path] = indexing.result()
                yield packed
        finally:
            indexing.close()

    def _put(self, record: Record, packed: Packed) -> tuple[str, int]:
        """SHA-256 and size of the object. A key that is taken by the same trace counts as delivered.

        That is what a PUT meets whose first answer was lost, and what a collector meets that was killed after it.
        """
        more = {
            names.METADATA_RANK: str(record.rank),
            names.METADATA_TAG: record.tag,
            names.METADATA_RAW_SHA256: packed.raw_sha256,
        }
        metadata = object_metadata(self._run, more)
        try:
            stored = self._store.put(
                record.key, packed.body, metadata=metadata, sha256=packed.sha256, content_type=CONTENT_TYPE
            )
            return stored.sha256, stored.bytes
        except ObjectExists:
            return self._adopt(record.key, metadata)

    def _adopt(self, key: str, metadata: Mapping[str, str]) -> tuple[str, int]:
        there = self._store.head(key)
        if there is None or there.sha256 is None:
            raise StoreUnreachable(f"{key} is taken, but the store does not say by what")
        if any(there.metadata.get(name) != value for name, value in metadata.items()):
            raise Refused(f"another object has the key {key} already; it was kept")
        return there.sha256, there.bytes
