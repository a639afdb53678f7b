"""torch with a GPU and a profiler, as far as a session asks them; nothing of it is real."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shapetrace_capture.ranks import RankId
from shapetrace_capture.session import Session
from shapetrace_contract.settings import CaptureSettings


class FakeProfile:
    """A profiler that sees the first ``limit`` kernels of those that run while it records."""

    with_stack = False
    profiler: Any = None

    def __init__(self, gpu: FakeGpu, limit: int) -> None:
        self._gpu, self._limit, self._begin, self._seen = gpu, limit, 0, 0

    def prepare_trace(self) -> None:
        """Nothing to do."""

    def start_trace(self) -> None:
        self._gpu.log.append("start")
        self._begin = self._gpu.ran

    def add_metadata_json(self, key: str, value: str) -> None:
        """Not looked at here."""

    def stop_trace(self) -> None:
        self._seen = min(self._gpu.ran - self._begin, self._limit)

    def export_chrome_trace(self, path: str) -> None:
        events = [{"cat": "cpu_op"}, *({"cat": "kernel"} for _ in range(self._seen))]
        Path(path).write_text(json.dumps({"traceEvents": events}))


class FakeGpu:
    """A tensor on it, how many kernels ran, and what was asked of device and profiler in which order."""

    def __init__(self) -> None:
        self.ran = 0
        self.log: list[str] = []

    def add_(self, value: int) -> None:
        self.ran += 1


def torch_with(limit: int = 1000, *, initialised: bool = True, other_profiler: bool = False) -> Any:
    gpu = FakeGpu()

    def zeros(count: int, device: str) -> FakeGpu:
        if device != "cuda" or not initialised:
            raise RuntimeError("no such device")
        gpu.ran = 0
        return gpu

    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        is_current_stream_capturing=lambda: False,
        synchronize=lambda: gpu.log.append("synchronise"),
        get_device_name=lambda: "fake",
    )
    profiler = SimpleNamespace(
        ProfilerActivity=SimpleNamespace(CPU=1, CUDA=2),
        profile=lambda **_: FakeProfile(gpu, limit),
        record_function=lambda name: contextlib.nullcontext(),
    )
    autograd = SimpleNamespace(profiler=SimpleNamespace(), _profiler_enabled=lambda: other_profiler)
    return SimpleNamespace(
        __version__="2.13.0", version=SimpleNamespace(cuda="13", hip=None), _C=SimpleNamespace(),
        cuda=cuda, profiler=profiler, autograd=autograd, zeros=zeros, log=gpu.log,
    )  # fmt: skip


def session_with(torch: Any, folder: Path) -> Session:
    """The session of rank 0, which finds this torch."""
    session = Session(folder, RankId(0), CaptureSettings(stacks="None"))
    session._torch = torch
    return session
