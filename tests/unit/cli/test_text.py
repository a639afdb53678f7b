from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_cli.text import plain, size_text


@given(st.text())
def test_no_control_or_format_character_survives(text: str) -> None:
    assert not [c for c in plain(text) if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    assert plain(plain(text)) == plain(text)


@pytest.mark.parametrize(
    ("hostile", "safe"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;ZWNobyBoaQ==\x1b\\x", "x"),
        ("\x9b2Jx", "x"),
        ("a\rb\nc\td", "a b c d"),
        ("\x1bPq...\x1b\\y", "y"),
        ("rank\u202e0", "rank0"),
        ("DecodeRunner__bs_1", "DecodeRunner__bs_1"),
        ("größe…", "größe…"),
    ],
)
def test_escape_sequences_are_removed_whole(hostile: str, safe: str) -> None:
    assert plain(hostile) == safe


def test_long_text_is_cut() -> None:
    assert plain("x" * 50, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (1536, "1.5 KiB"), (150 * 2**20, "150 MiB")]
)
def test_sizes_are_for_persons(count: int, text: str) -> None:
    assert size_text(count) == text
