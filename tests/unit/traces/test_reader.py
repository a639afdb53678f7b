"""Reading what is no plain, small, well-written trace; and what is left out when there is too much."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from typing import Any

import pytest
from shapetrace_traces import index as index_module
from shapetrace_traces import index_fields
from shapetrace_traces.fold import calls, graphs, kernels, spans
from shapetrace_traces.index import index_stream, index_trace
from shapetrace_traces.reader import text as text_module

EMPTY = {**index_trace(b""), "error": None}


def event(category: str, name: str, ts: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": 1.0, "pid": 1, "tid": tid, "args": args}


def call(name: str, ts: float, rows: int, tid: int = 1) -> dict[str, Any]:
    return event("cpu_op", name, ts, tid, **{"Input Dims": [[rows, 8], [8, 8]]})


def run(name: str, ts: float, correlation: int = 0, tid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", name, ts, tid, correlation=correlation)


def chrome(events: list[Any], **top: Any) -> bytes:
    return json.dumps({**top, "traceEvents": events}).encode()


MANY = chrome([call("aten::mm", number, 4) for number in range(20_000)])
"""2.6 MB: several blocks."""


def test_every_field_of_an_index_is_documented_and_there_is_no_other() -> None:
    window = {name.removeprefix("windows[]."): None for name in index_fields.FIELDS if name.startswith("windows[].")}
    top = {name for name in index_fields.FIELDS if not name.startswith("windows[].")}
    assert top - {"unread"} == set(EMPTY)
    combined = [run("hipStreamBeginCapture", 1), run("hipStreamEndCapture", 2)]
    assert set(index_trace(chrome(combined))["windows"][0]) == set(window)
    by_window = index_trace(chrome(combined), by_window=True)["windows"][0]
    assert set(by_window) == {*window, *index_fields.BY_WINDOW}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_another_encoding_is_named(encoding: str) -> None:
    raw = chrome([call("aten::mm", 1, 4)]).decode().encode(encoding)
    for trace in (raw, gzip.compress(raw)):
        index = index_trace(trace)
        assert "UTF-16 or UTF-32" in index["error"]
        assert {**index, "error": None} == EMPTY


def test_a_byte_order_mark_is_no_trouble() -> None:
    raw = chrome([call("aten::mm", 1, 4)])
    assert index_trace(b"\xef\xbb\xbf" + raw) == index_trace(raw)


def test_letters_of_latin_1_keep_the_numbers_and_are_told() -> None:
    raw = chrome([call("aten::mm", 1, 4), call("XY", 2, 4)]).replace(b"XY", "Übung".encode("latin-1"))
    index = index_trace(raw)
    assert index["lenient"] is True
    assert index["gemmRows"] == {"aten::mm": {"4": 1}}
    assert index["operators"] == {"aten::mm": 1, "\ufffdbung": 1}


def test_control_characters_and_no_numbers_in_a_block_cost_neither_it_nor_the_others() -> None:
    odd = MANY.replace(b'"ts": 7,', b'"ts": 7, "x": "\x01\n", "y": NaN,')
    index, right = index_trace(odd), index_trace(MANY)
    assert index == {**right, "lenient": True}


def test_numbers_beyond_64_bits_are_json_and_read() -> None:
    index = index_trace(MANY.replace(b'"ts": 7,', b'"ts": 7, "x": 1' + b"0" * 40 + b","))
    assert (index["lenient"], index["events"]) == (False, 20_000)


@pytest.mark.parametrize("ts", ["1e18", "1" + "0" * 30, "1e999", "NaN", "true", "null", '"1"', "[1]", "1" * 5000])
def test_what_is_no_time_is_an_error(ts: str) -> None:
    index = index_trace(MANY.replace(b'"ts": 15000,', f'"ts": {ts},'.encode()))
    assert index["error"]
    assert {**index, "error": None} == EMPTY


@pytest.mark.parametrize("place", [10, 1_000_000, len(MANY) - 1])
def test_half_a_trace_says_that_it_ends_early(place: int) -> None:
    index = index_trace(MANY[:place])
    assert "ends early" in index["error"]
    assert {**index, "error": None} == EMPTY


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (MANY + b"x", "more text"),
        (MANY + MANY, "more text"),
        (b'{"traceEvents": [], "traceEvents": []}', "stands twice"),
        (b'{"traceEvents": [{}}', "instead of ]"),
        (b'{"traceEvents": [{},]}', "not JSON"),
        (b'{"traceEvents": [{},,{}]}', "not JSON"),
        (b'{"traceEvents": [,{}]}', "not JSON"),
        (b'{"traceEvents": [] "x": 1}', "neither comma nor }"),
        (b'{"traceEvents": [], "x": }', "not JSON"),
        (b'{"traceEvents": [], "x": 1 2}', "not JSON"),
        (b'{"traceEvents": [], "x" 1}', "colon"),
        (b'{"traceEvents": [], 1: 2}', "key"),
        (b'{"traceEvents": [1]}', "event 0 is not an object"),
        (b"hello", "begins with"),
        (b"  \n", "empty"),
        (MANY.replace(b"}, {", b"} {", 1), "not JSON"),
    ],
)
def test_an_error_says_what_is_wrong(raw: bytes, said: str) -> None:
    index = index_trace(raw)
    assert said in index["error"]
    assert {**index, "error": None} == EMPTY


def test_an_error_says_where() -> None:
    damaged = MANY[:2_000_000] + b"\x00" + MANY[2_000_000:]
    error = index_trace(damaged)["error"]
    first, last = (int(word.rstrip(",")) for word in error.split() if word.rstrip(",").isdigit() and len(word) >= 7)
    assert first <= 2_000_000 <= last


@pytest.mark.parametrize("depth", [1000, 10_000_000])
def test_deep_nesting_is_an_error_and_not_a_crash(depth: int) -> None:
    for raw in (b"[" * depth, b'[{"a":' + b"[" * depth + b"]" * depth + b"}]", b'{"a":' * depth):
        assert "deep" in index_trace(raw)["error"]


def test_text_that_looks_like_the_end_of_an_event_is_only_text() -> None:
    events = [
        event("x", '}, {"ph": "X", "cat": "kernel"', n, stack='\\"}], "a": [{"b": 1}, {"c": 2}') for n in range(9000)
    ]
    index = index_trace(chrome(events))
    assert (index["error"], index["categories"]) == (None, {"x": 9000})


def test_one_event_of_megabytes_is_read_and_one_that_is_longer_is_refused() -> None:
    long = chrome([event("x", "a" * 5_000_000, 1), call("aten::mm", 1, 4)])
    assert index_trace(long)["gemmRows"] == {"aten::mm": {"4": 1}}
    for raw in (chrome([event("x", "a" * 9_000_000, 1)]), b'{"a": "' + b"a" * 9_000_000 + b'", "traceEvents": []}'):
        index = index_trace(raw)
        assert "has more than" in index["error"]
        assert index["unread"] is True


def test_metadata_may_stand_before_and_behind_the_events() -> None:
    top = {"shapetrace": {"tag": "A__bs_1"}, "trace_id": "T", "cupti_version": 22}
    events = [event("user_annotation", "A__bs_1", 1), call("aten::mm", 1, 4), call("aten::mm", 9, 5)]
    before = {**top, "traceEvents": events}
    after = {"traceEvents": events, **top}
    assert index_trace(json.dumps(before).encode()) == index_trace(json.dumps(after).encode())
    assert index_trace(json.dumps(after).encode())["gemmRows"] == {"aten::mm": {"4": 1}}


def test_of_a_key_that_stands_twice_the_first_counts_whoever_parses() -> None:
    twice = b'[{"ph": "X", "cat": "cpu_op", "cat": "kernel", "name": "a", "ts": 1, "ts": 2%s}]'
    plain, lenient = index_trace(twice % b""), index_trace(twice % b', "x": NaN')
    assert plain["categories"] == lenient["categories"] == {"cpu_op": 1}


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (gzip.compress(MANY)[:-1], "ends early"),
        (gzip.compress(MANY)[: len(gzip.compress(MANY)) // 2], "ends early"),
        (gzip.compress(MANY) + b"trailing", "something else follows"),
        (gzip.compress(MANY) + b"\x1f", "something else follows"),
        (gzip.compress(MANY)[:-6] + b"\x00\x01" + gzip.compress(MANY)[-4:], "damaged gzip"),
        (b"\x1f\x8b\x08" + bytes(100), "damaged gzip"),
    ],
)
def test_damaged_gzip_is_an_error_though_all_events_came_out(packed: bytes, said: str) -> None:
    index = index_trace(packed)
    assert said in index["error"]
    assert {**index, "error": None} == EMPTY


def test_many_small_members_are_one_trace() -> None:
    packed = b"".join(gzip.compress(MANY[at : at + 5000]) for at in range(0, len(MANY), 5000))
    assert index_trace(packed) == index_trace(MANY)


def test_a_gzip_bomb_ends_at_the_limit_and_takes_no_memory() -> None:
    import tracemalloc

    bomb = gzip.compress(b"[" + b" " * 100_000_000 + b"]")
    tracemalloc.start()
    index = index_stream(io.BytesIO(bomb), max_raw_bytes=50_000_000)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert "unpacks to more than 50000000 bytes" in index["error"]


def test_what_is_seen_is_the_whole_plain_text() -> None:
    seen = bytearray()
    assert index_stream(io.BytesIO(gzip.compress(MANY)), see=seen.extend)["error"] is None
    assert bytes(seen) == MANY


def test_launches_belong_to_the_window_of_their_thread() -> None:
    events = [
        run("cudaLaunchKernel", 1),
        run("cudaStreamBeginCapture_v10000", 2),
        run("cudaLaunchKernelExC_v11060", 3, 7),
        run("cudaMemcpyAsync", 4, 8),
        run("cudaLaunchKernel", 5, 9, tid=2),
        run("cudaStreamEndCapture_v10000", 6),
        run("cudaLaunchKernel", 7, 10),
        run("cudaStreamEndCapture_v10000", 8),
        event("kernel", "k", 20, correlation=7),
        event("kernel", "k", 5, correlation=10),
    ]
    index = index_trace(chrome(events[::-1]))
    assert index["windows"] == [{"beginMicroseconds": 2.0, "endMicroseconds": 6.0, "launches": 1, "nodes": 2}]
    assert (index["launches"], index["launchesInWindows"], index["nodesInWindows"], index["nodesElsewhere"]) == (
        4,
        1,
        2,
        1,
    )
    assert (index["gpuInWindows"], index["gpuOutsideWindows"], index["unpairedWindows"]) == (1, 1, 1)


def test_a_call_that_runtime_and_driver_both_report_counts_once_in_a_window() -> None:
    def twice(name: str, ts: float, correlation: int, tid: int = 1) -> list[dict[str, Any]]:
        inner = event("cuda_driver", name.replace("cuda", "cu"), ts + 0.1, tid, correlation=correlation)
        return [run(name, ts, correlation, tid), inner]

    events = [
        *twice("cudaLaunchKernel", 1, 5),
        run("cudaStreamBeginCapture_v10000", 2),
        *twice("cudaLaunchKernelExC_v11060", 3, 7),
        *twice("cudaMemcpyAsync", 4, 8),
        run("cudaMemsetAsync", 4.5, 7),  # what one call did, however it is named
        *twice("cudaLaunchKernel", 5, 9, tid=2),
        *(run("cudaLaunchKernel", 5.5) for _ in range(2)),  # of these nobody says that they are one
        run("cudaStreamEndCapture_v10000", 6),
        run("cudaStreamBeginCapture_v10000", 12),
        *twice("cudaLaunchKernel", 13, 7),  # another window, counted anew
        run("cudaStreamEndCapture_v10000", 16),
    ]
    index = index_trace(chrome(events[::-1]))
    assert [(item["launches"], item["nodes"]) for item in index["windows"]] == [(3, 4), (1, 1)]
    assert (index["launches"], index["launchesInWindows"], index["nodesInWindows"]) == (6, 4, 5)
    assert index["nodesElsewhere"] == 1


def named(name: Any, ts: float, tid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", "hipLaunchKernel", ts, tid, correlation=int(10 * ts), kernel=name)


def sequence(*kernels: str) -> str:
    return hashlib.sha256("\n".join(kernels).encode("utf-8", "replace")).hexdigest()


def test_the_names_of_the_kernels_in_the_windows_are_one_sequence() -> None:
    long = "void kernel<" + "float, " * 500 + ">"
    events = [
        named("before", 1),
        run("hipStreamBeginCapture", 2),
        named("b\ud800", 3),
        named("elsewhere", 3.5, tid=2),
        run("hipMemcpyAsync", 3.6, 36),
        named(long, 4),
        event("cuda_driver", "hipModuleLaunchKernel", 4.1, correlation=40),  # the same call, without a name
        named("b\ud800", 5),
        run("hipStreamEndCapture", 6),
        run("hipStreamBeginCapture", 12),
        named("a", 13),
        run("hipStreamEndCapture", 16),
        named("after", 17),
    ]
    right = sequence("b\ud800", long, "b\ud800", "a")
    assert index_trace(chrome(events[::-1]))["kernelSequenceSha256"] == right


@pytest.mark.parametrize("name", [None, "", 7, ["a"], {"a": "b"}])
def test_with_one_kernel_without_a_name_there_is_no_sequence(name: Any) -> None:
    events = [run("hipStreamBeginCapture", 0), named("a", 1), named(name, 2), run("hipStreamEndCapture", 3)]
    index = index_trace(chrome(events))
    assert (index["launchesInWindows"], index["kernelSequenceSha256"], index["leftOut"]) == (2, None, {})
    assert index_trace(chrome([named("a", 1)]))["kernelSequenceSha256"] is None


def test_a_sequence_of_any_length_is_hashed_in_runs_as_in_one(monkeypatch) -> None:
    monkeypatch.setattr(kernels, "_RUN", 7)
    names = [f"kernel {number % 13}" for number in range(100)]
    events = [run("hipStreamBeginCapture", 0), *(named(name, 1 + n) for n, name in enumerate(names))]
    assert index_trace(chrome([*events, run("hipStreamEndCapture", 999)]))["kernelSequenceSha256"] == sequence(*names)


def test_too_many_names_say_nothing_of_the_sequence_and_that_it_is_so(monkeypatch) -> None:
    monkeypatch.setattr(kernels, "MAX_CHARACTERS", 3)
    events = [run("hipStreamBeginCapture", 0), *(named(name, 1 + n) for n, name in enumerate(["ab", "cd", "ab", "cd"]))]
    index = index_trace(chrome([*events, run("hipStreamEndCapture", 9)]))
    assert (index["launchesInWindows"], index["kernelSequenceSha256"]) == (4, None)
    assert index["leftOut"] == {"kernelSequenceSha256": 2}


def test_replays_are_counted_by_what_ran_and_an_empty_one_is_seen() -> None:
    events = [run("hipGraphLaunch", 1, 5), run("hipGraphLaunch", 2, 6), run("hipGraphLaunch", 3, 7)]
    events += [event("kernel", "k", 4, correlation=number) for number in (5, 5, 6, 6, 99)]
    assert index_trace(chrome(events))["replayedNodes"] == {"0": 1, "2": 2}


def test_a_combined_file_is_told_apart_by_its_windows() -> None:
    events = []
    for number in range(8):
        at = 100 * number
        events += [event("user_annotation", f"capture_{number + 1}", at), run("hipStreamBeginCapture", at)]
        events += [
            call("aten::mm", at + 1, number + 1),
            run("hipLaunchKernel", at + 2),
            run("hipStreamEndCapture", at + 3),
        ]
        events.append(call("aten::mm", at + 50, 77))
    windows = index_trace(chrome(events), by_window=True)["windows"]
    assert [window["gemmRows"] for window in windows] == [{"aten::mm": {str(number + 1): 1}} for number in range(8)]
    assert [window["spans"] for window in windows] == [[f"capture_{number + 1}"] for number in range(8)]
    assert len({window["sequenceSha256"] for window in windows}) == 1


def test_too_many_calls_say_nothing_of_operators_and_that_it_is_so(monkeypatch) -> None:
    monkeypatch.setattr(calls, "MAX_CALLS", 5)
    index = index_trace(chrome([call("aten::mm", number, 4) for number in range(8)]))
    assert (index["operators"], index["gemmRows"], index["sequenceSha256"]) == ({}, {}, None)
    assert index["leftOut"] == {"operators": 3}
    assert index["categories"] == {"cpu_op": 8}


def test_too_many_launches_say_nothing_of_windows_and_that_it_is_so(monkeypatch) -> None:
    monkeypatch.setattr(graphs, "MAX_LAUNCHES", 5)
    events = [
        run("hipStreamBeginCapture", 0),
        *(run("hipLaunchKernel", n) for n in range(8)),
        run("hipStreamEndCapture", 9),
    ]
    index = index_trace(chrome(events))
    assert (index["launches"], index["launchesInWindows"], index["gpuInWindows"], index["windows"]) == (
        8,
        None,
        None,
        [],
    )
    assert index["leftOut"] == {"windows": 3}


def test_a_span_that_may_have_been_dropped_is_not_taken_for_absent(monkeypatch) -> None:
    monkeypatch.setattr(spans, "MAX_NAMES", 3)
    events = [event("user_annotation", f"s{number}", number) for number in range(5)]
    events += [event("user_annotation", "A__bs_1", 6), call("aten::mm", 6, 4), call("aten::mm", 20, 5)]
    index = index_trace(chrome(events, shapetrace={"tag": "A__bs_1"}))
    assert (index["operators"], index["gemmRows"]) == ({}, {})
    assert set(index["leftOut"]) == {"operators", "spans"}


def test_windows_beyond_the_bound_are_cut_and_still_counted(monkeypatch) -> None:
    monkeypatch.setattr(index_module, "MAX_WINDOWS", 2)
    events = []
    for at in range(0, 50, 10):
        events += [run("hipStreamBeginCapture", at), run("hipLaunchKernel", at + 1), run("hipStreamEndCapture", at + 2)]
    index = index_trace(chrome(events))
    assert (len(index["windows"]), index["launchesInWindows"], index["leftOut"]) == (2, 5, {"windows": 3})


def test_calls_out_of_order_are_sorted_in_runs_as_in_one(monkeypatch) -> None:
    events = [call(f"op{(number * 7919) % 500:03}", (number * 7919) % 500, 4) for number in range(500)]
    right = index_trace(chrome(sorted(events, key=lambda item: item["ts"])))
    monkeypatch.setattr(calls, "_RUN", 64)
    assert index_trace(chrome(events)) == right


def test_a_value_that_grows_is_not_scanned_again_from_its_start(monkeypatch) -> None:
    """A string of n blocks must cost n, not n squared."""
    seen = []
    find = text_module.Nesting.find_end

    def counted(self: Any, held: bytes, at: int) -> tuple[bool, int]:
        found, end = find(self, held, at)
        seen.append(end - at)
        return found, end

    monkeypatch.setattr(text_module.Nesting, "find_end", counted)
    raw = chrome([event("x", "a" * 4_000_000, 1)])
    assert index_trace(raw)["error"] is None
    assert sum(seen) < 1.1 * len(raw)
