"""Traces that others recorded on real GPUs: AMD and NVIDIA, capture and replay, and three layouts of one format."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shapetrace_traces.index import index_stream, index_trace

# copies of test data of github.com/AMD-AGI/TraceLens and github.com/facebookresearch/HolisticTraceAnalysis (both MIT),
# too large to travel with us
SAMPLES = Path(os.environ.get("SHAPETRACE_SAMPLES") or Path(__file__).parents[4].joinpath("shared", "samples"))
SGLANG = "tracelens/sglang_decode/capture_traces/bs_32_rank0.json.gz"
SGLANG_REPLAY = "tracelens/sglang_decode/sglang_Qwen3-8B_decode.json.gz"
VLLM = "tracelens/vllm_decode_full/capture_traces/graph_capture_rank_0.1773709742341309550.pt.trace.json.gz"
VLLM_REPLAY = "tracelens/vllm_decode_full/graph_execution.json.gz"
H100 = "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz"
MI300 = "tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz"
ALL = [SGLANG, SGLANG_REPLAY, VLLM, VLLM_REPLAY, H100, MI300, "tracelens/torch_compile_triton/trace.json.gz"]
ALL += [
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "hta/execution_trace/benchmark_simple_add_trace.json.gz",
    "hta/rank_unavailable/rank_not_found.json.gz",
]


def sample(name: str) -> bytes:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"no real trace {name}: SHAPETRACE_SAMPLES may name a folder with tracelens/ and hta/")
    return path.read_bytes()


@pytest.fixture(scope="module")
def indexed() -> Any:
    known: dict[str, dict[str, Any]] = {}

    def index(name: str) -> dict[str, Any]:
        if name not in known:
            known[name] = index_trace(sample(name))
        return known[name]

    return index


def test_a_capture_of_sglang_is_indexed_as_it_was_counted_by_hand(indexed) -> None:
    index = indexed(SGLANG)
    assert index["error"] is None
    assert (index["events"], index["launches"]) == (61_713, 546)
    assert (len(index["windows"]), index["launchesInWindows"], index["nodesInWindows"]) == (1, 544, 544)
    assert (index["gpuInWindows"], index["gpuOutsideWindows"], index["nodesElsewhere"]) == (0, 2, 0)
    assert index["spans"] == ["ProfilerStep#134", "capture_32_DECODE"]
    assert index["profilerSteps"] == [134]
    kinds = ("python_function", "cpu_op", "cuda_runtime", "kernel")
    assert [index["categories"][kind] for kind in kinds] == [54_073, 3_556, 1_500, 2]
    assert index["stacksShare"] == 0.8762
    assert (index["device"], index["gpus"]) == ("rocm", {"AMD Instinct MI300X": 1})
    assert index["versions"]["hip_runtime_version"] == 70253211
    assert index["distributed"] == {"backend": "nccl", "rank": 0, "worldSize": 1, "groups": 7}
    assert {"record_shapes", "with_stack"} <= set(index["flags"])


def test_the_rows_of_an_sglang_capture_are_its_batch_size(indexed) -> None:
    index = indexed(SGLANG)
    assert index["operators"]["aten::mm"] == 145
    assert index["gemmRows"]["aten::mm"] == {"32": 145}
    assert index["gemmRows"]["aiter::gemm_a16w16"] == {"32": 144}


def test_a_capture_of_vllm_is_indexed_as_it_was_counted_by_hand(indexed) -> None:
    index = indexed(VLLM)
    assert index["error"] is None
    assert (index["events"], index["launches"], index["launchesInWindows"]) == (131_243, 428, 421)
    assert (len(index["windows"]), index["gpuInWindows"], index["categories"]["kernel"]) == (1, 0, 7)
    assert index["spans"][0] == "capture_32_FULL"


def test_the_rows_of_a_vllm_capture_are_not_its_bias_nor_its_experts(indexed) -> None:
    index = indexed(VLLM)
    assert index["gemmRows"]["aten::addmm"] == {"32": 72}
    assert set(index["gemms"]) >= {"aten::addmm 2880x32", "aten::addmm 2880x5120"}


@pytest.mark.parametrize(("name", "capture"), [(SGLANG_REPLAY, SGLANG), (VLLM_REPLAY, VLLM)])
def test_a_replay_runs_as_many_kernels_as_its_capture_has_nodes(indexed, name, capture) -> None:
    index = indexed(name)
    assert index["graphLaunches"] == 1
    assert index["replayedNodes"] == {str(indexed(capture)["nodesInWindows"]): 1}
    assert index["windows"] == []


@pytest.mark.parametrize(("name", "capture"), [(SGLANG_REPLAY, SGLANG), (VLLM_REPLAY, VLLM)])
def test_a_replay_runs_the_kernels_that_its_capture_launched_in_their_order(indexed, name, capture) -> None:
    events = json.loads(gzip.decompress(sample(name)))["traceEvents"]
    (launch,) = [event for event in events if event.get("name") == "hipGraphLaunch"]
    number = launch["args"]["correlation"]
    ran = [event for event in events if event.get("cat") == "kernel" and event["args"]["correlation"] == number]
    ran.sort(key=lambda event: event["ts"])
    names = "\n".join(event["name"] for event in ran).encode()
    assert indexed(capture)["kernelSequenceSha256"] == hashlib.sha256(names).hexdigest()
    assert indexed(name)["kernelSequenceSha256"] is None, "nothing is captured in a replay"


def test_nvidia_and_amd_call_and_describe_things_differently_and_read_alike(indexed) -> None:
    nvidia, amd = indexed(H100), indexed(MI300)
    assert (nvidia["device"], amd["device"]) == ("cuda", "rocm")
    assert nvidia["launches"] == amd["launches"] == 60 == nvidia["categories"]["kernel"]
    assert nvidia["versions"] == {
        "schemaVersion": 1,
        "cupti_version": 22,
        "cuda_runtime_version": 12040,
        "cuda_driver_version": 12090,
    }
    assert nvidia["gemmRows"]["aten::addmm"] == amd["gemmRows"]["aten::addmm"]
    assert nvidia["baseTimeNanoseconds"] == 1751410836000000000


def test_a_rank_that_is_not_told_is_not_invented(indexed) -> None:
    assert indexed("hta/rank_unavailable/rank_not_found.json.gz")["distributed"] == {"backend": "nccl"}
    assert indexed("hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")["distributed"]["rank"] == 34
    assert indexed("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz")["distributed"] is None


def test_an_execution_trace_is_no_trace_of_ours() -> None:
    index = index_trace(sample("hta/execution_trace/benchmark_simple_add_et.json.gz"))
    assert "not a Chrome trace" in index["error"]


@pytest.mark.parametrize("name", ALL)
def test_all_numbers_are_those_of_a_plain_json_reader(indexed, slow_reader, name) -> None:
    right = slow_reader.index(gzip.decompress(sample(name)))
    found = slow_reader.comparable(indexed(name))
    left_out = indexed(name)["leftOut"]
    if left_out:
        assert set(left_out) == {"spans"}
        right["spans"] = right["spans"][:64]
    assert found == right


@pytest.mark.parametrize("name", [SGLANG_REPLAY, H100])
@pytest.mark.parametrize("layout", [{"indent": 2}, {"separators": (",", ":")}, {"indent": "\t", "sort_keys": True}])
def test_written_in_another_layout_it_is_the_same_trace(indexed, name, layout) -> None:
    again = json.dumps(json.loads(gzip.decompress(sample(name))), **layout)
    assert index_trace(again.encode()) == indexed(name)


def test_a_real_trace_is_read_the_fast_way(monkeypatch) -> None:
    """A block that is cut the slow way costs ten times as much; only what is left at the end may be."""
    from shapetrace_traces.reader.text import Text

    slow_bytes, take = [], Text.take_values

    def counted(text: Text) -> tuple[bytes, bool]:
        values, is_over = take(text)
        slow_bytes.append(len(values))
        return values, is_over

    monkeypatch.setattr(Text, "take_values", counted)
    for name in (SGLANG, H100, SGLANG_REPLAY):  # Kineto's own layout, indented, on one line
        slow_bytes.clear()
        assert index_trace(sample(name))["error"] is None
        assert sum(slow_bytes) < 10_000


def test_half_of_a_real_trace_has_no_numbers() -> None:
    raw = gzip.decompress(sample(SGLANG_REPLAY))
    index = index_trace(raw[: len(raw) // 2])
    assert "ends early" in index["error"]
    assert (index["events"], index["launches"], index["gemmRows"]) == (0, None, {})


def test_the_index_of_a_real_trace_is_small(indexed) -> None:
    for name in ALL:
        assert len(json.dumps(indexed(name))) < 16_000


def test_memory_does_not_grow_with_the_trace() -> None:
    """34 MB of text: read whole and parsed they would take 200."""
    import io
    import tracemalloc

    packed = sample(VLLM)
    tracemalloc.start()
    index_stream(io.BytesIO(packed))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 12_000_000


def test_the_device_of_an_older_tracer_is_that_of_its_runtime(indexed: Any) -> None:
    assert indexed("hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz")["device"] == "rocm"
    assert indexed("hta/execution_trace/benchmark_simple_add_trace.json.gz")["device"] == "cuda"
    assert indexed("hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")["device"] == "cpu"
