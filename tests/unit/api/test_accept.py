"""What no schema can refuse is refused with the field's name, and only that."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_api.accept import refusals
from shapetrace_api.spec import ProfileRunSpec

COMMAND = {"name": "command", "image": "example.com/engine:1", "args": ["python3", "engine.py"]}
SGLANG = {"name": "sglang", "image": "s"}
VLLM = {"name": "vllm", "image": "v"}
MODEL = [{"name": "a/b"}]


def run(**fields: Any) -> ProfileRunSpec:
    base = {"engine": COMMAND, "accelerator": {"vendor": "none"}, "storage": {"s3": {"bucket": "traces"}}}
    return ProfileRunSpec.model_validate({**base, **fields})


def decode(**target: Any) -> dict[str, Any]:
    return {"targets": [{"runner": "decode", **target}]}


SIZES = list(range(1, 53))
LORA = {"axis": "lora", "values": ["lora", "nolora"]}
ATTENTION = {"axis": "attention", "values": ["dense", "sparse"]}


def test_a_plain_run_is_accepted() -> None:
    assert refusals(run()) == []


def test_a_large_run_of_today_is_accepted() -> None:
    spec = run(parallelism={"tensor": 8}, capture=decode(sizes=SIZES, variants=[LORA, ATTENTION]))
    assert refusals(spec) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"parallelism": {"tensor": 32}, "capture": decode(sizes=SIZES, variants=[LORA, ATTENTION])},
            "capture.targets: 208 shapes on 32 ranks are 6656 traces, at most 4096",
        ),
        ({"engine": SGLANG}, "models: sglang needs exactly one model with role target"),
        ({"engine": VLLM, "models": [{"role": "draft", "path": "/d"}]}, "models: vllm needs exactly one model"),
        (
            {"engine": {**SGLANG, "args": ["--tp", "8"]}, "models": MODEL},
            "engine.args: --tp: it is made from parallelism.tensor; say it there",
        ),
        (
            {"engine": {**SGLANG, "args": ["--enable-profile-cuda-graph"]}, "models": MODEL},
            "engine.args: --enable-profile-cuda-graph: SGLang's own profiler",
        ),
        (
            {"engine": {**VLLM, "args": ["--hf_token", "secret"]}, "models": MODEL},
            "engine.args: --hf-token: a token does not belong into arguments",
        ),
        (
            {"engine": SGLANG, "models": MODEL, "capture": decode(sizes=[1], unit="tok")},
            "capture.targets[decode].unit: SGLang's decode sizes count requests; say unit: bs",
        ),
        (
            {"engine": VLLM, "models": MODEL, "capture": decode(sizes=[1])},
            "capture.targets[decode].unit: vLLM's sizes count tokens; say unit: tok",
        ),
        (
            {
                "engine": {**SGLANG, "env": [{"name": "SGLANG_USE_MODELSCOPE", "value": "true"}]},
                "models": MODEL,
            },
            "engine.env: SGLANG_USE_MODELSCOPE: models by name are fetched from the Hugging Face hub only",
        ),
        ({"models": [{"name": "a/b"}]}, "models: the engine command loads none"),
        ({"engine": {**COMMAND, "args": ["x" * 16_000] * 7}}, "engine.args: 112000 bytes in all, at most 98304"),
        ({"capture": decode(sizes=[8, 4, 8])}, "capture.targets[decode].sizes: 8 is there twice"),
        ({"capture": {"ranks": "Listed", "listedRanks": [1]}}, "capture.listedRanks: there is no rank 1"),
        (
            {"capture": decode(variants=[{"axis": f"a{n}", "values": ["-" * 64]} for n in range(2)])},
            "capture.targets[decode].variants: the tag",
        ),
        ({"storage": {"s3": {"bucket": "traces", "prefix": "a/.."}}}, "storage.s3.prefix: "),
        (
            {"pod": {"resources": {"requests": {"memory": "2Gi", "cpu": 1}, "limits": {"memory": "2000Mi"}}}},
            "pod.resources: the request of 2Gi memory is above the limit of 2000Mi",
        ),
        ({"pod": {"shmSize": "512m"}}, "pod.shmSize: 512m is less than 1Mi"),
        ({"pod": {"spoolSize": "64Mi"}}, "pod.spoolSize: 64Mi is less than 128Mi"),
        ({"pod": {"resources": {"limits": {"memory": "900m"}}}}, "pod.resources.limits.memory: 900m is less than 1Mi"),
        ({"engine": {**COMMAND, "args": []}}, "engine.args: the engine command runs them"),
        ({"engine": {"name": "torch"}}, "capture.targets: the engine torch captures what it is told"),
        (
            {"accelerator": {"vendor": "amd", "extraResources": {"amd.com/gpu": 1}}},
            "accelerator.extraResources: amd.com/gpu is there already",
        ),
        (
            {"accelerator": {"vendor": "none", "extraResources": {"rdma/hca": "500m"}}},
            "accelerator.extraResources: rdma/hca comes in whole pieces, '500m' is none",
        ),
    ],
)  # fmt: skip
def test_a_refusal_names_field_and_fix(fields: dict[str, Any], expected: str) -> None:
    found = refusals(run(**fields))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_more_devices_than_a_node_has() -> None:
    assert refusals(run(accelerator={"vendor": "amd"}, parallelism={"tensor": 32, "dataReplicas": 2})) == []
    (found,) = refusals(run(accelerator={"vendor": "amd"}, parallelism={"tensor": 32, "dataReplicas": 4}))
    assert found.startswith("parallelism: tensor x pipeline x dataReplicas needs 128 devices")


def test_on_a_cpu_ranks_need_no_device() -> None:
    assert refusals(run(parallelism={"tensor": 64, "dataReplicas": 2})) == []


def test_only_recorded_ranks_count() -> None:
    capture = decode(sizes=SIZES, variants=[LORA, ATTENTION])
    assert refusals(run(parallelism={"tensor": 32}, capture={**capture, "ranks": "First"})) == []


@pytest.mark.parametrize("engine", [SGLANG, VLLM])
def test_a_serving_engine_with_a_model_is_accepted(engine: dict[str, Any]) -> None:
    assert refusals(run(engine=engine, models=MODEL)) == []


def test_an_engine_has_one_access_token() -> None:
    def models(*keys: str) -> list[dict[str, Any]]:
        roles = ("target", "adapter")
        return [
            {"name": "a/b", "role": role, "tokenSecretRef": {"name": "hub", "key": key}}
            for role, key in zip(roles, keys, strict=True)
        ]

    assert refusals(run(engine=VLLM, models=models("token", "token"))) == []
    (found,) = refusals(run(engine=VLLM, models=models("token", "other")))
    assert found.startswith("models: the engine takes one access token")


def test_every_fault_is_named_at_once() -> None:
    spec = run(
        models=[{"name": "a/b"}], capture=decode(sizes=[1, 1]), storage={"s3": {"bucket": "b-1", "prefix": ".."}}
    )
    assert [text.split(":")[0] for text in refusals(spec)] == [
        "models",
        "capture.targets[decode].sizes",
        "storage.s3.prefix",
    ]
