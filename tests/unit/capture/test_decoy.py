"""The workaround is for one pair of versions only."""

from __future__ import annotations

import pytest
from shapetrace_capture.decoy import is_needed


@pytest.mark.parametrize(
    ("torch", "python", "needed"),
    [
        ("2.6.0+debian", (3, 13), True),
        ("2.6.0a0+gitunknown", (3, 13), True),
        ("2.6.0", (3, 12), False),
        ("2.7.0", (3, 13), False),
        ("2.60.0", (3, 13), False),
        ("2.15.0+cu132", (3, 13), False),
    ],
)
def test_only_torch_2_6_on_python_3_13(torch: str, python: tuple[int, int], needed: bool) -> None:
    assert is_needed(torch, python) is needed
