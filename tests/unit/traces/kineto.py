"""Directories of capture traces as engines write them, made up: Kineto's layout and keys, a small model's events.

What is in a capture follows real ones: a warm-up around the window, the window with its launches and operators, frames
of Python stacks, and no GPU activity inside. The naming follows the sources that are named at each writer.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIDTH = 64
"""Columns of the model's weights."""
GAP_MICROSECONDS = 5.0


@dataclass(frozen=True)
class Vendor:
    """How a vendor's tracer spells things."""

    prefix: str
    launch: str
    top: dict[str, Any]


AMD = Vendor("hip", "hipLaunchKernel", {"roctracer_version": 4.1, "hip_runtime_version": 70253211})
NVIDIA = Vendor("cuda", "cudaLaunchKernel", {"cupti_version": 22, "cuda_runtime_version": 12080})

DENSE = ("aten::topk", "aten::scaled_dot_product_attention")
SPARSE = ("aten::topk", "aten::gather", "aten::scaled_dot_product_attention")
LORA = ("aten::index_select",)


@dataclass(frozen=True)
class Work:
    """One forward of the model, as a graph holds it."""

    size: int
    width: int = 1
    operators: Sequence[str] = DENSE
    """Between the products of a layer: what tells variants apart."""
    layers: int = 3
    rows: Callable[[int], int] = field(default=lambda tokens: tokens)
    """Rows of the products, of the tokens: padding, for example."""
    shapes: bool = True
    """Whether shapes were recorded."""
    extra_launches: int = 0


class Events:
    """The events of one trace, and the clock of its process."""

    def __init__(self, vendor: Vendor = AMD, pid: int = 251, start: float = 4909733316064.125) -> None:
        self.vendor, self.pid = vendor, pid
        self.now = start
        self.events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": start, "args": {"name": "python"}}
        ]
        self._number = 0

    def event(self, category: str, name: str, duration: float, **args: Any) -> dict[str, Any]:
        found = {"ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": self.pid, "ts": round(self.now, 3)}
        found |= {"dur": duration, "args": args}
        self.events.append(found)
        return found

    def call(self, name: str) -> None:
        self._number += 1
        self.event("cuda_runtime", name, 1.5, cbid=7, correlation=self._number)
        self.now += 2.0

    def operator(self, name: str, *dims: list[int], shapes: bool = True) -> None:
        more = {"Input Dims": list(dims)} if shapes and dims else {}
        self.event("cpu_op", name, 3.0, **{"External id": self._number}, **more)
        self.event("python_function", f"torch/_ops.py(1050): {name}", 3.5)
        self.now += 0.5
        self.call(self.vendor.launch)

    def forward(self, work: Work) -> None:
        rows = work.rows(work.size * work.width)
        for _ in range(work.layers):
            self.operator("aten::mm", [rows, WIDTH], [WIDTH, 3 * WIDTH], shapes=work.shapes)
            for name in work.operators:
                self.operator(name, [work.size, 8, WIDTH], shapes=work.shapes)
            self.operator("aten::addmm", [WIDTH], [rows, WIDTH], [WIDTH, WIDTH], shapes=work.shapes)
        self.operator("aten::mm", [rows, WIDTH], [WIDTH, 1000], shapes=work.shapes)  # the output head

    def capture(self, work: Work, pieces: int = 1, span: str = "") -> None:
        """A graph of the work, in so many pieces, with a little that runs before it."""
        begin = self.now
        self.operator("aten::copy_", [7, 7])
        self.activity()
        for _ in range(pieces):
            self.call(f"{self.vendor.prefix}StreamBeginCapture")
            self.forward(work)
            for _ in range(work.extra_launches):
                self.call(self.vendor.launch)
            self.now += GAP_MICROSECONDS
            self.call(f"{self.vendor.prefix}StreamEndCapture")
            self.call(f"{self.vendor.prefix}GraphInstantiate")
        if span:
            self._around("user_annotation", span, begin)

    def activity(self) -> None:
        event = {"ph": "X", "cat": "kernel", "name": "vectorized_copy", "pid": 0, "tid": 3, "ts": round(self.now, 3)}
        self.events.append({**event, "dur": 2.25, "args": {"device": 0, "stream": 3, "correlation": self._number}})

    def eager(self, work: Work) -> None:
        """The same without a graph: every launch runs."""
        before = self._number
        self.forward(work)
        for number in range(before + 1, self._number + 1):
            self._number = number
            self.activity()

    def replay(self, nodes: int) -> None:
        self.call(f"{self.vendor.prefix}GraphLaunch")
        for _ in range(nodes):
            self.activity()

    def step(self, number: int, begin: float) -> None:
        self._around("user_annotation", f"ProfilerStep#{number}", begin)

    def _around(self, category: str, name: str, begin: float) -> None:
        event = {"ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": self.pid, "ts": round(begin, 3)}
        self.events.append({**event, "dur": round(self.now - begin, 3), "args": {}})

    def text(self, rank: int = 0, world: int = 1, identity: str = "", base: int = 1773709742000000000) -> bytes:
        """As Kineto writes it: keys, then events, then the rest."""
        top: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}]}
        top |= self.vendor.top
        top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world, "pg_count": 1}
        top |= {"record_shapes": 1, "with_stack": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base}
        top["trace_id"] = identity or f"{abs(hash((rank, len(self.events), self.now))):032X}"
        top |= {"traceEvents": self.events, "traceName": "/tmp/tmpx.json"}
        return json.dumps(top, indent=2).encode()


