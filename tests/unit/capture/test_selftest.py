"""After the captures the profiler is asked what it sees of a GPU. The GPU and torch's profiler are fakes here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shapetrace_capture.selftest import KERNELS, gpu_events
from shapetrace_contract import spool

from .fake_torch import session_with, torch_with


@pytest.mark.parametrize("limit", [KERNELS, KERNELS - 1, 0])
def test_the_kernels_that_the_profiler_saw_are_counted_and_nothing_is_left(tmp_path: Path, limit: int) -> None:
    assert gpu_events(torch_with(limit), tmp_path) == {"launched": KERNELS, "seen": limit}
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_or_beside_another_profiler_nothing_is_asked(tmp_path: Path) -> None:
    assert gpu_events(torch_with(initialised=False), tmp_path) is None
    assert gpu_events(torch_with(other_profiler=True), tmp_path) is None


def done_of(tmp_path: Path, torch: Any, captures: int = 1) -> dict[str, Any]:
    session = session_with(torch, tmp_path)
    spool.rank_folder(tmp_path, 0).mkdir(parents=True)
    session._sequence = captures
    session.done()
    found = spool.read_json(spool.rank_folder(tmp_path, 0) / spool.DONE)
    assert found is not None
    return found


def test_what_was_seen_is_in_the_record_of_the_end(tmp_path: Path) -> None:
    assert done_of(tmp_path / "a", torch_with())["gpuEvents"] == {"launched": KERNELS, "seen": KERNELS}
    assert done_of(tmp_path / "b", torch_with(), captures=0)["gpuEvents"] is None


def test_a_test_that_fails_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    torch = torch_with()
    torch.zeros = None
    done = done_of(tmp_path, torch)
    assert done["ok"] is True
    assert (done["gpuEvents"]["seen"], "TypeError" in done["gpuEvents"]["error"]) == (0, True)
