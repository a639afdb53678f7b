"""What stands in for the GPU: graphs, streams and the stream capture, as far as SGLang's Python sees them.

Only names are replaced that need a device; ``torch.profiler`` is the real one, with CPU activity.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any


class FakeStream:
    """``torch.cuda.Stream``; ``index`` tells those of pdmux apart."""

    def __init__(self, index: int | None = None, **_: Any) -> None:
        self.index = index

    def wait_stream(self, other: Any) -> None:
        """Nothing runs beside."""


class FakeGraph:
    """``torch.cuda.CUDAGraph``. At most one records at a time, as on a device."""

    recording: FakeGraph | None = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.captured = False

    def capture_begin(self, *_: Any, **__: Any) -> None:
        assert FakeGraph.recording is None, "a stream capture inside another"
        FakeGraph.recording = self

    def capture_end(self) -> None:
        assert FakeGraph.recording is self
        FakeGraph.recording = None
        self.captured = True

    def replay(self) -> None:
        assert self.captured

    def reset(self) -> None:
        self.captured = False


class fake_graph(contextlib.AbstractContextManager):  # noqa: N801 - as torch.cuda.graph
    """``torch.cuda.graph``."""

    def __init__(self, cuda_graph: Any, pool: Any = None, stream: Any = None, **_: Any) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


# who counts graphs names the caller of torch's own file, in whose place this one stands
fake_graph.__enter__.__code__ = fake_graph.__enter__.__code__.replace(co_filename="torch/cuda/graphs.py")


class FakeSegments(contextlib.AbstractContextManager):
    """``BreakableCUDAGraphCapture``: a stream capture that :meth:`cut` ends and begins again."""

    current: FakeSegments | None = None

    def __init__(self, cuda_graph: Any, **_: Any) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        FakeSegments.current = self
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._segment.capture_end()
        FakeSegments.current = None

    def _begin(self) -> None:
        import torch

        self._segment = torch.cuda.CUDAGraph()
        self._segment.capture_begin()

    @classmethod
    def cut(cls) -> None:
        """A break of the graph, where one is recorded in segments."""
        if cls.current is not None:
            cls.current._segment.capture_end()
            cls.current._begin()


class FakeDevice:
    """``torch.cuda`` as a runner holds it in ``device_module``."""

    graph = staticmethod(fake_graph)
    Stream = FakeStream

    @staticmethod
    def synchronize() -> None:
        """Nothing runs beside."""

    @staticmethod
    def graph_pool_handle() -> tuple[int, int]:
        return (0, 1)

    @staticmethod
    def is_current_stream_capturing() -> bool:
        return FakeGraph.recording is not None


class FakeGroup:
    """The tensor parallel group of one process."""

    def barrier(self) -> None:
        """Nobody to wait for."""


@contextlib.contextmanager
def fake_graph_capture(stream: Any = None, **_: Any) -> Iterator[Any]:
    """``sglang.srt.distributed.parallel_state.graph_capture``."""
    yield SimpleNamespace(stream=stream or FakeStream())


@contextlib.contextmanager
def nothing_around(*_: Any, **__: Any) -> Iterator[None]:
    """A context in which nothing is different."""
    yield


def install(*modules: ModuleType) -> None:
    """Put the stand-ins in place: in torch, and where SGLang's ``modules`` hold such a name of their own."""
    import torch

    torch.cuda.CUDAGraph = FakeGraph
    torch.cuda.graph = fake_graph
    torch.cuda.Stream = FakeStream
    torch.cuda.is_current_stream_capturing = FakeDevice.is_current_stream_capturing
    # initialised only while a graph is recorded: windows are opened outside, and ask for CUDA activity where it is
    torch.cuda.is_initialized = FakeDevice.is_current_stream_capturing
    torch.cuda.memory._record_memory_history = lambda *_, **__: None
    torch.cuda.memory._dump_snapshot = lambda *_, **__: None
    stand_ins = {
        "graph_capture": fake_graph_capture,
        "get_or_create_global_graph_capture_stream": FakeStream,
        "get_or_create_global_graph_memory_pool": lambda *_: (0, 1),
        "set_graph_pool_id": lambda *_: None,
        "graph_pool_capture_scope": nothing_around,
        "freeze_gc": nothing_around,
        "get_available_gpu_memory": lambda *_, **__: 1.0,
        "get_tensor_model_parallel_rank": lambda: 0,
        "BreakableCUDAGraph": FakeGraph,
        "BreakableCUDAGraphCapture": FakeSegments,
    }
    for module in modules:
        for name, value in stand_ins.items():
            if hasattr(module, name):
                setattr(module, name, value)