def write(path: Path, text: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, 1, mtime=0) if path.suffix == ".gz" else text)
    return path


@dataclass
class Graph:
    """One captured graph that an exporter is told of."""

    work: Work
    suffix: str = ""
    """What SGLang 0.5.22 adds to the name."""


def graphs(
    sizes: Iterable[int], variants: Sequence[tuple[str, Sequence[str]]] = (("", DENSE),), **more: Any
) -> list[Graph]:
    """What a runner captures, in SGLang's order: sizes from the largest on, and each variant of a size."""
    return [
        Graph(Work(size, operators=operators, **more), suffix)
        for size in sorted(sizes, reverse=True)
        for suffix, operators in variants
    ]


DENSE_SPARSE = (("_dense", DENSE), ("_sparse", SPARSE))


class CursorError(Exception):
    """SGLang dies with an IndexError there."""


class PerSize0518:
    """SGLang 0.5.18 to 0.5.21 with SGLANG_GRAPH_BATCH_CAPTURE: one cursor over the sizes, one callback a capture.

    ``srt/model_executor/runner/decode_cuda_graph_runner.py``, ``_init_profile_context_and_memory_record``: the list is
    ``list(reversed(self.capture_bs))``, its place advances once a callback, nothing looks at what was captured.
    """

    def __init__(self, folder: Path, capture_bs: Sequence[int], rank: int = 0, world: int = 1, **more: Any) -> None:
        self.folder, self.rank, self.world = folder, rank, world
        self.runner, self.vendor = more.get("runner", "DecodeCudaGraphRunner"), more.get("vendor", AMD)
        self._profile_bs_list = list(reversed(capture_bs))
        self._profile_bs_idx = 0
        self._callbacks = 0

    def on_trace_ready(self, work: Work) -> Path:
        step = 3 * self._callbacks + 2  # schedule(wait=2, warmup=0, active=1)
        events = Events(self.vendor, start=4909733316064.125 + 1e6 * self._callbacks)
        begin = events.now
        events.capture(work)
        events.step(step, begin)
        self._callbacks += 1
        if self._profile_bs_idx >= len(self._profile_bs_list):
            raise CursorError
        bs = self._profile_bs_list[self._profile_bs_idx]
        path = self.folder / f"{self.runner}_bs_{bs}_rank{self.rank}.json.gz"
        write(path, events.text(self.rank, self.world, f"{self.rank:016X}{step:016X}"))
        self._profile_bs_idx += 1
        return path

    def capture(self, captured: Iterable[Graph]) -> dict[str, Work]:
        """File name -> what it really holds; ends where SGLang would die."""
        held = {}
        for graph in captured:
            try:
                held[self.on_trace_ready(graph.work).name] = graph.work
            except CursorError:
                break
        return held


