"""What reading a trace can end in."""

from __future__ import annotations


class UnreadableTraceError(ValueError):
    """Not a trace; the text says why, and where."""


class TooLongTraceError(UnreadableTraceError):
    """Perhaps a trace, but too long to be read here."""
