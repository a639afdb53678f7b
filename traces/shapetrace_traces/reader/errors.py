"""What reading a trace can end in."""

from __future__ import annotations

import json


class UnreadableTraceError(ValueError):
    """Not a trace; the text says why, and where."""


class TooLongTraceError(UnreadableTraceError):
    """Perhaps a trace, but too long to be read here."""


def json_fault(error: Exception) -> str:
    """Why a text is no JSON, for a person: without line and column, and without advice on Python."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "a number has too many digits" if "set_int_max_str_digits" in str(error) else str(error)
