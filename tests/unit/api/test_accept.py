"""What no schema can refuse is refused with the field's name, and only that."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_api.accept import AcceptanceLimits, refusals
from shapetrace_api.engine import EngineName
from shapetrace_api.spec import ProfileRunSpec

COMMAND = {"name": "command", "image": "example.com/engine:1", "args": ["python3", "engine.py"]}
ALL = AcceptanceLimits(engines=frozenset(EngineName))


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
        ({"engine": {"name": "vllm", "image": "v"}}, "engine.name: vllm is not supported by this version"),
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
    spec = run(accelerator={"vendor": "amd"}, parallelism={"tensor": 8, "dataReplicas": 2})
    assert refusals(spec) == []
    (found,) = refusals(spec, limits=AcceptanceLimits(max_devices=8))
    assert found.startswith("parallelism: tensor x pipeline x dataReplicas needs 16 devices")


def test_on_a_cpu_ranks_need_no_device() -> None:
    assert refusals(run(parallelism={"tensor": 16}), limits=AcceptanceLimits(max_devices=8)) == []


def test_only_recorded_ranks_count() -> None:
    capture = decode(sizes=SIZES, variants=[LORA, ATTENTION])
    assert refusals(run(parallelism={"tensor": 32}, capture={**capture, "ranks": "First"})) == []


def test_an_installation_decides_which_engines_it_has() -> None:
    assert refusals(run(engine={"name": "sglang", "image": "s"}, models=[{"name": "a/b"}]), limits=ALL) == []


def test_an_engine_has_one_access_token() -> None:
    def models(*keys: str) -> list[dict[str, Any]]:
        return [{"name": "a/b", "tokenSecretRef": {"name": "hub", "key": key}} for key in keys]

    vllm = {"name": "vllm", "image": "v"}
    assert refusals(run(engine=vllm, models=models("token", "token")), limits=ALL) == []
    (found,) = refusals(run(engine=vllm, models=models("token", "other")), limits=ALL)
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
