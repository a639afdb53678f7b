"""Whether a trace holds the graph that its capture made. Pure.

A profiler whose activity collection died goes on to record operators and says nothing: such a trace has its rows and no
launch (pull requests 1287 and 1348 of tokenspeed). So where the record counted graphs on a GPU, their stream captures
and what was launched in them have to be in the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shapetrace_traces.judge.evidence import Trace


def lacking_graph(trace: Trace) -> Iterator[str]:
    """What of its graphs is not in a readable trace, or is no graph. Nothing without a GPU, a graph, or an answer: of a
    trace with too many launches the index knows no windows."""
    index, graphs = trace.index, _count(trace.witness("graphs"))
    nodes, ran, unpaired = (_count(index.get(name)) for name in ("nodesInWindows", "gpuInWindows", "unpairedWindows"))
    if trace.witness("graph") is not True or trace.witness("device") == "cpu" or nodes is None:
        return
    windows = index.get("windows")
    left_out = index.get("leftOut")
    seen = len(windows) if isinstance(windows, list) else 0
    seen += (_count(left_out.get("windows")) or 0) if isinstance(left_out, dict) else 0
    if unpaired:
        yield f"{unpaired} stream captures in it have no begin or no end"
    elif seen < (graphs or 1):
        yield f"it holds {seen} stream captures of {graphs or 1}: the profiler did not see the runtime's calls"
    elif not nodes and not _count(index.get("nodesElsewhere")):  # of another thread, which may be the graph's
        yield "nothing was launched in its stream captures: the profiler did not see the launches"
    if ran:
        yield f"{ran} GPU activities were launched in its stream captures and ran, so they are in no graph"


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
