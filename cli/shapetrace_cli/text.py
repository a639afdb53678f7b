"""Text from traces, manifests, stores and clusters on its way to a terminal: hostile until it went through here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_ESCAPE_SEQUENCE = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: window titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"  # the short ones
)
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Control, format (direction overrides, zero width), surrogates, private use, line and paragraph separators."""


def plain(text: object, limit: int | None = None) -> str:
    """``text`` on one line without escape sequences and control characters, at most ``limit`` characters.

    White space, line breaks included, becomes one space. Never fails.
    """
    without = _ESCAPE_SEQUENCE.sub("", str(text))
    spaced = "".join(" " if character.isspace() else character for character in without)
    safe = "".join(character for character in spaced if unicodedata.category(character) not in _UNSAFE_CATEGORIES)
    line = " ".join(safe.split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def size_text(count_bytes: int) -> str:
    """``1.4 MiB``: bytes for a person, three digits or fewer before the unit."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def column_widths(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Characters of each column; every row has as many cells as the first."""
    return tuple(max(map(len, column)) for column in zip(*rows, strict=True))


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Plain text in columns, two spaces between them: for pipes and files."""
    widths = column_widths(rows)
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
