"""``GET /progress`` of a collector: the counters of its ranks, in the form of ``status.ranks`` entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shapetrace_contract import VERSION
from shapetrace_contract.reasons import RankState

MAX_BODY_BYTES = 1024 * 1024
"""A collector answers for the ranks of one pod; a longer body is not read."""


@dataclass(frozen=True)
class RankProgress:
    """One rank. ``expected`` is None until the rank wrote its plan: never 0, never taken from the spec."""

    rank: int
    state: str = RankState.WAITING.value
    expected: int | None = None
    captured: int = 0
    """Records with a file."""
    uploaded: int = 0
    """Stored objects."""
    failed: int = 0
    """Records with an error or a recorded loss."""
    bytes: int = 0
    """Stored bytes."""
    lastShape: str | None = None  # noqa: N815
    message: str | None = None
    node: str | None = None
    pod: str | None = None
    verdict: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Only what is known."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RankProgress:
        """Read an entry; unknown fields are ignored; ValueError for one that is none."""
        try:
            known = {name: value[name] for name in cls.__dataclass_fields__ if value.get(name) is not None}
            entry = cls(**known)
            counts = (entry.rank, entry.captured, entry.uploaded, entry.failed, entry.bytes, entry.expected or 0)
            if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
                raise ValueError("a counter is not a whole number from 0 on")
            RankState(entry.state)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no progress entry: {error}") from None
        return entry


def body(ranks: list[RankProgress]) -> dict[str, Any]:
    """The answer of ``GET /progress``."""
    return {"v": VERSION, "ranks": [entry.to_json() for entry in ranks]}
