"""What a store is: its values, its errors and the protocol that S3 and folder keep alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from shapetrace_traces.regular import open_regular

Body = bytes | Path
"""An object's content: bytes, or a file that is streamed."""

_BLOCK_BYTES = 1024 * 1024


class StoreError(Exception):
    """Something went wrong with the store; the message says what, where and what to do, and holds no secret."""


class StoreUnreachable(StoreError):  # noqa: N818 - reads as what happened
    """No usable answer: network, timeout, TLS, a server that is down or overloaded. Trying again may help."""


class StoreDenied(StoreError):  # noqa: N818 - reads as what happened
    """The store answered and refused: credentials, a missing right, or no such bucket. Trying again rarely helps."""


class CredentialsMissing(StoreDenied):
    """No request was made: there are no credentials, or not all of them, or the named profile is not there."""


class StoreMisconfigured(StoreError):  # noqa: N818 - reads as what happened
    """A setting cannot be used (endpoint, region, bucket name, CA bundle). Trying again never helps."""


class ObjectExists(StoreError):  # noqa: N818 - reads as what happened
    """The key is taken; what is there was kept."""


class ObjectMissing(StoreError):  # noqa: N818 - reads as what happened
    """There is no such object."""


@dataclass(frozen=True)
class Patience:
    """How long one request may take. The caller decides how often to ask again."""

    connect_timeout_seconds: float = 3.0
    """A store in reach accepts within milliseconds; the default of 60 s would hide an outage for a minute."""
    read_timeout_seconds: float = 10.0
    """Longest silence of the server, not of the whole transfer."""
    attempts: int = 2
    """Tries inside one call; with four, an unreachable address takes 16 s to be reported."""


@dataclass(frozen=True)
class Stored:
    """An object that was just stored."""

    key: str
    bytes: int
    sha256: str
    """Hexadecimal, of the stored bytes."""


@dataclass(frozen=True)
class ObjectInfo:
    """What a store says of an object. ``list`` of S3 tells key and size only."""

    key: str
    bytes: int
    sha256: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class Store(Protocol):
    """Objects of one attempt, by keys relative to its folder. Safe to use from several threads."""

    @property
    def location(self) -> str:
        """Where the attempt's objects are, for a person: ``s3://bucket/prefix/…/`` and the endpoint."""
        ...

    def uri(self, key: str) -> str:
        """The full address of an object."""
        ...

    def put(
        self,
        key: str,
        body: Body,
        *,
        metadata: Mapping[str, str] | None = None,
        sha256: str | None = None,
        content_type: str = "application/octet-stream",
    ) -> Stored:
        """Create the object; :class:`ObjectExists` where the key is taken.

        ``sha256`` is the hexadecimal hash of ``body`` where the caller has it already. After any other error the
        object may exist: ask again, and look at what is there on :class:`ObjectExists`.
        """
        ...

    def get(self, key: str) -> bytes:
        """The whole object; :class:`ObjectMissing` where there is none."""
        ...

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """The object as a stream, for those that may be large."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Size, hash and metadata; None where there is no such object."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """The objects whose keys begin with ``prefix``, sorted by key."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens where there is none."""
        ...


def measure(body: Body) -> tuple[int, str]:
    """Bytes and hexadecimal SHA-256 of a body, read in blocks."""
    if isinstance(body, bytes):
        return len(body), hashlib.sha256(body).hexdigest()
    digest, size = hashlib.sha256(), 0
    with open_regular(body) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()
