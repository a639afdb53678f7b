"""A reader that is slow and obviously right: the whole text at once, ``json``, one plain loop for each number.

It shares the table of operands and nothing else with the reader that it is compared with.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

from shapetrace_traces.gemm import rows_and_weight

RUNTIME = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LARGEST = 1e18


class NotATraceError(Exception):
    """What the reader must answer with an error."""


def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key == "traceEvents" and key in found:
            found["twice"] = True
        found.setdefault(key, value)
    return found


def parse(text: bytes) -> tuple[list[Any], dict[str, Any], bool]:
    """Events, top level, whether it took leniency."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    if text.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in text[:4]:
        raise NotATraceError("UTF-16")
    lenient = False
    try:
        value = json.loads(text.decode(), object_pairs_hook=first_wins, parse_constant=refuse)
    except (ValueError, RecursionError):
        lenient = True
        try:
            value = json.loads(text.decode("utf-8", "replace"), object_pairs_hook=first_wins, strict=False)
        except (ValueError, RecursionError) as error:
            raise NotATraceError(str(error)) from None
    if isinstance(value, list):
        return value, {}, lenient
    if not isinstance(value, dict) or not isinstance(value.get("traceEvents"), list) or value.get("twice"):
        raise NotATraceError("no traceEvents")
    return value["traceEvents"], value, lenient


def refuse(text: str) -> None:
    raise ValueError(text)


def time_of(event: dict[str, Any], key: str, default: Any = None) -> float:
    value = event.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LARGEST < value < LARGEST:
        raise NotATraceError(f"{key} is no time")
    return float(value)


def name_of(event: dict[str, Any]) -> str:
    if not isinstance(event.get("name"), str):
        raise NotATraceError("no name")
    return event["name"]


def short(name: str) -> str:
    name = name.encode("utf-8", "replace").decode()
    return name if len(name) <= 200 else name[:199] + "…"


def thread(event: dict[str, Any]) -> tuple[Any, Any]:
    place = event.get("pid"), event.get("tid")
    return tuple(item if isinstance(item, (str, int, float)) else None for item in place)


