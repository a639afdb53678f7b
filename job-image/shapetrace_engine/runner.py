"""Captures one graph per shape, as serving engines do: warm up, record, keep the graph under its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from shapetrace_capture.session import Session
from shapetrace_contract.tag import Runner, Shape

from shapetrace_engine.configuration import Configuration

Key = tuple[int, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Captured:
    """A shape's graph (None on a CPU, which has none) and its static output."""

    graph: Any
    output: Any


def key_of(shape: Shape) -> Key:
    """The key under which the runner keeps a graph."""
    return shape.size, tuple(sorted(shape.variants.items()))


class DecodeGraphRunner:
    """Records each shape's step: a ``torch.cuda.CUDAGraph`` on CUDA and ROCm, the same step without one on a CPU."""

    def __init__(self, model: Any, made: Configuration, session: Session | None, device: Any) -> None:
        self._model = model
        self._made = made
        self._session = session
        self._device = device
        self._has_graphs = device.type == "cuda"
        self._pool: Any = None
        self.graphs: dict[Key, Captured] = {}

    @property
    def name(self) -> Runner:
        """How tags name this object: its class."""
        return Runner(type(self).__name__)

    def capture(self) -> None:
        """Capture every shape, the largest first: later graphs then fit into the pool of the first."""
        shapes = self._made.shapes(self.name)
        if self._session is not None:
            shapes = self._session.plan(self.name, self._made.unit, shapes)
        for shape in shapes:
            self.capture_one(shape)

    def capture_one(self, shape: Shape) -> None:
        """Warm up outside the profiler, then record once inside it."""
        inputs = self._model.inputs(shape.size)
        step = self._model if callable(self._model) else self._model.forward
        # without a run before it a graph cannot be captured: NCCL and cuBLAS set themselves up in the first
        for _ in range(max(self._made.warmup, 1 if self._has_graphs else 0)):
            step(*inputs, variants=shape.variants)
        if self._session is None:
            self._record(shape, step, inputs)
            return
        with self._session.capture(
            shape,
            expects_graph=self._has_graphs,
            known=lambda: key_of(shape) in self.graphs,
            state=getattr(self._model, "state", None),
        ) as recording:
            self._record(shape, recording.watch(step), inputs)

    def run_eager(self, eager: str) -> None:
        """Run each shape once without capture, and say in the plan why nothing is planned."""
        shapes = self._made.shapes(self.name)
        if self._session is not None:
            self._session.plan(self.name, self._made.unit, [], [(shape, eager) for shape in shapes])
        for shape in shapes:
            self._model.forward(*self._model.inputs(shape.size), variants=shape.variants)

    def _record(self, shape: Shape, step: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        record = self._record_graph if self._has_graphs else self._record_step
        self.graphs[key_of(shape)] = record(step, inputs, shape.variants)

    def _record_step(self, step: Callable[..., Any], inputs: tuple[Any, ...], variants: Mapping[str, str]) -> Captured:
        return Captured(None, step(*inputs, variants=variants))

    def _record_graph(self, step: Callable[..., Any], inputs: tuple[Any, ...], variants: Mapping[str, str]) -> Captured:
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool):
            output = step(*inputs, variants=variants)
        return Captured(graph, output)
