"""A store in a plain folder, for runs without Kubernetes. The objects are ordinary files at their keys.

Hash and metadata of an object lie beside, in ``.shapetrace-meta/<key>.<start of the hash>.json``. That record is
written first and the file appears by a hard link, which fails where the name is taken: so an object is never seen
half, never without its record and never overwritten, and a writer that was killed in between leaves nothing but a
record that no file matches. The hash in the record's name keeps two writers of one key apart.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from shapetrace_contract.settings import StoreSettings

from shapetrace_traces.regular import NotRegularError, open_regular, read_regular
from shapetrace_traces.store.base import (
    Body,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    Stored,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnreachable,
    measure,
)

META = ".shapetrace-meta"
_HASH_CHARACTERS = 16
_MAX_RECORD_BYTES = 1024 * 1024

T = TypeVar("T")


class FolderStore:
    """Objects below one folder of a file system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def below(cls, settings: StoreSettings, folder: str) -> FolderStore:
        """``settings.path`` is made where it is missing, at the first write."""
        if not settings.path:
            raise StoreMisconfigured("storage path is empty: a folder store needs one")
        return cls(Path(settings.path).absolute() / folder)

    @property
    def location(self) -> str:
        """The attempt's folder."""
        return str(self._root)

    def uri(self, key: str) -> str:
        """``file:///…``."""
        return (self._root / key).as_uri()

    def put(
        self,
        key: str,
        body: Body,
        *,
        metadata: Mapping[str, str] | None = None,
        sha256: str | None = None,
        content_type: str = "application/octet-stream",
    ) -> Stored:
        """Create the file; a file system has no use for ``content_type``."""
        size, digest = measure(body)
        if sha256 is not None and sha256 != digest:
            raise StoreUnreachable(f"could not write {key} in {self.location}: its content is not what was announced")
        self._do(f"write {key}", lambda: self._create(key, body, size, digest, metadata or {}))
        return Stored(key, size, digest)

    def _create(self, key: str, body: Body, size: int, digest: str, metadata: Mapping[str, str]) -> None:
        target, record = self._file(key), self._record(key, digest)
        if target.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        record.parent.mkdir(parents=True, exist_ok=True)
        part = self._root / META / f".tmp-{uuid.uuid4().hex}"
        try:
            part.write_text(json.dumps({"sha256": digest, "bytes": size, "metadata": dict(metadata)}) + "\n")
            part.replace(record)
            if isinstance(body, Path):
                shutil.copyfile(body, part)
            else:
                part.write_bytes(body)
            os.link(part, target)
        finally:
            part.unlink(missing_ok=True)

    def get(self, key: str) -> bytes:
        """The whole object."""
        with self.open(key) as stream:
            return self._do(f"read {key}", stream.read)

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        """The object as a stream."""
        stream = self._do(f"read {key}", lambda: open_regular(self._file(key)))
        with stream:
            yield stream

    def head(self, key: str) -> ObjectInfo | None:
        """Size, hash and metadata; a file that somebody put there has a hash and no metadata."""
        try:
            return self._do(f"look at {key}", lambda: self._describe(key))
        except ObjectMissing:
            return None

    def _describe(self, key: str) -> ObjectInfo:
        with open_regular(self._file(key)) as stream:
            size = os.fstat(stream.fileno()).st_size
        records = [record for record in self._records(key) if record.get("bytes") == size]
        if len(records) != 1:  # a foreign file, or a killed writer's record: only the content tells
            digest = measure(self._file(key))[1]
            records = [record for record in records if record.get("sha256") == digest] or [{"sha256": digest}]
        return ObjectInfo(key, size, records[0]["sha256"], dict(records[0].get("metadata") or {}))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Key and size of each object, sorted by key."""
        found = []
        for folder, folders, files in os.walk(self._root, onerror=_raise_unless_missing):
            if META in folders:
                folders.remove(META)
            for name in files:
                key = (Path(folder) / name).relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    found.append(key)
        for key in sorted(found):
            path = self._root / key
            try:
                size = path.stat().st_size
            except OSError:  # a link to nothing is listed too; that it is one, reading it tells
                if not path.is_symlink():
                    continue  # gone since
                size = 0
            yield ObjectInfo(key, size)

    def delete(self, key: str) -> None:
        """Remove the file, then its records."""

        def remove() -> None:
            self._file(key).unlink(missing_ok=True)
            for path in self._record_files(key):
                path.unlink(missing_ok=True)

        self._do(f"delete {key}", remove)

    def _file(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") for part in parts) or parts[0] == META or "\0" in key:
            raise StoreMisconfigured(f"{key!r} is no key of an object")
        return self._root.joinpath(*parts)

    def _record(self, key: str, digest: str) -> Path:
        return self._root / META / f"{key}.{digest[:_HASH_CHARACTERS]}.json"

    def _record_files(self, key: str) -> tuple[Path, ...]:
        base = self._root / META / key
        suffix = 1 + _HASH_CHARACTERS + len(".json")
        found = base.parent.glob("*.json") if base.parent.is_dir() else []
        return tuple(path for path in found if path.name[:-suffix] == base.name)

    def _records(self, key: str) -> Iterator[dict[str, Any]]:
        for path in self._record_files(key):
            try:
                record = json.loads(read_regular(path, _MAX_RECORD_BYTES))
            except (OSError, ValueError):
                continue  # the content's own hash decides then
            if isinstance(record, dict) and isinstance(record.get("sha256"), str):
                yield record

    def _do(self, action: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            raise _explain(error, f"could not {action} in {self.location}") from error


def _explain(error: OSError, what: str) -> StoreError:
    if isinstance(error, FileExistsError):
        return ObjectExists(f"{what}: the object exists already")
    if isinstance(error, FileNotFoundError) or error.errno == errno.EISDIR:
        return ObjectMissing(f"{what}: there is no such object")
    if isinstance(error, NotRegularError) or error.errno == errno.ELOOP:
        return StoreMisconfigured(f"{what}: {error.strerror}")
    if isinstance(error, NotADirectoryError):
        return StoreMisconfigured(f"{what}: a part of the path is a file")
    if error.errno in (errno.EACCES, errno.EROFS):
        return StoreDenied(f"{what}: no right to do so; check the owner of the folder")
    if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
        return StoreMisconfigured(f"{what}: not permitted; a file system without hard links cannot hold a store")
    return StoreUnreachable(f"{what}: {error.strerror}")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise _explain(error, "could not list")
