"""The index of a trace: what it reads, what it leaves out, and that nothing makes it raise or invent numbers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_traces import index as module
from shapetrace_traces.gemm import GEMM_RULES, NOT_ROWS, rows_and_weight
from shapetrace_traces.index import index_stream, index_trace

EMPTY = index_trace(b"")


def operator(name: str, ts: float, dims: list[Any] | None = None, dur: float = 1.0, tid: int = 1) -> dict[str, Any]:
    args = {} if dims is None else {"Input Dims": dims}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args}


def span(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


def chrome(events: list[Any], **top: Any) -> bytes:
    return json.dumps({"schemaVersion": 1, **top, "traceEvents": events}).encode()


def test_addmm_has_its_rows_in_the_second_input() -> None:
    assert rows_and_weight("aten::addmm", [[5120], [32, 2880], [2880, 5120], [], []]) == (32, "2880x5120")
    assert rows_and_weight("aten::addmm", [[32], [7, 2880], [2880, 32], [], []]) == (7, "2880x32")


RULES = {
    "aten::mm": ([[7, 64], [64, 96]], "64x96"),
    "aten::linear": ([[7, 64], [96, 64], [96]], "96x64"),
    "aten::addmm": ([[96], [7, 64], [64, 96], [], []], "64x96"),
    "aten::_addmm_activation": ([[96], [7, 64], [64, 96], [], [], []], "64x96"),
    "aten::_scaled_mm": ([[7, 64], [64, 96], [], [], [], [], [], []], "64x96"),
    "aten::_int_mm": ([[7, 64], [64, 96]], "64x96"),
    "aiter::gemm_a16w16": ([[7, 64], [96, 64], [96], [], [], []], "96x64"),
    "vllm::rocm_unquantized_gemm": ([[7, 64], [96, 64], [96]], "96x64"),
}
"""Operator -> the dimensions of a call's inputs with 7 rows, and its weight."""


@pytest.mark.parametrize("name", sorted({*RULES, *GEMM_RULES}))
def test_each_operator_s_rows_and_weight_are_read_where_its_schema_has_them(name: str) -> None:
    dims, weight = RULES[name]
    assert rows_and_weight(name, dims) == (7, weight)


def test_linear_counts_every_leading_dimension_as_rows() -> None:
    assert rows_and_weight("aten::linear", [[2, 141, 512], [2048, 512], [2048]]) == (282, "2048x512")


@pytest.mark.parametrize("name", [*NOT_ROWS, "aten::add"])
def test_an_operator_without_a_rule_has_no_rows(name: str) -> None:
    assert rows_and_weight(name, [[8, 4, 64], [8, 64, 4]]) is None


def test_every_rule_names_its_source_and_two_operands() -> None:
    for rule in GEMM_RULES.values():
        assert rule.source
        assert rule.rows_operand != rule.weight_operand


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=4)))
def test_any_shape_of_dims_is_rows_or_none(dims: Any) -> None:
    for name in GEMM_RULES:
        found = rows_and_weight(name, dims)
        assert found is None or found[0] > 0


def test_operators_outside_the_span_of_the_own_tag_are_not_counted() -> None:
    tag = "DecodeRunner__bs_4"
    events = [
        operator("aten::mm", 1, [[99, 8], [8, 8]]),
        span(tag, 10, 10),
        operator("aten::linear", 11, [[4, 8], [8, 8], []], dur=5),
        operator("aten::mm", 11, [[4, 8], [8, 8]], dur=3),
        operator("aten::mm", 12, [[77, 8], [8, 8]], tid=2),
        operator("aten::mm", 30, [[99, 8], [8, 8]]),
    ]
    index = index_trace(chrome(events, shapetrace={"v": 1, "tag": tag}))
    assert index["scope"] == "span"
    assert index["operators"] == {"aten::linear": 1, "aten::mm": 1}
    assert index["gemmRows"] == {"aten::linear": {"4": 1}, "aten::mm": {"4": 1}}
    assert index["sequenceSha256"] == hashlib.sha256(b"aten::linear\naten::mm").hexdigest()
    assert index["spans"] == [tag]
    assert index["metadata"] == {"v": 1, "tag": tag}


def test_without_the_span_the_whole_trace_counts() -> None:
    index = index_trace(chrome([operator("aten::mm", 1, [[4, 8], [8, 8]])], shapetrace={"tag": "A__bs_1"}))
    assert index["scope"] == "trace"
    assert index["gemmRows"] == {"aten::mm": {"4": 1}}


@given(st.permutations([operator(f"op{number}", number, dur=0.5) for number in range(6)]))
def test_the_sequence_is_that_of_time_not_of_the_file(events: list[dict[str, Any]]) -> None:
    expected = hashlib.sha256("\n".join(f"op{number}" for number in range(6)).encode()).hexdigest()
    assert index_trace(chrome(events))["sequenceSha256"] == expected


