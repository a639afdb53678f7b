"""What a trace says, in numbers. Pure: no torch, no files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

Event = Mapping[str, Any]
Trace = Mapping[str, Any]

LAUNCH = "LaunchKernel"
"""In the name of any call that launches a kernel: ``cudaLaunchKernel``, ``cudaLaunchKernelExC``, ``cuLaunchKernel``."""
GRAPH_LAUNCH = "GraphLaunch"
SPIN = "spin"
"""In the name of the kernel behind ``torch.cuda._sleep``."""


def of_category(trace: Trace, *categories: str) -> list[Event]:
    """The events of these categories in time order."""
    found = [event for event in trace["traceEvents"] if event.get("cat") in categories and "ts" in event]
    return sorted(found, key=lambda event: event["ts"])


def argument(event: Event, name: str) -> Any:
    """An argument of an event, None where it has none."""
    arguments = event.get("args")
    return arguments.get(name) if isinstance(arguments, Mapping) else None


def kernels(trace: Trace) -> list[Event]:
    """Kernels that ran on the device."""
    return of_category(trace, "kernel")


def calls(trace: Trace, word: str) -> list[Event]:
    """Calls of the runtime or the driver whose name holds ``word``; one that both report counts once."""
    found: dict[Any, Event] = {}
    for event in reported(trace, word):
        found.setdefault(argument(event, "correlation") or ("no correlation", len(found)), event)
    return list(found.values())


def reported(trace: Trace, word: str) -> list[Event]:
    """The same, and what both report twice."""
    return [event for event in of_category(trace, "cuda_runtime", "cuda_driver") if word in event["name"]]


def window(trace: Trace, record: Mapping[str, Any]) -> dict[str, Any]:
    """What a capture's window holds; ``record`` is its line in ``captures.jsonl``."""
    begins, ends = calls(trace, "StreamBeginCapture"), calls(trace, "StreamEndCapture")
    begin = begins[0]["ts"] if begins else None
    end = ends[-1]["ts"] if ends else None
    launches = calls(trace, LAUNCH)
    inside = [item for item in launches if begin is not None and end is not None and begin <= item["ts"] <= end]
    before = [item for item in launches if begin is not None and item["ts"] < begin]
    products = [event for event in of_category(trace, "cpu_op") if event["name"] == "aten::mm"]
    written = trace.get("shapetrace")
    spans = [event["name"] for event in of_category(trace, "user_annotation")]
    dims = [argument(event, "Input Dims") for event in products]
    return {
        "tag": record["tag"],
        "size": record["shape"]["size"],
        "variants": record["shape"]["variants"],
        "metadataTag": written.get("tag") if isinstance(written, Mapping) else None,
        "spans": spans.count(record["tag"]),
        "begins": len(begins),
        "ends": len(ends),
        "launches": len(inside),
        "launchesBeforeCapture": len(before),
        "launchesOutside": len(launches) - len(inside),
        "reportedTwice": len(reported(trace, LAUNCH)) - len(launches),
        "kernels": len(kernels(trace)),
        "rows": sorted({item[0][0] for item in dims if item and item[0]}),
        "products": len(products),
        "topk": any(event["name"] == "aten::topk" for event in of_category(trace, "cpu_op")),
    }


def wrong_windows(windows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Question -> tags of the windows that answer it with no."""
    rules = {
        "begin and end of the stream capture are in it": lambda item: item["begins"] == item["ends"] == 1,
        "kernels were launched while the stream was captured": lambda item: item["launches"] > 0,
        "metadata and span carry the tag": lambda item: item["metadataTag"] == item["tag"] and item["spans"] == 1,
        "all products have as many rows as the label says": lambda item: item["rows"] == [item["size"]],
        "the variant's operators are those of the label": lambda item: (
            item["topk"] == (item["variants"].get("attention") == "sparse")
        ),
    }
    return {question: [str(item["tag"]) for item in windows if not holds(item)] for question, holds in rules.items()}


def replays(trace: Trace) -> dict[str, dict[str, Any]]:
    """Span -> what ran on the device for the graphs that were launched in it.

    A kernel belongs to the launch whose correlation it has. Spans of one name are counted apart: ``name``, ``name #2``.
    """
    launches = calls(trace, GRAPH_LAUNCH)
    by_correlation: dict[Any, list[Event]] = defaultdict(list)
    for event in kernels(trace):
        by_correlation[argument(event, "correlation")].append(event)
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for span in of_category(trace, "user_annotation"):
        begin, end = span["ts"], span["ts"] + span.get("dur", 0)
        own = [item for item in launches if begin <= item["ts"] <= end]
        if not own:
            continue
        seen[span["name"]] += 1
        name = span["name"] if seen[span["name"]] == 1 else f"{span['name']} #{seen[span['name']]}"
        ran = [event for item in own for event in by_correlation.get(argument(item, "correlation"), ())]
        found[name] = {
            "graphLaunches": len(own),
            "kernels": len(ran),
            "withGraphId": sum(bool(argument(event, "graph id")) for event in ran),
            "withNodeId": sum(bool(argument(event, "graph node id")) for event in ran),
        }
    return found


def node_order(events: Iterable[Event]) -> dict[str, Any]:
    """Of one replay of a graph whose kernels were created in the order of their grids, the smallest first.

    ``byNode`` and ``byTime`` are positions of creation, in the order of node ids and of execution. The two differ where
    the graph has branches: only then does agreement with creation say something of node ids.
    """
    chosen = [event for event in events if SPIN not in event["name"] and argument(event, "grid")]
    grids = sorted({argument(event, "grid")[0] for event in chosen})
    position = {grid: number for number, grid in enumerate(grids)}
    nodes = [argument(event, "graph node id") for event in chosen]
    by_time = [position[argument(event, "grid")[0]] for event in sorted(chosen, key=lambda event: event["ts"])]
    if not chosen or not all(isinstance(node, int) and node for node in nodes) or len(set(nodes)) < len(nodes):
        return {"byNode": None, "byTime": by_time, "isCreationOrder": None}
    ordered = sorted(chosen, key=lambda event: argument(event, "graph node id"))
    by_node = [position[argument(event, "grid")[0]] for event in ordered]
    return {"byNode": by_node, "byTime": by_time, "isCreationOrder": by_node == sorted(by_node)}


def costs(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Seconds of each step of a window, over all windows but the first, which is told apart: it starts the tracer."""
    steps = ("room", "start", "window", "stop", "save")
    times = [record["timesSeconds"] for record in records if record.get("file")]
    later = times[1:] or times
    found: dict[str, Any] = {"windows": len(times)}
    for step in steps:
        values = [item[step] for item in later if step in item]
        if values:
            found[step] = {
                "firstSeconds": times[0].get(step),
                "medianSeconds": round(median(values), 6),
                "maxSeconds": round(max(values), 6),
            }
    sizes = [record["rawBytes"] for record in records if record.get("file")]
    if sizes:
        found["rawBytes"] = {"median": int(median(sizes)), "max": max(sizes)}
    return found
