"""After the captures the profiler is asked what it sees of a GPU. The GPU and torch's profiler are fakes here."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shapetrace_capture.ranks import RankId
from shapetrace_capture.selftest import KERNELS, gpu_events
from shapetrace_capture.session import Session
from shapetrace_contract import spool


class FakeProfile:
    """A profiler that sees the first ``limit`` kernels of those that run while it records."""

    with_stack = False
    profiler: Any = None

    def __init__(self, gpu: FakeGpu, limit: int) -> None:
        self._gpu, self._limit, self._begin, self._seen = gpu, limit, 0, 0

    def prepare_trace(self) -> None:
        """Nothing to do."""

    def start_trace(self) -> None:
        self._begin = self._gpu.ran

    def add_metadata_json(self, key: str, value: str) -> None:
        """Not looked at here."""

    def stop_trace(self) -> None:
        self._seen = min(self._gpu.ran - self._begin, self._limit)

    def export_chrome_trace(self, path: str) -> None:
        events = [{"cat": "cpu_op"}, *({"cat": "kernel"} for _ in range(self._seen))]
        Path(path).write_text(json.dumps({"traceEvents": events}))


class FakeGpu:
    """A tensor on it, and how many kernels ran."""

    ran = 0

    def add_(self, value: int) -> None:
        self.ran += 1


def torch_with(limit: int = KERNELS, *, initialised: bool = True, other_profiler: bool = False) -> Any:
    gpu = FakeGpu()

    def zeros(count: int, device: str) -> FakeGpu:
        if device != "cuda" or not initialised:
            raise RuntimeError("no such device")
        gpu.ran = 0
        return gpu

    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        is_current_stream_capturing=lambda: False,
        synchronize=lambda: None,
        get_device_name=lambda: "fake",
    )
    profiler = SimpleNamespace(
        ProfilerActivity=SimpleNamespace(CPU=1, CUDA=2), profile=lambda **_: FakeProfile(gpu, limit)
    )
    autograd = SimpleNamespace(profiler=SimpleNamespace(), _profiler_enabled=lambda: other_profiler)
    return SimpleNamespace(
        __version__="2.13.0", version=SimpleNamespace(cuda="13", hip=None), _C=SimpleNamespace(),
        cuda=cuda, profiler=profiler, autograd=autograd, zeros=zeros,
    )  # fmt: skip


@pytest.mark.parametrize("limit", [KERNELS, KERNELS - 1, 0])
def test_the_kernels_that_the_profiler_saw_are_counted_and_nothing_is_left(tmp_path: Path, limit: int) -> None:
    assert gpu_events(torch_with(limit), tmp_path) == {"launched": KERNELS, "seen": limit}
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_or_beside_another_profiler_nothing_is_asked(tmp_path: Path) -> None:
    assert gpu_events(torch_with(initialised=False), tmp_path) is None
    assert gpu_events(torch_with(other_profiler=True), tmp_path) is None


def done_of(tmp_path: Path, torch: Any, captures: int = 1) -> dict[str, Any]:
    session = Session(tmp_path, RankId(0), SimpleNamespace(  # type: ignore[arg-type]
        ranks="All", stacks="None", targets=[], roomWaitSeconds=1, recordShapes=True, flops=False, memory=False
    ))  # fmt: skip
    spool.rank_folder(tmp_path, 0).mkdir(parents=True)
    session._torch, session._sequence = torch, captures
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