def test_plain_and_gzip_and_several_members_index_alike() -> None:
    raw = chrome([operator("aten::mm", 1, [[4, 8], [8, 8]])])
    half = len(raw) // 2
    assert index_trace(gzip.compress(raw)) == index_trace(raw)
    assert index_trace(gzip.compress(raw[:half]) + gzip.compress(raw[half:])) == index_trace(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1]",
        b"{}",
        b"null",
        b'{"traceEvents": 3}',
        b"[" * 100_000,
        b"\x1f\x8b",
        b"\x1f\x8bgarbage",
        gzip.compress(b"[]", mtime=0)[:-9],
        chrome([{"ph": "X", "cat": "cpu_op", "name": "x"}]),
        b'[{"ph": "X", "cat": "cpu_op", "name": "x", "ts": NaN}]',
        b'[{"ph": "X", "cat": "cpu_op", "name": "x", "ts": 1' + b"0" * 400 + b"}]",
        chrome([], shapetrace={"tag": "x" * 5000}),
    ],
)
def test_what_is_no_trace_gives_an_error_and_no_numbers(raw: bytes) -> None:
    index = index_trace(raw)
    assert index["error"]
    assert {**index, "error": None} == {**EMPTY, "error": None}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(["ph", "cat", "name", "ts", "dur", "args", "pid"]), _json), max_size=4))
def test_any_events_give_an_index_that_can_be_stored(events: list[Any]) -> None:
    for event in events:
        event.setdefault("cat", "cpu_op")
        event.setdefault("ph", "X")
    index = index_trace(chrome(events))
    json.dumps(index, ensure_ascii=False).encode()


@given(st.binary(max_size=200))
def test_any_bytes_give_an_index(raw: bytes) -> None:
    assert index_trace(raw)["v"] == 1
    assert index_trace(b"\x1f\x8b\x08" + raw)["error"]


def test_a_trace_that_unpacks_to_too_much_is_not_read() -> None:
    index = index_stream(io.BytesIO(gzip.compress(b"[" + b" " * 20_000_000 + b"]")), max_raw_bytes=1000)
    assert "unpacks to more than 1000 bytes" in index["error"]
    assert index["unread"] is True


def test_a_flood_of_operators_is_cut_the_same_way_each_time_and_said() -> None:
    events = [operator(f"op{number:04}", number) for number in range(module.MAX_OPERATORS + 7)]
    events += [operator("often", 10_000 + number) for number in range(3)]
    index, turned = index_trace(chrome(events)), index_trace(chrome(events[::-1]))
    assert len(index["operators"]) == module.MAX_OPERATORS
    assert index["operators"]["often"] == 3
    assert index["leftOut"] == {"operators": 8}
    assert index == turned


def test_the_own_span_is_never_cut() -> None:
    events = [span(f"span{number}", number, 0.1) for number in range(200)] + [span("A__bs_1", 500, 1)]
    index = index_trace(chrome(events, shapetrace={"tag": "A__bs_1"}))
    assert "A__bs_1" in index["spans"]
    assert len(index["spans"]) == module.MAX_SPANS


def test_control_characters_that_kineto_has_written_are_read() -> None:
    raw = chrome([operator("aten::mm", 1, [[4, 8], [8, 8]])]).replace(b'"pid": 1', b'"pid": "a\x01\xff"')
    assert index_trace(raw)["gemmRows"] == {"aten::mm": {"4": 1}}


@pytest.mark.parametrize(
    ("top", "device"),
    [
        ({"roctracer_version": 4.1}, "rocm"),
        ({"cupti_version": 24}, "cuda"),
        ({"deviceProperties": []}, "cpu"),
        ({"deviceProperties": [{"name": "AMD Radeon Graphics"}]}, "rocm"),
        ({"deviceProperties": [{"name": "NVIDIA A100-PG509-200"}]}, "cuda"),
        ({"deviceProperties": [{"name": ""}]}, "unknown"),
        ({"deviceProperties": [{"name": "NVIDIA A100"}, {"name": "AMD Instinct MI300X"}]}, "unknown"),
    ],
)
def test_the_device_is_what_the_tracer_wrote(top: dict[str, Any], device: str) -> None:
    assert index_trace(chrome([], **top))["device"] == device


@pytest.mark.parametrize(
    ("name", "device"),
    [("hipLaunchKernel", "rocm"), ("cudaLaunchKernel", "cuda"), ("cuLaunchKernel", "cuda"), ("launch", "unknown")],
)
def test_the_device_is_that_of_the_runtime_where_no_version_tells(name: str, device: str) -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": 1.0, "dur": 1.0}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 2.0, "dur": 1.0}
    assert index_trace(chrome([call, kernel]))["device"] == device
    assert index_trace(chrome([kernel]))["device"] == "unknown"


def test_spans_that_name_a_capture_are_not_cut() -> None:
    names = [*(f"layer {number}" for number in range(100)), "capture_8_FULL", "after"]
    spans = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": float(number), "dur": 1.0}
        for number, name in enumerate(names)
    ]
    index = index_trace(chrome(spans))
    assert (index["spans"], index["leftOut"]) == ([*names[:63], "capture_8_FULL"], {"spans": 38})
