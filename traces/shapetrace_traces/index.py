"""The index of one trace: the few facts that judging needs, small enough to travel in a part.

A plain ``json`` reader: the whole trace is parsed in memory. It reads Chrome JSON as Kineto writes it.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from shapetrace_contract import VERSION

from shapetrace_traces.gemm import rows_and_weight

MAX_OPERATORS = 512
"""Distinct operator names kept; a real capture has about a hundred."""
MAX_SPANS = 64
MAX_GEMMS = 256
"""Distinct (operator, weight) pairs kept; a real model has about ten."""
MAX_ROWS = 64
"""Distinct row counts kept of one operator."""
MAX_NAME_CHARACTERS = 200
MAX_METADATA_CHARACTERS = 4096
"""Ours has about 300; it is copied into parts."""
MAX_RAW_BYTES = 2 * 1024**3
"""A longer trace is not read: what a small compressed file unpacks to is its author's choice."""

_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1024 * 1024


class UnreadableTraceError(ValueError):
    """Not a trace; the text says why."""


class TooLongTraceError(UnreadableTraceError):
    """Perhaps a trace, but too long to be read here."""


def index_trace(raw: bytes) -> dict[str, Any]:
    """Index a trace, plain or gzip.

    Never raises: what cannot be read gives the same fields, empty, and the cause in ``error``. Operators, rows and
    sequence are those inside the span that carries the trace's own tag, on its thread; of the whole trace where there
    is no such span (``scope`` says which). Every list is bounded by a cut that depends on the content alone, and
    ``leftOut`` counts what was cut.

    Fields: ``v, events, metadata`` (the ``shapetrace`` object or None), ``spans`` (names of user annotations in time
    order), ``scope`` (``span`` or ``trace``), ``operators`` (name -> calls), ``sequenceSha256`` (of the operator names
    in time order, None without operators), ``gemmRows`` (operator -> rows -> calls), ``gemms`` (operator and weight ->
    rows -> calls), ``device`` (``rocm``, ``cuda``, ``cpu``), ``traceId``, ``leftOut``, ``error``.
    """
    try:
        return _index(_parse(unpack(raw)))
    except UnreadableTraceError as error:
        return _empty(str(error))
    except RecursionError:
        return _empty("the JSON is nested too deep")
    except Exception as error:
        # hostile or damaged input of a kind not thought of: a trace without index is a result, a lost part is not
        return _empty(f"{type(error).__name__}: {error}")


def _empty(error: str | None) -> dict[str, Any]:
    return {
        "v": VERSION,
        "events": 0,
        "metadata": None,
        "spans": [],
        "scope": None,
        "operators": {},
        "sequenceSha256": None,
        "gemmRows": {},
        "gemms": {},
        "device": None,
        "traceId": None,
        "leftOut": {},
        "error": None if error is None else _name(error),
    }


def unpack(raw: bytes, max_raw_bytes: int | None = None) -> bytes:
    """The plain JSON of a trace, gzip or not.

    :class:`UnreadableTraceError` for damaged gzip, :class:`TooLongTraceError` for more than ``max_raw_bytes``.
    """
    limit = MAX_RAW_BYTES if max_raw_bytes is None else max_raw_bytes
    if not raw.startswith(_GZIP_MAGIC):
        if len(raw) > limit:
            raise TooLongTraceError(f"the trace has {len(raw)} bytes, {limit} are read")
        return raw
    out = bytearray()
    rest = raw
    while rest:  # gzip allows several members one after the other
        unpacker = zlib.decompressobj(wbits=31)
        while rest and not unpacker.eof:
            try:
                out += unpacker.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise UnreadableTraceError(f"damaged gzip: {error}") from None
            rest = unpacker.unconsumed_tail
            if len(out) > limit:
                raise TooLongTraceError(f"the trace unpacks to more than {limit} bytes")
        if not unpacker.eof:
            raise UnreadableTraceError("the gzip stream ends early")
        rest = unpacker.unused_data
    return bytes(out)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        # strict=False: Kineto has written raw control characters (https://github.com/pytorch/pytorch/issues/130622)
        value = json.loads(raw.decode("utf-8", "replace"), strict=False)
    except ValueError as error:
        raise UnreadableTraceError(f"not JSON: {error}") from None
    if isinstance(value, list):
        value = {"traceEvents": value}
    if not isinstance(value, dict) or not isinstance(value.get("traceEvents"), list):
        raise UnreadableTraceError("no traceEvents: not a Chrome trace")
    return value


