"""Which environment variables a record tells."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest
from shapetrace_capture.process import Process
from shapetrace_capture.told import MAX_FIELDS, MAX_VARIABLES, plain_fields, told, told_configuration


def test_what_steers_engine_device_and_profiler_is_told() -> None:
    given = {
        "SGLANG_USE_AITER": "1",
        "VLLM_USE_V1": "0",
        "HIP_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "TEARDOWN_CUPTI": "0",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
    assert told({**given, "HOME": "/root", "LANG": "C"}) == dict(sorted(given.items()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "hf_x"),
        ("VLLM_API_KEY", "secret"),
        ("SGLANG_ADMIN_AUTH", "secret"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("VLLM_HOST_IP", "10.0.0.1"),
        ("SGLANG_TORCH_PROFILER_DIR", "out"),
        ("SGLANG_X", "https://user:pass@host/"),
        ("SGLANG_Y", "/srv/models"),
        ("SGLANG_Z", "x" * 201),
        ("SGLANG_LINE", "a\nb"),
        ("SHAPETRACE_STORE", "{}"),
    ],
)
def test_secrets_addresses_and_places_are_not(name: str, value: str) -> None:
    assert told({name: value}) == {}


def test_what_is_told_is_bounded() -> None:
    assert len(told({f"SGLANG_V{number}": "1" for number in range(500)})) == MAX_VARIABLES


def test_it_is_in_the_record_of_the_process(tmp_path: Path) -> None:
    Process(tmp_path, {"SGLANG_USE_AITER": "1", "HF_TOKEN": "hf_x"}).write()
    (record,) = tmp_path.glob("process-*.json")
    assert json.loads(record.read_text())["environment"] == {"SGLANG_USE_AITER": "1"}


class Level(Enum):
    """As vLLM's modes."""

    FULL = 2


def test_of_a_configuration_what_decides_how_it_computes_is_told() -> None:
    given = {
        "cuda_graph_bs_decode": [1, 2],
        "attention_backend": "triton",
        "cudagraph_mode": Level.FULL,
        "disable_cuda_graph": False,
        "mem_fraction_static": 0.8,
        "kv_cache_dtype": "auto",
        "max_total_tokens": 4096,
    }
    expected = {**given, "cudagraph_mode": "FULL"}
    assert told_configuration({"": SimpleNamespace(**given)}) == dict(sorted(expected.items()))
    phases = {"cuda_graph_config": {"decode": {"backend": "full", "bs": [1, 2]}}}
    assert told_configuration({"": phases}) == {
        "cuda_graph_config.decode.backend": "full",
        "cuda_graph_config.decode.bs": [1, 2],
    }
    assert told_configuration({"a.": SimpleNamespace(mode=1), "b.": None}) == {"a.mode": 1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_key", "secret"),
        ("max_secret", "secret"),
        ("speculative_draft_model_path", "models"),
        ("enable_x", "/srv/models"),
        ("enable_x", "user@host"),
        ("enable_x", object()),
        ("enable_x", {"a": 1}),
        ("enable_x", [object()]),
        ("enable_x", float("nan")),
        ("use_host", "h"),
        ("served_model_name", "m"),
        ("hf_config", "c"),
    ],
)
def test_of_a_configuration_nothing_else(name: str, value: object) -> None:
    assert told_configuration({"": SimpleNamespace(**{name: value})}) == {}


def test_a_told_configuration_is_bounded() -> None:
    many = SimpleNamespace(**{f"max_{number}": number for number in range(1000)})
    assert len(told_configuration({"": many})) == MAX_FIELDS
    assert told_configuration({"": SimpleNamespace(max_x=list(range(5000)))}) == {}


class Backend(Enum):
    FULL = 1


def test_the_fields_of_a_key_are_told_as_they_are_and_bounded() -> None:
    fields = {"size": 8, "label": None, "is_it": True, "mode": Backend.FULL, "share": 0.5, "other": (1, 2)}
    assert plain_fields(fields) == {**fields, "mode": "FULL", "other": "(1, 2)"}
    assert plain_fields({"text": "x" * 1000, "odd": float("nan")}) == {"text": "x" * 200, "odd": "nan"}
    assert len(plain_fields({f"field{number}": number for number in range(100)})) == 32
