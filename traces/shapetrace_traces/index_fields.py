"""Every field of a trace's index: unit, where it comes from in the trace, and when there is none. docs/ shows it."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """One field."""

    unit: str
    source: str
    meaning: str
    missing: str


_RUNTIME = "`X` events of `cuda_runtime`, `cuda_driver`"
_GPU = "`X` events of `kernel`, `gpu_memcpy`, `gpu_memset`"
_WINDOW = "of runtime calls named `*StreamBeginCapture*` (hip, cuda, cu), to the `*StreamEndCapture*` of that thread"
_MANY = (
    "None (empty) beyond 500,000 launches, 2,000,000 GPU activities or 10,000 windows (`leftOut.windows`), unless no "
    "window begins or ends"
)
_SCOPED = "empty without calls; beyond 1,000,000 calls empty, with `leftOut.operators`"

FIELDS: dict[str, Field] = {
    "v": Field("version", "", "of this format", "never"),
    "events": Field("events", "`traceEvents`", "all of them, metadata and flow events too", "0 with `error`"),
    "categories": Field(
        "events", "`cat`", "by category; without one `(none)`; beyond 64 categories `(other)`", "empty without events"
    ),
    "stacksShare": Field(
        "share, 0 to 1, 4 digits",
        "`cat` = `python_function`",
        "of the events that are frames of Python stacks",
        "None without events",
    ),
    "metadata": Field("object", "`shapetrace`", "what our capture wrote into the trace", "None in foreign traces"),
    "spans": Field(
        "names",
        "`X` events of `user_annotation`",
        "each once, by its first start; 64, the own tag and `capture_<n>_<mode>` before others",
        "empty",
    ),
    "profilerSteps": Field("numbers", "spans named `ProfilerStep#<n>`", "sorted, the first 64", "empty"),
    "scope": Field(
        "`span` or `trace`",
        "`shapetrace.tag`, `user_annotation`",
        "what `operators`, `sequenceSha256`, `gemmRows`, `gemms` are of: the span named by the own tag, on its thread, "
        "or the whole trace where there is none",
        "None with `error`",
    ),
    "operators": Field(
        "calls",
        "`X` events of `cpu_op`: `name`",
        "by name, the 512 most frequent; a call is in a span that it starts in",
        _SCOPED,
    ),
    "sequenceSha256": Field(
        "hexadecimal",
        "the same: `ts`, `dur`, `name`",
        "SHA-256 of the names in order of time, joined by newlines; of two that start together the longer one is first",
        "None without calls, or where `operators` are left out",
    ),
    "gemmRows": Field(
        "calls",
        "`args.Input Dims` of the operators in gemm.py",
        "operator -> rows -> calls. Rows are all dimensions but the last of the operand that gemm.py names, multiplied",
        "empty where shapes were not recorded; " + _SCOPED,
    ),
    "gemms": Field("calls", "the same", "operator and weight (`aten::mm 4096x6144`) -> rows -> calls; 256", "the same"),
    "launches": Field(
        "calls",
        f"{_RUNTIME}: names with `Launch` and `Kernel`",
        "kernel launches of the whole trace, captured or run; one that runtime and driver both report, under one "
        "`args.correlation`, counts once (twice where `leftOut` has `windows` or `replayedNodes`)",
        "None with `error`",
    ),
    "windows": Field("list", f"`ts` {_WINDOW}", "stream captures in order of their begin, the first 64", _MANY),
    "windows[].beginMicroseconds": Field("µs after the base time", "`ts` of the begin", "", "never"),
    "windows[].endMicroseconds": Field("µs after the base time", "`ts` of the end", "", "never"),
    "windows[].launches": Field(
        "calls", _RUNTIME, "kernel launches of the window's thread that start in it, one for each correlation", "never"
    ),
    "windows[].nodes": Field(
        "calls",
        f"{_RUNTIME}: launches, and names with `Memcpy` or `Memset`",
        "what a replay of the graph is expected to run on the GPU; again one for each correlation",
        "never",
    ),
    "launchesInWindows": Field("calls", "", "sum over all windows, also those beyond 64", _MANY),
    "nodesInWindows": Field("calls", "", "the same of nodes", _MANY),
    "nodesElsewhere": Field(
        "calls",
        _RUNTIME,
        "nodes of other threads while a window is open: the trace does not say whether they were captured",
        _MANY,
    ),
    "kernelSequenceSha256": Field(
        "hexadecimal",
        f"{_RUNTIME}: `args.kernel`, which AMD's tracer writes",
        "SHA-256 of the names of the kernels launched in the windows, window by window in order of time, joined by "
        "newlines: those of the `kernel` events of whole replays of these graphs, each on one stream, give the same",
        "None without launches in windows, or where one has no name (CUDA); beyond 4,000,000 characters of distinct "
        "names None, with `leftOut.kernelSequenceSha256`; else as `windows`",
    ),
    "gpuInWindows": Field(
        "activities",
        f"{_GPU}: `args.correlation`",
        "GPU activities whose launch lies in a window: they ran and were not captured, so 0 is expected",
        _MANY,
    ),
    "gpuOutsideWindows": Field("activities", "the same", "all others", _MANY),
    "unpairedWindows": Field(
        "calls", "the same as `windows`", "begins without an end, and ends without a begin, in the trace", _MANY
    ),
    "graphLaunches": Field("calls", f"{_RUNTIME}: names with `GraphLaunch`", "replays of graphs", "None with `error`"),
    "replayedNodes": Field(
        "graph launches",
        f"`args.correlation` of graph launches and of {_GPU}",
        "GPU activities of a graph launch -> launches that have so many; `0` is a replay of which nothing was recorded",
        "empty without graph launches; beyond 500,000 launches or 2,000,000 GPU activities empty, with "
        "`leftOut.replayedNodes` (or `leftOut.windows`)",
    ),
    "gpuMicroseconds": Field(
        "µs", f"`dur` of {_GPU}", "sum by category, a float; overlapping activities count twice", "empty without any"
    ),
    "device": Field(
        "`rocm`, `cuda`, `unknown`, `cpu`",
        "`roctracer_version`, `hip_*_version`; `cupti_version`, `cuda_*_version`; else names of runtime calls "
        "(`hip...`, `cu...`), else words of `deviceProperties[].name`",
        "whose tracer wrote it; `unknown` where there are GPUs, or activities of theirs, and none of these tells whose",
        "None with `error`",
    ),
    "gpus": Field("devices", "`deviceProperties[].name`", "by name; some drivers tell none", "empty"),
    "versions": Field(
        "as written",
        "`schemaVersion`, `roctracer_version`, `hip_runtime_version`, `hip_driver_version`, `cupti_version`, "
        "`cuda_runtime_version`, `cuda_driver_version`",
        "those that there are",
        "empty",
    ),
    "flags": Field(
        "names",
        "`record_shapes`, `with_stack`, `with_flops`, `profile_memory`, `with_modules`",
        "those that are 1",
        "empty",
    ),
    "distributed": Field(
        "object",
        "`distributedInfo`: `backend`, `rank`, `world_size`, `pg_count`",
        "as `backend`, `rank`, `worldSize`, `groups`, those that there are",
        "None where torch.distributed was not used",
    ),
    "traceId": Field("text", "`trace_id`", "random; equal only in copies", "None in older traces"),
    "baseTimeNanoseconds": Field(
        "ns since 1970",
        "`baseTimeNanoseconds`",
        "what `ts` counts from; absolute time = this + 1000 `ts`",
        "None in older traces, whose `ts` is absolute",
    ),
    "lenient": Field(
        "true or false",
        "",
        "whether text was read that is no strict JSON: raw control characters, bytes that are no UTF-8 (replaced in "
        "names), NaN",
        "never",
    ),
    "leftOut": Field("count", "", "field -> entries that its bound cut", "empty where nothing was cut"),
    "error": Field("text", "", "why there is no index: then every other field is empty", "None for a whole trace"),
    "unread": Field("true", "", "the trace, or one value in it, was too long to be read here", "absent otherwise"),
}

BY_WINDOW = ("operators", "sequenceSha256", "gemmRows", "gemms", "spans", "leftOut", "thread")
"""What ``windows[]`` has too where a combined file is split: of the window instead of the scope; ``thread`` is its
process and thread."""
