"""The real vLLM in a pod, as a vendor's image brings it: on a CPU it captures no graphs, and the run says so.

Its image is a stand-in (image/vllm-stand-in.Dockerfile) with nothing of ours in it, built by `make test-cluster-vllm`.
The model is random and tiny; what is real is vLLM's start: its processes, its plugins, its workers, its end.
"""

from __future__ import annotations

import base64
import gzip
import json
import platform
from collections.abc import Callable
from typing import Any

import pytest
from cluster import Cluster, Operator
from runs import condition, manifest_of, profile_run

Apply = Callable[[dict[str, Any]], str]
Finish = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="vLLM's wheels for CPUs are for x86_64 only"),
]
RUN_SECONDS = 600
"""vLLM imports for half a minute per process, and two cores may have other work."""
REASON = "the CPU platform of vLLM captures no graphs"
TOKEN = "hf_token-that-must-not-be-seen"


def vllm_run(name: str, storage: dict[str, Any], image: str, tensor: int, **env: str) -> dict[str, Any]:
    """A run of vLLM as a person would write it, on a machine without GPUs and without a way out."""
    variables = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; it would take half of the machine
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # it refuses more ranks than the machine has NUMA nodes
        **env,
    }
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    return profile_run(
        name,
        storage,
        tensor=tensor,
        spec={
            "models": [{"role": "target", "path": "/models/tiny-llama"}],
            "engine": {
                "name": "vllm",
                "image": image,
                "args": ["--load-format", "dummy", "--skip-tokenizer-init", "--enforce-eager", "--max-model-len=256"],
                "env": [*({"name": key, "value": value} for key, value in variables.items()), token],
            },
            "capture": {"targets": [{"runner": "decode", "unit": "tok", "sizes": [1, 2, 4]}]},
        },
    )


@pytest.fixture
def finished(
    cluster: Cluster,
    operator: Operator,
    storage: dict[str, Any],
    hub_token: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> Callable[..., dict[str, Any]]:
    """``finished(name, tensor, **env)``: a run of vLLM that was applied and has ended."""

    def run(name: str, tensor: int, **env: str) -> dict[str, Any]:
        apply_run(vllm_run(name, storage, cluster.image("vllm-stand-in"), tensor, **env))
        return wait_finished(name, RUN_SECONDS)

    return run


@pytest.fixture
def hub_token(cluster: Cluster, namespace: str) -> str:
    """The Secret `hub` with an access token; the token."""
    metadata = {"name": "hub", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": TOKEN}})
    return TOKEN


def objects_of(store: Any, bucket: str) -> dict[str, bytes]:
    """Everything in the bucket by its key within the attempt's folder, unpacked."""
    client = store.admin_client()
    found = {}
    for item in client.list_objects_v2(Bucket=bucket)["Contents"]:
        body = client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
        name = item["Key"].partition("/attempt-1/")[2]
        found[name] = gzip.decompress(body) if name.endswith(".gz") else body
    return found


@pytest.mark.parametrize("tensor", [1, 2])
def test_vllm_on_a_cpu_succeeds_eager_and_says_why(
    cluster: Cluster, namespace: str, store: Any, bucket: str, hub_token: str, finished: Any, tensor: int
) -> None:
    run = finished("eager", tensor)
    status = run["status"]
    assert (status["phase"], status["verdict"]) == ("Succeeded", "Eager"), status
    assert condition(run, "Succeeded")["reason"] == "Eager"
    assert REASON in condition(run, "Succeeded")["message"]
    ranks = list(range(tensor))
    assert [(entry["rank"], entry["state"], entry["verdict"]) for entry in status["ranks"]] == [
        (rank, "Done", "Eager") for rank in ranks
    ]

    found = manifest_of(store, bucket, run)
    assert (found["verdict"], found["traces"], found["failure"]) == ("Eager", [], None)
    assert found["engine"]["configuration"]["compilation_config.cudagraph_mode"] == ['"NONE"']
    assert found["engine"]["image"]["digest"].startswith("sha256:")
    assert [(entry["rank"], entry["tp"], entry["eager"]) for entry in found["ranks"]] == [
        (rank, rank, REASON) for rank in ranks
    ]

    stored = objects_of(store, bucket)
    said = json.loads(stored["environment.json"])
    engines = [(entry["rank"], entry["engine"]["name"], entry["engine"]["version"]) for entry in said["ranks"]]
    assert [entry[:2] for entry in engines] == [(rank, "vllm") for rank in ranks]
    assert all(version.startswith("0.32.0") for *_, version in engines), engines
    assert all(set(entry["hooks"].values()) == {"applied"} for entry in said["ranks"]), said["ranks"]
    log = stored["logs/pod-0/engine.log.gz"].decode()
    assert "Starting to load model /models/tiny-llama" in log, "vLLM's own lines"

    # the engine's container has the token by reference; nobody else, and no object, has it
    pod = cluster.list("pods", namespace, "shapetrace.dev/role=capture")[0]
    containers = pod["spec"]["initContainers"] + pod["spec"]["containers"]
    assert [item["name"] for item in containers if "HF_TOKEN" in json.dumps(item)] == ["engine"]
    secrets = [hub_token.encode(), store_secret(cluster, namespace)]
    assert not [(key, secret) for key, body in stored.items() for secret in secrets if secret in body]
    assert not [secret for secret in secrets if secret.decode() in json.dumps([run, pod])]


def store_secret(cluster: Cluster, namespace: str) -> bytes:
    """The secret key with which the run writes to its bucket."""
    secret = cluster.get("secret", "shapetrace-s3", namespace) or {}
    return base64.b64decode(secret["data"]["AWS_SECRET_ACCESS_KEY"])


def test_vllm_that_does_not_load_the_plugin_is_not_eager(store: Any, bucket: str, finished: Any) -> None:
    """Start-up code in the image names the only plugins that vLLM loads, after the launcher has named ours."""
    run = finished("unhooked", 1, PYTHONPATH="/opt/other-plugins")
    status = run["status"]
    assert status["phase"] == "Failed", status
    assert status["failure"]["reason"] == "HooksNotApplied", status
    assert status.get("verdict") != "Eager"
    message = condition(run, "Succeeded")["message"]
    assert "vLLM 0.32.0" in message, message
    assert "plugin shapetrace" in message, message
    assert "Starting to load model" in objects_of(store, bucket)["logs/pod-0/engine.log.gz"].decode()