def correlation(event: dict[str, Any]) -> int | None:
    args = event.get("args")
    value = args.get("correlation") if isinstance(args, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**62 else None


def kernel(event: dict[str, Any]) -> str | None:
    args = event.get("args")
    value = args.get("kernel") if isinstance(args, dict) else None
    return value if isinstance(value, str) and value else None


def index(text: bytes) -> dict[str, Any]:
    """The fields of the index that count something; NotATraceError where there is no index."""
    events, top, lenient = parse(text)
    categories: Counter[str] = Counter()
    for event in events:
        if not isinstance(event, dict):
            raise NotATraceError("no object")
        category = event.get("cat")
        known = category is None or (isinstance(category, str) and len(category) <= 64)
        categories["(none)" if category is None else category if known else "(other)"] += 1
    whole = [event for event in events if event.get("ph") == "X" and isinstance(event.get("cat"), str)]

    calls, spans, runtime, gpu = [], [], [], []
    for number, event in enumerate(whole):
        category = event["cat"]
        if category in ("cpu_op", "user_annotation"):
            item = (time_of(event, "ts"), -time_of(event, "dur", 0), number, name_of(event), event)
            (calls if category == "cpu_op" else spans).append(item)
        if category in RUNTIME:
            kind = kind_of(name_of(event))
            if kind:
                runtime.append((kind, time_of(event, "ts"), thread(event), correlation(event), kernel(event)))
        if category in GPU:
            gpu.append((category, time_of(event, "dur", 0), correlation(event)))
    calls.sort(key=lambda item: item[:3])
    spans.sort(key=lambda item: item[:3])

    metadata = top.get("shapetrace")
    if isinstance(metadata, dict):
        try:
            long = len(json.dumps(metadata, allow_nan=False)) > 4096
            json.dumps(metadata, ensure_ascii=False).encode()
        except ValueError:
            raise NotATraceError("metadata") from None
        if long:
            raise NotATraceError("metadata")
    own = metadata.get("tag") if isinstance(metadata, dict) else None
    scope = next((item for item in spans if isinstance(own, str) and short(item[3]) == own), None)
    if scope is not None:
        begin, end = scope[0], scope[0] - scope[1]
        calls = [item for item in calls if begin <= item[0] <= end and thread(item[4]) == thread(scope[4])]
    names = [short(item[3]) for item in calls]
    rows: dict[str, Counter[str]] = {}
    for item in calls:
        args = item[4].get("args")
        found = rows_and_weight(item[3], args.get("Input Dims")) if isinstance(args, dict) else None
        if found:
            rows.setdefault(short(item[3]), Counter())[str(found[0])] += 1
    return {
        "events": len(events),
        "categories": dict(sorted(categories.items())),
        "spans": list(dict.fromkeys(short(item[3]) for item in spans)),
        "scope": "trace" if scope is None else "span",
        "operators": dict(sorted(Counter(names).items())),
        "sequenceSha256": hashlib.sha256("\n".join(names).encode()).hexdigest() if names else None,
        "gemmRows": {name: dict(counts) for name, counts in rows.items()},
        "lenient": lenient,
        "traceId": short(top["trace_id"]) if isinstance(top.get("trace_id"), str) else None,
        **graphs(runtime, gpu),
    }


def kind_of(name: str) -> str | None:
    for part, kind in (("StreamBeginCapture", "begin"), ("StreamEndCapture", "end")):
        if part in name:
            return kind
    if "GraphLaunch" in name:
        return "graph"
    if "Graph" in name:
        return None
    if "Launch" in name and "Kernel" in name:
        return "launch"
    return "copy" if "Memcpy" in name or "Memset" in name else None


def graphs(runtime: list[Any], gpu: list[Any]) -> dict[str, Any]:
    windows, unpaired, opened = [], 0, {}
    marks = [item for item in runtime if item[0] in ("begin", "end")]
    for kind, start, where, *_ in sorted(marks, key=lambda item: item[1]):
        if kind == "begin":
            opened.setdefault(where, []).append(start)
        elif not opened.get(where):
            unpaired += 1
        else:
            windows.append([opened[where].pop(), start, where, [], 0, len(windows)])
    unpaired += sum(len(begins) for begins in opened.values())
    # without those that another one, which ended later, holds
    windows = [
        window
        for window in windows
        if not any(
            other[2] == window[2] and other[5] > window[5] and other[0] <= window[0] and window[1] <= other[1]
            for other in windows
        )
    ]
    launches, elsewhere, inside, seen = 0, 0, set(), set()
    nodes = [item for kind in ("launch", "copy") for item in runtime if item[0] == kind]
    for kind, start, where, number, name in sorted(nodes, key=lambda item: (item[0] == "copy", item[1])):
        own = [window for window in windows if window[2] == where and window[0] <= start <= window[1]]
        latest = max(own, key=lambda window: window[:2]) if own else None
        place = where if latest is None else latest[5]
        if number is not None and (place, number) in seen:
            continue
        seen.add((place, number))
        launches += kind == "launch"
        if latest is not None:
            if kind == "launch":
                latest[3].append(name)
            else:
                latest[4] += 1
            inside.add(number)
        elif any(window[0] <= start <= window[1] for window in windows):
            elsewhere += 1
    inside.discard(None)
    kernels = [name for window in sorted(windows, key=lambda window: window[:2]) for name in window[3]]
    named = "\n".join(kernels).encode("utf-8", "replace") if kernels and None not in kernels else None
    replays = [number for kind, _, _, number, _ in runtime if kind == "graph" and number is not None]
    ran = Counter(number for _, _, number in gpu)
    microseconds: dict[str, float] = {}
    for category, duration, _ in gpu:
        microseconds[category] = microseconds.get(category, 0.0) + duration
    return {
        "launches": launches,
        "windows": sorted((begin, end, len(names), len(names) + copies) for begin, end, _, names, copies, _ in windows),
        "launchesInWindows": sum(len(window[3]) for window in windows),
        "nodesInWindows": sum(len(window[3]) + window[4] for window in windows),
        "kernelSequenceSha256": None if named is None else hashlib.sha256(named).hexdigest(),
        "nodesElsewhere": elsewhere,
        "gpuInWindows": sum(number in inside for _, _, number in gpu),
        "gpuOutsideWindows": sum(number not in inside for _, _, number in gpu),
        "unpairedWindows": unpaired,
        "graphLaunches": sum(kind == "graph" for kind, *_ in runtime),
        "replayedNodes": {str(n): k for n, k in Counter(ran[number] for number in set(replays)).items()},
        "gpuMicroseconds": microseconds,
    }


def comparable(found: dict[str, Any]) -> dict[str, Any]:
    """The same fields of the reader's answer."""
    names = ("beginMicroseconds", "endMicroseconds", "launches", "nodes")
    kept = {key: found[key] for key in index(b"[]")}
    return {**kept, "windows": sorted(tuple(window[name] for name in names) for window in found["windows"])}