def write_tagged(
    folder: Path, captured: Iterable[Graph], rank: int = 0, world: int = 1, **more: Any
) -> dict[str, Work]:
    """SGLang from 0.5.22 on: the name says what is captured."""
    held = {}
    runner = more.get("runner", "DecodeCudaGraphRunner")
    for number, graph in enumerate(captured):
        events = Events(more.get("vendor", AMD), start=4909733316064.125 + 1e6 * number)
        begin = events.now
        events.capture(graph.work, pieces=more.get("pieces", 1))
        events.step(3 * number + 2, begin)
        path = folder / f"{runner}_bs_{graph.work.size}{graph.suffix}_rank{rank}.json.gz"
        write(path, events.text(rank, world, f"{rank:016X}{number:016X}"))
        held[path.name] = graph.work
    return held


def write_combined(folder: Path, captured: Iterable[Graph], rank: int = 0, world: int = 1, **more: Any) -> Path:
    """SGLANG_ENABLE_CUDA_GRAPH_CAPTURE_TRACE: one pass over all captures, one file a rank."""
    events = Events(more.get("vendor", AMD))
    begin = events.now
    for graph in captured:
        events.eager(graph.work)  # the warm-ups are in it too
        events.capture(graph.work)
    events.event("python_function", "sglang/srt/model_executor/runner.py(1043): capture", 0.0)
    events.events[-1] |= {"ts": round(begin, 3), "dur": round(events.now - begin, 3)}
    path = folder / f"cuda_graph_capture-{more.get('runner', 'DecodeCudaGraphRunner')}-TP-{rank}.json.gz"
    return write(path, events.text(rank, world))


def write_vllm(
    folder: Path, captured: Iterable[Graph], mode: str = "FULL", pieces: int = 1, rank: int = 0
) -> list[Path]:
    """vLLM's capture_torch_profiler: no shape in the name, ``capture_<tokens>_<mode>`` inside."""
    paths = []
    for number, graph in enumerate(captured):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(graph.work, pieces, span=f"capture_{graph.work.size}_{mode}")
        name = f"graph_capture_rank_{rank}.{1773709742341309550 + number}.pt.trace.json.gz"
        paths.append(write(folder / "capture_traces" / name, events.text(rank, 1, f"{number:032X}")))
    return paths


def write_patched(folder: Path, sizes: Iterable[int], rank: int = 0) -> list[Path]:
    """An engine patched by TraceLens: ``bs_<n>_rank<r>``, a span, and its list of files."""
    paths, details = [], []
    for number, size in enumerate(sorted(sizes, reverse=True)):
        events = Events(start=4909733316064.125 + 1e6 * number)
        events.capture(Work(size), span=f"capture_{size}_DECODE")
        path = folder / "capture_traces" / f"bs_{size}_rank{rank}.json.gz"
        paths.append(write(path, events.text(rank, 1, f"{rank:016X}{number:016X}")))
        details.append({"file": path.name, "batch_size": size, "mode": "FULL"})
    (folder / "capture_traces" / "execution_details.json").write_text(json.dumps(details))
    return paths


def write_eager(folder: Path, ranks: int = 2) -> list[Path]:
    """A server with graphs off: one trace of its work for each rank."""
    paths = []
    for rank in range(ranks):
        events = Events()
        for size in (4, 4, 2):
            events.eager(Work(size))
        paths.append(write(folder / f"1700000000.1-TP-{rank}.trace.json.gz", events.text(rank, ranks)))
    return paths


def write_replay(folder: Path) -> Path:
    events = Events()
    events.replay(12)
    return write(folder / "1700000000.1-TP-0-DECODE.trace.json.gz", events.text())
