"""An attempt's folder as a finished run leaves it, made by hand: the command line must need nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from shapetrace_cli import report

from .attempts import RELATIVE, make_attempt


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is told by the clock, and a busy machine takes longer than a person's patience for next to nothing."""
    monkeypatch.setattr(report, "TELL_AFTER_SECONDS", 3600.0)
    monkeypatch.setattr(report, "_LINE_EVERY_SECONDS", 3600.0)


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """A whole attempt's folder."""
    root = tmp_path / "store" / RELATIVE
    make_attempt(root)
    return root
