"""Termination messages: how a container tells the operator its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapetrace_contract import VERSION, names

MAX_MESSAGE_CHARACTERS = 512
"""Bounded because it is copied into status; the log has the rest."""
MAX_TERMINATION_BYTES = 4096
"""The kubelet keeps this much of a container's termination message."""


def shorten(text: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """At most ``limit`` characters on one line, the head kept."""
    # half a surrogate pair is a str to Python and nothing to any reader of UTF-8
    line = " ".join(text.split()).encode(errors="replace").decode()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def counted(count: int, noun: str) -> str:
    """``1 trace``, ``2 traces``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Termination:
    """What a container of ours leaves at its end."""

    reason: str
    message: str = ""
    rank: int | None = None
    exitCode: int | None = None  # noqa: N815 - the spelling of the contract
    drained: bool = False

    def to_json(self) -> str:
        """One JSON object of at most 4096 bytes."""
        body = {"v": VERSION, "reason": self.reason, "message": shorten(self.message), "rank": self.rank}
        return json.dumps({**body, "exitCode": self.exitCode, "drained": self.drained}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str | None) -> Termination | None:
        """Read a message of ours; None for anything else, such as the tail of a foreign log."""
        try:
            value = json.loads(text or "")
            return cls(
                reason=str(value["reason"]),
                message=shorten(str(value.get("message") or "")),
                rank=value.get("rank"),
                exitCode=value.get("exitCode"),
                drained=value.get("drained") is True,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def leave(text: str, environment: Mapping[str, str]) -> None:
    """Write the termination message where Kubernetes looks for it; silently nothing where there is no such place."""
    target = Path(environment.get(names.ENV_TERMINATION_LOG) or names.TERMINATION_MESSAGE_PATH)
    try:
        if names.ENV_TERMINATION_LOG in environment or target.exists():
            target.write_text(text)
    except OSError:
        return  # the exit code still tells the reason


def rank_row(entry: Mapping[str, Any]) -> list[Any]:
    """A rank in the finish's message: ``[rank, expected, captured, uploaded, failed, bytes, verdict]``."""
    return [entry.get(key) for key in ("rank", "expected", "captured", "uploaded", "failed", "bytes", "verdict")]


MAX_MESSAGE_RANKS = 48
"""Above this many ranks the finish's message lists only those that are not Complete, so that it fits 4096 bytes."""
