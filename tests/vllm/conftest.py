"""Tests on vLLM's real classes: skipped, saying so, where there is no vLLM (``make test-vllm`` brings it)."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

HERE = Path(__file__).parent
HAS_VLLM = find_spec("torch") is not None and find_spec("vllm") is not None

if not HAS_VLLM:
    collect_ignore_glob = ["test_v1.py", "test_v2.py", "test_adapter.py", "test_engine.py"]


def pytest_configure() -> None:
    # before vLLM is imported: no hub, no usage statistics, no banner
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING"
    )


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """vLLM's process groups of one rank."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    gc.freeze()  # vLLM collects garbage before each capture: not that of its half a million imported objects
    meeting = tmp_path_factory.mktemp("world") / "meeting"
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{meeting}", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
    yield
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, world: None) -> Any:
    """A device that captures graphs as far as Python sees one."""
    import stand_ins

    return stand_ins.install_gpu(monkeypatch)


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: Any) -> Any:
    """Our adapter on vLLM's real classes, which are as they were afterwards; see :class:`stand_ins.Hooked`."""
    import stand_ins

    return stand_ins.Hooked(monkeypatch, tmp_path / "spool")
