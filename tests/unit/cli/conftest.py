"""An attempt's folder as a finished run leaves it, made by hand: the command line must need nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .attempts import RELATIVE, make_attempt


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """A whole attempt's folder."""
    root = tmp_path / "store" / RELATIVE
    make_attempt(root)
    return root
