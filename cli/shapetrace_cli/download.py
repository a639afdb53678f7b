"""Bring objects into a folder: in parallel, verified while written, atomic, resumable, never outside the folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shapetrace_traces.regular import open_regular

from shapetrace_cli.errors import UsageError
from shapetrace_cli.listing import safe_key
from shapetrace_cli.parallel import in_threads
from shapetrace_cli.text import plain

_BLOCK_BYTES = 1024 * 1024
_PART = ".shapetrace-part-"
RETRY_DELAYS_SECONDS = (0.5, 2.0)
"""Between the tries of one object: a connection cut while the body was read; the store's client retries the rest."""

OpenObject = Callable[[str], AbstractContextManager[IO[bytes]]]
"""Opens an object by its key, relative to the attempt's folder. What it raises as ``transient`` is tried again."""


@dataclass(frozen=True)
class Wanted:
    """One object. Without hash and size (logs) whatever is stored is taken, up to ``limit_bytes``."""

    key: str
    sha256: str | None = None
    size_bytes: int | None = None
    limit_bytes: int | None = None
    optional: bool = False
    """Its absence is no fault."""


@dataclass(frozen=True)
class Outcome:
    """What became of one object: ``fetched``, ``kept`` (already there and right), ``absent`` or ``faulty``."""

    wanted: Wanted
    state: str
    message: str = ""
    size_bytes: int = 0


class _WrongContentError(Exception):
    pass


class Downloader:
    """Writes objects into ``folder`` and nowhere else."""

    def __init__(
        self,
        folder: Path,
        open_object: OpenObject,
        *,
        missing: type[Exception],
        fault: type[Exception],
        transient: type[Exception],
        parallel: int = 8,
    ) -> None:
        """``missing``, ``fault`` and ``transient`` are the store's errors: no such object, any, worth a new try."""
        self._folder = folder
        self._open = open_object
        self._missing, self._fault, self._transient = missing, fault, transient
        self._parallel = parallel
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Let no further object begin, and end those under way at their next block."""
        self._cancelled.set()

    def run(self, objects: Sequence[Wanted]) -> Iterator[Outcome]:
        """The outcome of each object as it is known, in no order. Bounded: at most ``parallel`` objects at once."""
        try:
            yield from in_threads(self._one, objects, self._parallel)
        except BaseException:
            self.cancel()
            raise

    def target(self, key: str) -> Path:
        """Where ``key`` is written; ValueError if that would be outside the folder (also by a link inside it)."""
        path = self._folder / safe_key(key)
        if not path.parent.resolve().is_relative_to(self._folder.resolve()):
            raise ValueError(f"{path.parent} is a link that leads out of {self._folder}")
        return path

    def is_there(self, item: Wanted) -> bool:
        """Whether there is something of its size: its hash is another question."""
        try:
            return self.target(item.key).lstat().st_size == item.size_bytes
        except (OSError, ValueError):
            return False

    def _one(self, item: Wanted) -> Outcome:
        try:
            path = self.target(item.key)
            if item.sha256 is not None and _is_right(path, item.sha256, item.size_bytes):
                return Outcome(item, "kept", size_bytes=item.size_bytes or 0)
            return Outcome(item, "fetched", size_bytes=self._patiently(item, path))
        except self._missing:
            if item.optional:
                return Outcome(item, "absent")
            return Outcome(item, "faulty", "missing: the manifest lists it, the store does not have it")
        except Exception as error:  # the SDK raises its own errors while a body is read
            return Outcome(item, "faulty", plain(error, 300) or type(error).__name__)

    def _patiently(self, item: Wanted, path: Path) -> int:
        for delay_seconds in RETRY_DELAYS_SECONDS:
            try:
                return self._write(item, path)
            except self._transient:
                pass
            except (self._fault, _WrongContentError, OSError, ValueError):
                raise  # a refusal, a wrong content, a full disk: the next try would meet the same
            except Exception:  # noqa: S110 - the connection broke while the body was read
                pass
            if self._cancelled.wait(delay_seconds):
                raise _WrongContentError("interrupted")
        return self._write(item, path)

    def _write(self, item: Wanted, path: Path) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.target(item.key)  # again: the folders exist now
        part = path.with_name(_PART + path.name)
        part.unlink(missing_ok=True)  # of an earlier, interrupted fetch; never followed if it is a link
        digest, count_bytes = hashlib.sha256(), 0
        limit_bytes = item.size_bytes if item.size_bytes is not None else item.limit_bytes
        try:
            with self._open(item.key) as source, part.open("xb") as sink:
                while block := source.read(_BLOCK_BYTES):
                    if self._cancelled.is_set():
                        raise _WrongContentError("interrupted")
                    count_bytes += len(block)
                    if limit_bytes is not None and count_bytes > limit_bytes:
                        raise _WrongContentError(f"size: more than the {limit_bytes} bytes that were expected")
                    digest.update(block)
                    sink.write(block)
            if item.size_bytes is not None and count_bytes != item.size_bytes:
                raise _WrongContentError(f"size: {count_bytes} bytes are stored, the manifest says {item.size_bytes}")
            if item.sha256 is not None and digest.hexdigest() != item.sha256:
                raise _WrongContentError(f"SHA-256: stored is {digest.hexdigest()}, the manifest says {item.sha256}")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return count_bytes


def _is_right(path: Path, sha256: str, size_bytes: int | None) -> bool:
    """Whether the file is there with this content; a link is not."""
    try:
        if path.is_symlink() or (size_bytes is not None and path.stat().st_size != size_bytes):
            return False
        with open_regular(path) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == sha256
    except OSError:
        return False


def write_whole(path: Path, body: bytes) -> None:
    """Write a small file by temporary name and rename."""
    part = path.with_name(_PART + path.name)
    part.unlink(missing_ok=True)
    part.write_bytes(body)
    part.replace(path)


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold ``folder`` (made where it is not there); a second command on it is refused. The lock dies with us."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another shapetrace command is writing to {folder}") from None
        yield
    finally:
        os.close(descriptor)
