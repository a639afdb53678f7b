"""Built objects: golden files, the API server's schema, and the rules that every pod of ours keeps."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_api.quantity import parse
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_contract.settings import CaptureSettings, EngineSettings, Limits, RunId, StoreSettings
from shapetrace_operator.build.capture import capture_job
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.build.environment import literal
from shapetrace_operator.build.finish import finish_job
from shapetrace_operator.build.names import capture_job_name, finish_job_name

GOLDEN = Path(__file__).parent / "golden"
KUBERNETES = "1.34"
DEFAULTS = Defaults("registry/shapetrace:1", "registry/engine:1", image_pull_secrets=("site",))
RUN = {"metadata": {"name": "quick", "namespace": "lab", "uid": "0a1b2c3d-0000-4000-8000-000000000001"}}
SMALL: dict[str, Any] = {
    "engine": {"name": "torch", "args": ["--layers", "2"]},
    "parallelism": {"tensor": 2},
    "capture": {"targets": [{"runner": "decode", "sizes": [1, 2], "variants": [{"axis": "lora", "values": ["lora"]}]}]},
    "accelerator": {"vendor": "none"},
    "storage": {"s3": {"bucket": "traces", "credentialsSecretRef": {"name": "s3"}}},
}
LARGE: dict[str, Any] = {
    "models": [
        {"role": "target", "name": "org/model", "revision": "main", "tokenSecretRef": {"name": "hub", "key": "token"}},
        {"role": "draft", "pvc": {"claimName": "weights", "path": "draft"}},
    ],
    "engine": {
        "name": "sglang",
        "image": "vendor/sglang:rocm",
        "args": ["--mem-fraction-static", "0.8"],
        "env": [
            {"name": "PYTHONPATH", "value": "/opt/extra"},
            {"name": "PRICE", "value": "$(HOME) costs $5"},
            {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
            {"name": "HF_HOME", "value": "/mine"},
        ],
        "cache": {"pvc": {"claimName": "kernels"}},
    },
    "parallelism": {"tensor": 4, "dataReplicas": 2},
    "capture": {"ranks": "Listed", "listedRanks": [0, 3], "stacks": "None"},
    "accelerator": {"vendor": "amd", "extraResources": {"rdma/hca": "1"}},
    "storage": {
        "s3": {
            "bucket": "traces",
            "prefix": "team/a",
            "endpoint": "https://store:9000",
            "region": "eu-1",
            "pathStyle": True,
            "caBundle": {"configMapKeyRef": {"name": "ca", "key": "bundle.pem"}},
            "sse": {"algorithm": "aws:kms", "kmsKeyId": "key-1"},
        }
    },
    "pod": {
        "serviceAccountName": "profiler",
        "securityContext": {"runAsUser": 2000, "supplementalGroups": [44, 109]},
        "nodeSelector": {"gpu": "mi300x"},
        "tolerations": [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
                }
            }
        },
        "priorityClassName": "high",
        "schedulerName": "other",
        "runtimeClassName": "rocm",
        "imagePullSecrets": [{"name": "mine"}],
        "resources": {
            "requests": {"cpu": 16, "memory": "200Gi"},
            "limits": {"cpu": 32, "memory": "300Gi"},
        },
        "shmSize": "16Gi",
        "spoolSize": "8Gi",
        "labels": {"kueue.x-k8s.io/queue-name": "gpus", "team": "kernels"},
        "annotations": {"karpenter.sh/do-not-disrupt": "false"},
    },
    "disruptionGraceSeconds": 30,
}


def built(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    read = ProfileRunSpec.model_validate(copy.deepcopy(spec))
    return {
        "capture": capture_job(RUN, read, 1, 0, DEFAULTS),
        "finish": finish_job(RUN, read, 2, 1, 1, DEFAULTS),
    }


JOBS = {
    f"{size}-{kind}": job for size, spec in (("small", SMALL), ("large", LARGE)) for kind, job in built(spec).items()
}


def pod(job: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def containers(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from pod(job).get("initContainers", [])
    yield from pod(job)["containers"]


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container.get("env", [])}


@pytest.mark.parametrize("name", sorted(JOBS))
def test_the_jobs_are_those_that_were_reviewed(name: str) -> None:
    """SHAPETRACE_UPDATE_GOLDEN=1 writes the files anew; the difference belongs into the review."""
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("SHAPETRACE_UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(json.loads(json.dumps(JOBS[name])), sort_keys=False, width=120))
    assert JOBS[name] == yaml.safe_load(path.read_text())


@pytest.mark.parametrize("name", sorted(JOBS))
def test_the_schema_of_kubernetes_knows_every_field(name: str) -> None:
    kubernetes_validate.validate(JOBS[name], KUBERNETES, strict=True)


def test_the_schema_check_can_fail() -> None:
    broken = copy.deepcopy(JOBS["small-capture"])
    broken["spec"]["podFailurPolicy"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", sorted(JOBS))
def test_pods_pass_pod_security_restricted(name: str) -> None:
    context = pod(JOBS[name])["securityContext"]
    assert context["runAsNonRoot"]
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(JOBS[name]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "hostPort" not in str(container.get("ports"))
    kinds = {kind for volume in pod(JOBS[name])["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}


@pytest.mark.parametrize("name", sorted(JOBS))
def test_no_container_gets_a_kubernetes_token(name: str) -> None:
    assert pod(JOBS[name])["automountServiceAccountToken"] is False
    assert pod(JOBS[name])["enableServiceLinks"] is False


@pytest.mark.parametrize("name", sorted(JOBS))
def test_every_container_has_requests_and_limits_and_the_pod_is_not_guaranteed(name: str) -> None:
    equal = []
    for container in containers(JOBS[name]):
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        for resource in ("cpu", "memory"):
            assert parse(requests[resource]) <= parse(limits[resource])
        equal.append(all(requests[resource] == limits[resource] for resource in ("cpu", "memory")))
    assert not all(equal)


def test_credentials_reach_our_containers_only() -> None:
    holders = {
        container["name"]
        for name in ("small-capture", "small-finish")
        for container in containers(JOBS[name])
        if any(key.startswith("AWS_") for key in variables(container))
    }
    assert holders == {"preflight", "collector", "finish"}
    assert "SHAPETRACE_STORE" not in variables(pod(JOBS["small-capture"])["containers"][0])


def test_no_value_of_a_secret_is_in_any_object() -> None:
    for job in JOBS.values():
        for container in containers(job):
            for key, value in variables(container).items():
                if key.startswith("AWS_") or key == "HF_TOKEN":
                    assert set(value) == {"secretKeyRef"}


def test_spool_and_shared_memory_are_added_to_the_memory_of_the_engine() -> None:
    engine = pod(JOBS["large-capture"])["containers"][0]["resources"]
    gib = Decimal(2) ** 30
    assert parse(engine["requests"]["memory"]) == (200 + 16 + 8) * gib
    assert parse(engine["limits"]["memory"]) == (300 + 16 + 8) * gib
    volumes = {item["name"]: item for item in pod(JOBS["large-capture"])["volumes"]}
    for name, size in (("spool", 8), ("shm", 16)):
        assert volumes[name]["emptyDir"]["medium"] == "Memory"
        assert parse(volumes[name]["emptyDir"]["sizeLimit"]) == size * gib


def test_every_rank_gets_a_device_of_its_own() -> None:
    engine = pod(JOBS["large-capture"])["containers"][0]["resources"]
    for amounts in (engine["requests"], engine["limits"]):
        assert (amounts["amd.com/gpu"], amounts["rdma/hca"]) == ("8", "1")
    assert "gpu" not in str(pod(JOBS["large-finish"])["containers"][0]["resources"])
    assert "nodeSelector" not in pod(JOBS["large-finish"])


def test_queue_labels_hold_back_the_capture_only() -> None:
    assert JOBS["large-capture"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "kueue.x-k8s.io/queue-name" not in JOBS["large-finish"]["metadata"]["labels"]
    assert JOBS["large-finish"]["metadata"]["labels"]["team"] == "kernels"


def test_labels_of_ours_win_over_those_of_the_run() -> None:
    spec = copy.deepcopy(SMALL)
    spec["pod"] = {"labels": {"shapetrace.dev/run": "forged"}}
    for job in built(spec).values():
        assert job["metadata"]["labels"]["shapetrace.dev/run"] == RUN["metadata"]["uid"]


def test_the_run_owns_its_jobs_and_never_waits_for_them() -> None:
    for job in JOBS.values():
        (owner,) = job["metadata"]["ownerReferences"]
        assert owner["uid"] == RUN["metadata"]["uid"]
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, False)


def test_one_pod_for_one_attempt_and_failures_are_never_ignored() -> None:
    for job in JOBS.values():
        assert {rule["action"] for rule in job["spec"]["podFailurePolicy"]["rules"]} == {"FailJob"}
        assert pod(job)["restartPolicy"] == "Never"
        assert "ttlSecondsAfterFinished" not in job["spec"]
    assert JOBS["small-capture"]["spec"]["backoffLimit"] == 0


def test_the_containers_can_read_their_settings() -> None:
    made = {container["name"]: variables(container) for container in containers(JOBS["large-capture"])}
    made |= {container["name"]: variables(container) for container in containers(JOBS["large-finish"])}
    needed = {
        "preflight": (RunId, StoreSettings),
        "collector": (RunId, StoreSettings, EngineSettings, Limits),
        "engine": (RunId, CaptureSettings, EngineSettings, Limits),
        "finish": (RunId, StoreSettings, EngineSettings, CaptureSettings),
    }
    for name, kinds in needed.items():
        for kind in kinds:
            kind.from_env(made[name])
    engine = EngineSettings.from_env(made["engine"])
    assert engine.ranks == 8
    assert engine.device == "rocm"
    claim = {"claimName": "weights", "path": "draft"}
    assert engine.models[1] == {"role": "draft", "path": "/models/1/draft", "pvc": claim}
    assert "tokenSecretRef" not in engine.models[0]
    assert CaptureSettings.from_env(made["engine"]).ranks == [0, 3]
    assert RunId.from_env(made["finish"]).attempt == 2
    store = StoreSettings.from_env(made["finish"])
    assert (store.caBundle, store.sseKmsKeyId) == ("/etc/shapetrace/ca/ca.crt", "key-1")


def test_the_users_environment_is_kept_and_taken_literally() -> None:
    engine = pod(JOBS["large-capture"])["containers"][0]
    made = variables(engine)
    assert made["PYTHONPATH"] == "/opt/shapetrace:/opt/extra"
    assert made["PRICE"] == "$$(HOME) costs $$5"
    assert made["HF_HOME"] == "/mine"
    assert made["FROM"] == {"configMapKeyRef": {"name": "settings", "key": "a"}}
    names = [item["name"] for item in engine["env"]]
    assert len(names) == len(set(names))


def test_only_the_image_of_ours_gets_a_read_only_root() -> None:
    assert pod(JOBS["small-capture"])["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    assert not pod(JOBS["large-capture"])["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_resources_that_name_only_one_side_stay_in_order() -> None:
    for resources in ({"limits": {"cpu": "100m", "memory": "64Mi"}}, {"requests": {"cpu": "64", "memory": "64Gi"}}):
        spec = {**copy.deepcopy(SMALL), "pod": {"resources": resources}}
        engine = pod(built(spec)["capture"])["containers"][0]["resources"]
        for name in ("cpu", "memory"):
            assert parse(engine["requests"][name]) <= parse(engine["limits"][name])


def expand(value: str) -> str:
    """What the kubelet makes of ``$``: ``$$`` is ``$``, ``$(NAME)`` a reference, which must not be there."""
    out, index = "", 0
    while index < len(value):
        if value[index] == "$" and value[index + 1 : index + 2] == "$":
            out, index = out + "$", index + 2
            continue
        assert value[index : index + 2] != "$(", "a reference"
        out, index = out + value[index], index + 1
    return out


@given(st.text(alphabet="$()AB ", max_size=12))
def test_values_arrive_as_they_were_written(value: str) -> None:
    assert expand(literal("X", value)["value"]) == value


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?", fullmatch=True), st.integers(1, 99_999))
def test_names_fit_and_tell_runs_and_attempts_apart(name: str, attempt: int) -> None:
    made = finish_job_name(name, "0a1b2c3d", attempt, 3)
    assert len(made) <= 61
    assert made.replace("-", "a").isalnum()
    assert made.startswith(capture_job_name(name, "0a1b2c3d", attempt))
    assert capture_job_name(name, "0a1b2c3d", attempt) != capture_job_name(name, "ffff2c3d", attempt)


def test_an_engine_with_devices_gets_host_memory_for_its_weights_and_room_for_its_ranks() -> None:
    spec = {**copy.deepcopy(LARGE), "parallelism": {"tensor": 8}, "pod": {}}
    made = built(spec)["capture"]
    engine = pod(made)["containers"][0]["resources"]
    gib = Decimal(2) ** 30
    volumes = {item["name"]: item for item in pod(made)["volumes"]}
    assert parse(volumes["spool"]["emptyDir"]["sizeLimit"]) == 4 * gib
    assert parse(volumes["shm"]["emptyDir"]["sizeLimit"]) == 8 * gib
    assert parse(engine["requests"]["memory"]) == (8 * 16 + 12) * gib
    assert parse(engine["limits"]["memory"]) == (8 * 128 + 12) * gib