def _number(value: Any) -> float | None:
    """A finite number, else None; JSON's big whole numbers stay exact."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _index(trace: dict[str, Any]) -> dict[str, Any]:
    events = trace["traceEvents"]
    operators: list[tuple[float, float, int, dict[str, Any]]] = []
    spans: list[tuple[float, float, int, dict[str, Any]]] = []
    for position, event in enumerate(events):
        if not isinstance(event, dict):
            raise UnreadableTraceError(f"event {position} is not an object")
        category = event.get("cat")
        if category not in ("cpu_op", "user_annotation") or event.get("ph") != "X":
            continue
        start, duration = _number(event.get("ts")), _number(event.get("dur", 0))
        if start is None or duration is None or not isinstance(event.get("name"), str):
            raise UnreadableTraceError(f"event {position} has no name or no time")
        # of two that start together the longer one is the caller
        (operators if category == "cpu_op" else spans).append((start, -duration, position, event))
    operators.sort(key=lambda item: item[:3])
    spans.sort(key=lambda item: item[:3])

    index = _empty(None)
    index["events"] = len(events)
    index["metadata"] = _metadata(trace.get("shapetrace"))
    own = index["metadata"].get("tag") if index["metadata"] else None
    window = next((item for item in spans if item[3]["name"] == own), None)
    index["scope"] = "trace" if window is None else "span"
    if window is not None:
        begin, end, where = window[0], window[0] - window[1], _thread(window[3])
        operators = [item for item in operators if begin <= item[0] <= end and _thread(item[3]) == where]
    called = [item[3] for item in operators]
    names = [_name(event["name"]) for event in called]
    if names:
        index["sequenceSha256"] = hashlib.sha256("\n".join(names).encode("utf-8", "replace")).hexdigest()
    index["operators"], cut = _most(Counter(names), MAX_OPERATORS)
    left = {"operators": cut}
    index["spans"], left["spans"] = _spans([_name(item[3]["name"]) for item in spans], own)
    gemms = list(_gemms(called))
    index["gemmRows"], left["gemmRows"] = _rows((name, rows) for name, rows, _ in gemms)
    index["gemms"], left["gemms"] = _rows((f"{name} {weight}", rows) for name, rows, weight in gemms)
    index["leftOut"] = {key: count for key, count in left.items() if count}
    index["device"] = _device(trace)
    identity = trace.get("trace_id")
    index["traceId"] = _name(identity) if isinstance(identity, str) else None
    return index


def _metadata(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    try:
        text = json.dumps(value, allow_nan=False)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except ValueError as error:
        raise UnreadableTraceError(f"the metadata cannot be written as JSON: {error}") from None
    if len(text) > MAX_METADATA_CHARACTERS:
        raise UnreadableTraceError(f"the metadata has {len(text)} characters, {MAX_METADATA_CHARACTERS} are read")
    return value


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


def _name(text: str) -> str:
    """Bounded, and UTF-8 whatever the JSON escaped: it is written into parts and manifests."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_NAME_CHARACTERS else text[: MAX_NAME_CHARACTERS - 1] + "…"


def _most(counts: Counter[str], limit: int) -> tuple[dict[str, int], int]:
    """The ``limit`` most frequent, ties by name, in the order of names; and how many were cut."""
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return dict(sorted(kept)), len(counts) - len(kept)


def _spans(names: list[str], own: Any) -> tuple[list[str], int]:
    """Each name once, in time order; the trace's own tag is never cut."""
    unique = list(dict.fromkeys(names))
    kept = unique[:MAX_SPANS]
    if isinstance(own, str) and own in unique and own not in kept:
        kept[-1] = own
    return kept, len(unique) - len(kept)


def _gemms(called: list[dict[str, Any]]) -> Iterable[tuple[str, int, str]]:
    for event in called:
        arguments = event.get("args")
        found = rows_and_weight(event["name"], arguments.get("Input Dims")) if isinstance(arguments, dict) else None
        if found is not None:
            yield event["name"], *found


def _rows(pairs: Iterable[tuple[str, int]]) -> tuple[dict[str, dict[str, int]], int]:
    """Name -> rows -> calls; rows as text, because these are the keys of a JSON object."""
    by_name: dict[str, Counter[str]] = {}
    for name, rows in pairs:
        by_name.setdefault(name, Counter())[str(rows)] += 1
    order = sorted(by_name, key=lambda name: (-by_name[name].total(), name))
    kept, cut = {}, 0
    for name in sorted(order[:MAX_GEMMS]):
        kept[name], rows_cut = _most(by_name[name], MAX_ROWS)
        cut += rows_cut
    return kept, cut + max(0, len(order) - MAX_GEMMS)


def _device(trace: dict[str, Any]) -> str:
    """``rocm`` or ``cuda`` where a GPU tracer wrote its version or there is a GPU, else ``cpu``."""
    if "roctracer_version" in trace or "hip_driver_version" in trace:
        return "rocm"
    if "cupti_version" in trace or "cuda_driver_version" in trace or trace.get("deviceProperties"):
        return "cuda"
    return "cpu"
