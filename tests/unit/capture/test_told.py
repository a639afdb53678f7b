"""Which environment variables a record tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shapetrace_capture.process import Process
from shapetrace_capture.told import MAX_VARIABLES, told


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
