"""Says where the tests of this folder did not run."""

from __future__ import annotations

import os

import pytest


def test_sglang_is_here() -> None:
    if not os.environ.get("SHAPETRACE_TEST_SGLANG"):
        pytest.skip("SGLang is not here: make test-sglang has an environment of its own")
    from importlib.metadata import entry_points

    (found,) = [point for point in entry_points(group="sglang.srt.plugins") if point.name == "shapetrace"]
    assert found.load().__module__ == "shapetrace_capture.plugins"
