"""``tests/gpu/check_gpu.py`` with ``torch.cuda`` replaced by named fakes: its control flow, on a CPU.

Nothing runs on a device, so every question about the device has to come out as *not* answered with yes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
import check_gpu

NAME = "A Named Fake (no GPU)"


class FakeGraph:
    """Counts like a graph; what it captured has run already, and a replay changes nothing."""

    capturing = False

    def capture_begin(self, *_: Any, **__: Any) -> None:
        FakeGraph.capturing = True

    def capture_end(self) -> None:
        FakeGraph.capturing = False

    def replay(self) -> None:
        return None


class FakeStream:
    """Orders nothing."""

    def wait_stream(self, other: FakeStream) -> None:
        assert isinstance(other, FakeStream)


@contextlib.contextmanager
def fake_graph(graph: FakeGraph, pool: Any = None) -> Iterator[None]:
    """``torch.cuda.graph``."""
    graph.capture_begin()
    try:
        yield
    finally:
        graph.capture_end()


@contextlib.contextmanager
def fake_stream(stream: FakeStream) -> Iterator[None]:
    """``torch.cuda.stream``."""
    assert isinstance(stream, FakeStream)
    yield


REAL_PROFILE = torch.profiler.profile


def fake_profile(**options: Any) -> Any:
    """``torch.profiler.profile`` of the CPU alone: torch would ask a driver that is not there at every operator."""
    return REAL_PROFILE(**{**options, "activities": [torch.profiler.ProfilerActivity.CPU]})


FAKES: dict[str, Any] = {
    "is_available": lambda: True,
    "get_device_name": lambda: NAME,
    "get_device_capability": lambda: (0, 0),
    "is_initialized": lambda: True,
    "is_current_stream_capturing": lambda: FakeGraph.capturing,
    "synchronize": lambda: None,
    "_sleep": lambda cycles: None,
    "graph_pool_handle": lambda: (0, 0),
    "current_stream": FakeStream,
    "Stream": FakeStream,
    "CUDAGraph": FakeGraph,
    "graph": fake_graph,
    "stream": fake_stream,
}

if __name__ == "__main__":
    # a machine with a GPU has cores for a process after the other; here they may have other work
    check_gpu.LIMIT_SECONDS, check_gpu.EXPERIMENT_SECONDS = 1200, 600
    with mock.patch.multiple(torch.cuda, **FAKES), mock.patch.object(torch.profiler, "profile", fake_profile):
        program = (sys.executable, "-W", "ignore", __file__)
        sys.exit(check_gpu.main(sys.argv[1:], os.environ, program, device="cpu"))
