"""What is done on the GPU: one experiment a process, for a profiler's state outlives what it was set for."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import facts

SIZES = (1, 2, 4, 8, 16, 32, 48, 64)
ATTENTION = ("dense", "sparse")
WIDTH, LAYERS = 256, 4
CYCLES = 4
"""Of 8 sizes x 2 variants: 64 captures."""
CYCLES_WITH_STACKS = 2
KERNELS = 50
"""Launched to see whether they are seen."""
SPIN_CYCLES = 40_000_000
"""Some 20 ms on a GPU of today: a warm-up that is still running when a window opens."""
WARM_UP_KERNELS = 20


class Model:
    """Products with one row a request, and a part in which the variants differ."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        torch.manual_seed(0)
        self._weights = [torch.randn(WIDTH, WIDTH, device=device) / WIDTH**0.5 for _ in range(LAYERS)]
        self._rows = torch.randn(max(SIZES), WIDTH, device=device)

    def inputs(self, size: int) -> Any:
        return self._rows[:size]

    def forward(self, rows: Any, attention: str) -> Any:
        torch = self._torch
        for weight in self._weights:
            rows = torch.mm(rows, weight)
            if attention == "sparse":
                rows = rows * torch.topk(rows, 8, dim=-1).values.mean(-1, keepdim=True)
            else:
                rows = torch.softmax(rows, dim=-1)
        return rows


class Graphs:
    """The graphs of a process, kept with their outputs, as an engine keeps them."""

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.model = torch, Model(torch, device)
        self._pool: Any = None
        self.by_tag: dict[str, tuple[Any, Any, int, str]] = {}

    def warm_up(self, size: int, attention: str) -> None:
        for _ in range(2):
            self.model.forward(self.model.inputs(size), attention)

    def record(self, tag: str, size: int, attention: str, forward: Callable[..., Any] | None = None) -> None:
        """Capture one graph."""
        torch = self.torch
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = (forward or self.model.forward)(self.model.inputs(size), attention)
        self.by_tag[tag] = (graph, output, size, attention)

    def replay_all(self) -> list[str]:
        """Replay each graph once; tags whose result is not what the model gives without a graph."""
        wrong = []
        for tag, (graph, output, size, attention) in self.by_tag.items():
            graph.replay()
            self.torch.cuda.synchronize()
            got = output.clone()
            expected = self.model.forward(self.model.inputs(size), attention)
            if not self.torch.allclose(got, expected, rtol=1e-3, atol=1e-3):
                wrong.append(tag)
        return wrong


