"""Says where the tests of this folder did not run."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def test_vllm_is_here() -> None:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make test-vllm has an environment of its own")
    from importlib.metadata import entry_points

    (found,) = [point for point in entry_points(group="vllm.general_plugins") if point.name == "shapetrace"]
    assert found.load().__module__ == "shapetrace_capture.plugins"
