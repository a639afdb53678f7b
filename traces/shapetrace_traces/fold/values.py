"""Values of events, whatever a trace wrote in their place."""

from __future__ import annotations

from typing import Any

from shapetrace_traces.reader.errors import UnreadableTraceError

MAX_NAME_CHARACTERS = 200
MAX_MICROSECONDS = 1e18
"""30,000 years; what lies beyond is no time, and its sums would be none."""


def bounded(text: str) -> str:
    """At most :data:`MAX_NAME_CHARACTERS`, and UTF-8 whatever the JSON escaped: it is written into parts."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_NAME_CHARACTERS else text[: MAX_NAME_CHARACTERS - 1] + "…"


def microseconds(value: Any, number: int) -> float:
    """A time of event ``number``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and -MAX_MICROSECONDS < value < MAX_MICROSECONDS:  # false for NaN
        return float(value)
    raise UnreadableTraceError(f"event {number} has no time")


def text(value: Any, number: int) -> str:
    """The name of event ``number``."""
    if not isinstance(value, str):
        raise UnreadableTraceError(f"event {number} has no name")
    return value


def scalar(value: Any) -> str | int | float | None:
    """A process or thread as Kineto writes them; anything else counts as none."""
    return value if isinstance(value, (str, int, float)) else None


def plain_list(value: Any) -> list[Any] | None:
    """A list of the fast or the slow parser as a list; None for anything else."""
    if isinstance(value, list):
        return value
    as_list = getattr(value, "as_list", None)
    return as_list() if as_list is not None else None