def captures(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """64 captures through a session, without stacks; then every graph is replayed under a profiler."""
    session = make_session(folder)
    graphs = Graphs(torch, device)
    for _ in range(CYCLES):
        capture_cycle(session, graphs, SIZES)
    session.done()
    found = {**recorded(folder), "kernelsAfter": count_kernels(torch, device, folder)}
    found["wrongResults"] = graphs.replay_all()
    found["replays"] = replay_traced(graphs, folder)
    found["kernelsAtTheEnd"] = count_kernels(torch, device, folder)
    return {**found, "versions": versions(torch)}


def script(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """32 captures through the public call, with stacks; the spool and ``stacks`` come by the environment."""
    import shapetrace_capture

    graphs = Graphs(torch, device)
    for cycle in range(1, CYCLES_WITH_STACKS + 1):
        for size in reversed(SIZES):
            for attention in ATTENTION:
                graphs.warm_up(size, attention)
                with shapetrace_capture.shape(size=size, unit="bs", attention=attention) as capture:
                    forward = capture.watch(graphs.model.forward)
                    graphs.record(f"{size} {attention} {cycle}", size, attention, forward)
    return {**recorded(folder), "kernelsAfter": count_kernels(torch, device, folder)}


def leak(torch: Any, device: str, folder: Path, synchronise: bool = True) -> dict[str, Any]:
    """Windows that open while a long warm-up is still running, with and without our synchronise."""
    from shapetrace_capture import device as capture_device
    from shapetrace_contract.tag import Runner, Shape

    if not synchronise:
        capture_device.synchronise = lambda _: None
    session, graphs = make_session(folder), Graphs(torch, device)
    values = torch.ones(1024, device=device)
    for size in SIZES:
        shape = Shape(Runner("Leak"), "bs", size, {"attention": "dense"})
        graphs.warm_up(size, "dense")
        torch.cuda.synchronize()
        torch.cuda._sleep(SPIN_CYCLES)
        for _ in range(WARM_UP_KERNELS):
            values.add_(1)
        with session.capture(shape, expects_graph=True):
            graphs.record(shape.tag, size, "dense")
    session.done()
    windows = recorded(folder)["windows"]
    return {
        "synchronise": synchronise,
        "windows": len(windows),
        "warmUpKernels": WARM_UP_KERNELS + 1,
        "leakedKernels": [item["kernels"] for item in windows],
        "launchesBeforeCapture": [item["launchesBeforeCapture"] for item in windows],
        "kernelsAfter": count_kernels(torch, device, folder),
    }


def leak_unsynchronised(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """:func:`leak` without the synchronise."""
    return leak(torch, device, folder, synchronise=False)


def nodes(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """A graph of two branches, kernels told apart by their grids: 1 and 2 are created before 3 and 4 and run later."""
    values = [torch.ones((number + 1) * 65_536, device=device) for number in range(6)]
    side = torch.cuda.Stream()

    def step() -> None:
        main = torch.cuda.current_stream()
        values[0].add_(1)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN_CYCLES // 10)
            values[1].add_(1)
            values[2].add_(1)
        values[3].add_(1)
        values[4].add_(1)
        main.wait_stream(side)
        values[5].add_(1)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def run() -> None:
        for name in ("discarded", "first", "second"):
            with torch.profiler.record_function(name):
                graph.replay()
                torch.cuda.synchronize()

    trace = traced(torch, folder / "nodes.json", run)
    launches = facts.calls(trace, facts.GRAPH_LAUNCH)
    found: dict[str, Any] = {"replays": facts.replays(trace)}
    for name, launch in zip(("discarded", "first", "second"), launches, strict=False):
        correlation = facts.argument(launch, "correlation")
        own = [event for event in facts.kernels(trace) if facts.argument(event, "correlation") == correlation]
        found[name] = facts.node_order(own)
    return found


def setting(torch: Any, device: str, folder: Path, first: str = "nothing", profiled: bool = True) -> dict[str, Any]:
    """Are kernels still seen after capture sessions? ``first``: the session before them (``nothing``, ``kernels``,
    ``empty``); environment variables are set by whoever starts this process."""
    found: dict[str, Any] = {"first": first, "profiled": profiled, "launched": KERNELS}
    torch.ones(1, device=device).add_(1)
    if first == "kernels":
        found["seenBefore"] = count_kernels(torch, device, folder)["seen"]
    elif first == "empty":
        traced(torch, folder / "empty.json", lambda: None)
    graphs = Graphs(torch, device)
    session = make_session(folder) if profiled else None
    started = time.perf_counter()
    capture_cycle(session, graphs, SIZES[:3])
    found["captureSeconds"] = round(time.perf_counter() - started, 6)
    found["captures"] = len(graphs.by_tag)
    found["seenAfterCaptures"] = count_kernels(torch, device, folder)["seen"]
    found["replays"] = replay_traced(graphs, folder)
    found["seenAtTheEnd"] = count_kernels(torch, device, folder)["seen"]
    return found


def warm_first(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """:func:`setting` with a session before it that sees kernels."""
    return setting(torch, device, folder, first="kernels")


def empty_first(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """:func:`setting` with a session before it that sees nothing, as where the fault was reported."""
    return setting(torch, device, folder, first="empty")


def unprofiled(torch: Any, device: str, folder: Path) -> dict[str, Any]:
    """The same graphs captured with no profiler: what the others are compared with."""
    return setting(torch, device, folder, profiled=False)


# ---- what they share


def make_session(folder: Path) -> Any:
    """A session that records to ``folder``, without stacks."""
    from shapetrace_capture.ranks import RankId
    from shapetrace_capture.session import Session
    from shapetrace_contract.settings import CaptureSettings

    session = Session(folder / "spool", RankId(0), CaptureSettings(stacks="None", roomWaitSeconds=0))
    session.start({"tests/gpu": "applied"})
    return session


def capture_cycle(session: Any, graphs: Graphs, sizes: tuple[int, ...]) -> None:
    """Each size with each variant, the largest first; without a session the same with no profiler."""
    from shapetrace_contract.tag import Runner, Shape

    runner = Runner("Check")
    shapes = [Shape(runner, "bs", size, {"attention": kind}) for size in reversed(sizes) for kind in ATTENTION]
    for shape in shapes if session is None else session.plan(runner, "bs", shapes):
        kind = shape.variants["attention"]
        graphs.warm_up(shape.size, kind)
        if session is None:
            graphs.record(shape.tag, shape.size, kind)
            continue
        known = functools.partial(graphs.by_tag.__contains__, shape.tag)
        with session.capture(shape, expects_graph=True, known=known) as capture:
            graphs.record(shape.tag, shape.size, kind, capture.watch(graphs.model.forward))


def recorded(folder: Path) -> dict[str, Any]:
    """The windows that a spool holds, its records' faults, and what they cost."""
    rank = folder / "spool" / "rank-00000"
    path, done = rank / "captures.jsonl", rank / "done.json"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    windows = [facts.window(json.loads((rank / item["file"]).read_bytes()), item) for item in records if item["file"]]
    faults = [f"{item['tag']}: {fault}" for item in records for fault in (item["error"], *item["dirty"]) if fault]
    return {
        "captures": len(records),
        "windows": windows,
        "faults": faults,
        "graphs": [item["witnesses"]["graphs"] for item in records],
        "costs": facts.costs(records),
        "captureBegin": json.loads(done.read_text())["captureBegin"] if done.exists() else None,
    }


def traced(torch: Any, path: Path, run: Callable[[], None]) -> dict[str, Any]:
    """The trace of ``run``, under a profiler of its own."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(path))
    trace: dict[str, Any] = json.loads(path.read_bytes())
    return trace


def count_kernels(torch: Any, device: str, folder: Path) -> dict[str, int]:
    """K kernels launched under a fresh profiler: how many does it see?"""
    values = torch.ones(1024, device=device)
    torch.cuda.synchronize()

    def run() -> None:
        for _ in range(KERNELS):
            values.add_(1)

    return {"launched": KERNELS, "seen": len(facts.kernels(traced(torch, folder / "kernels.json", run)))}


def replay_traced(graphs: Graphs, folder: Path) -> dict[str, Any]:
    """All graphs replayed under one profiler, after a replay that is discarded: what was seen of each."""
    torch = graphs.torch

    def replay(name: str, graph: Any) -> None:
        with torch.profiler.record_function(name):
            graph.replay()
            torch.cuda.synchronize()

    def run() -> None:
        first = next(iter(graphs.by_tag.values()))[0]
        replay("discarded", first)
        replay("again", first)
        for tag, (graph, *_) in graphs.by_tag.items():
            replay(tag, graph)

    return facts.replays(traced(torch, folder / "replays.json", run))


def versions(torch: Any) -> dict[str, Any]:
    """Of torch, CUDA, driver and device."""
    from shapetrace_capture import device as capture_device

    found = capture_device.versions(torch)
    if torch.cuda.is_initialized():
        found["capability"] = list(torch.cuda.get_device_capability())
    return found


EXPERIMENTS: Mapping[str, Callable[[Any, str, Path], dict[str, Any]]] = {
    "captures": captures,
    "script": script,
    "leak": leak,
    "leak-unsynchronised": leak_unsynchronised,
    "nodes": nodes,
    "setting-plain": setting,
    "setting-teardown-off": setting,
    "setting-no-lazy-reinit": setting,
    "setting-both": setting,
    "setting-warm-first": warm_first,
    "setting-empty-first": empty_first,
    "setting-empty-first-both": empty_first,
    "setting-unprofiled": unprofiled,
}
"""Name -> what is done. Those that do the same differ in :data:`ENVIRONMENT`."""

_TEARDOWN_OFF, _NO_REINIT = {"TEARDOWN_CUPTI": "0"}, {"DISABLE_CUPTI_LAZY_REINIT": "1"}
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    "setting-teardown-off": _TEARDOWN_OFF,
    "setting-no-lazy-reinit": _NO_REINIT,
    "setting-both": {**_TEARDOWN_OFF, **_NO_REINIT},
    "setting-empty-first-both": {**_TEARDOWN_OFF, **_NO_REINIT},
}
