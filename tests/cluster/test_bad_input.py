"""Bad input is refused, or shown in a condition that names the field or the fix, within 30 s; nothing hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import localcluster
import pytest
import yaml
from cluster import Cluster, Operator
from objects import make_secret
from runs import condition, finished, profile_run
from waiting import wait_until

Apply = Callable[[dict[str, Any]], str]
SHOWN_WITHIN_SECONDS = 30
SMALL_POD = {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}
"""What a run with devices asks for by default (2 CPUs and 16 GiB a device) is more than this machine has."""


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"capture": {"targets": [{"runner": "decode", "sizes": [1, 2, 2]}]}}, "sizes", id="a size twice"),
        pytest.param({"capture": {"targets": [{"runner": "decode", "sizes": [0]}]}}, "sizes", id="size zero"),
        pytest.param({"engine": {"name": "tensorrt"}}, "spec.engine.name", id="unknown engine"),
        pytest.param({"parallelism": {"tensor": 4096}}, "spec.parallelism.tensor", id="tensor beyond any node"),
        pytest.param({"storage": {"s3": {"bucket": "No_Such_Name"}}}, "bucket", id="no name of a bucket"),
        pytest.param({"storage": {"s3": {"endpoint": "not a url"}}}, "endpoint", id="no URL"),
        pytest.param({"engine": {"image": None, "name": "sglang"}}, "engine.image", id="an engine without its image"),
        pytest.param({"pod": {"securityContext": {"runAsUser": 0}}}, "runAsUser", id="root"),
    ],
)
def test_the_api_server_refuses_what_cannot_be_and_names_the_field(
    cluster: Cluster, namespace: str, spec: Mapping[str, Any], field: str
) -> None:
    run = profile_run("refused", {"bucket": "a-bucket"}, spec=spec)
    run["metadata"]["namespace"] = namespace
    done = cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(run), check=False)
    assert done.returncode != 0
    assert field in done.stderr, done.stderr


def in_time(cluster: Cluster, namespace: str, what: str, probe: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until ``probe`` is true of the run ``bad``, and see that it came in time; the run.

    Of a run that gets a pod the time counts from when the cluster has started its first container.
    """
    began, has_pod = time.monotonic(), False

    def look() -> dict[str, Any] | None:
        nonlocal began, has_pod
        if not has_pod and has_started(cluster, namespace):
            began, has_pod = time.monotonic(), True
        run = cluster.get("profilerun", "bad", namespace) or {}
        return run if probe(run) else None

    def seen() -> object:
        return (cluster.get("profilerun", "bad", namespace) or {}).get("status")

    run = wait_until(what, look, 4 * SHOWN_WITHIN_SECONDS, seen)
    seconds = time.monotonic() - began
    print(f"{what}: after {seconds:.1f} s")
    assert seconds < SHOWN_WITHIN_SECONDS
    return run


def has_started(cluster: Cluster, namespace: str) -> bool:
    """Whether a container of the run's pod runs, or has."""
    return any(
        not entry["state"].get("waiting")
        for pod in cluster.list("pods", namespace, "shapetrace.dev/role=capture")
        for entry in pod["status"].get("initContainerStatuses", [])
    )


def shown(cluster: Cluster, namespace: str, kind: str, status: str, words: list[str]) -> dict[str, Any]:
    """Wait until condition ``kind`` of the run has ``status`` and a message with all the words; the run."""

    def probe(run: dict[str, Any]) -> bool:
        found = condition(run, kind)
        text = f"{found.get('reason')} {found.get('message')}"
        return found.get("status") == status and all(word in text for word in words)

    return in_time(cluster, namespace, f"{kind}={status} with {words}", probe)


def named(cluster: Cluster, namespace: str, word: str, reason: str) -> None:
    """Wait until some condition of the run has the reason and the word in its message."""

    def probe(run: dict[str, Any]) -> bool:
        conditions = (run.get("status") or {}).get("conditions") or []
        return any(word in str(item.get("message")) and item["reason"] == reason for item in conditions)

    in_time(cluster, namespace, f"{reason} with {word}", probe)


BEYOND = {
    "tensor that does not fit": (
        {"parallelism": {"tensor": 3}},
        "Accepted",
        "False",
        ["tensor", "heads"],
    ),
    "too many shapes": (
        {
            "capture": {
                "targets": [
                    {
                        "runner": "decode",
                        "unit": "bs",
                        "sizes": list(range(1, 257)),
                        "variants": [
                            {"axis": axis, "values": [f"v{number}" for number in range(8)]} for axis in ("a", "b", "c")
                        ],
                    }
                ]
            }
        },
        "Accepted",
        "False",
        ["capture.targets", "shapes"],
    ),
    "missing bucket": (
        {"storage": {"s3": {"bucket": "there-is-no-such-bucket"}}},
        "StorageReady",
        "False",
        ["StorageDenied", "there-is-no-such-bucket", "bucket", "right"],
    ),
    "unreachable endpoint": (
        {"storage": {"s3": {"endpoint": "http://10.244.0.1:9"}}},
        "StorageReady",
        "False",
        ["StorageUnreachable", "10.244.0.1:9"],
    ),
    "node without the resource": (
        {"accelerator": {"vendor": "nvidia", "resourceName": "example.com/no-such-gpu"}},
        "Scheduled",
        "False",
        ["Unschedulable", "example.com/no-such-gpu"],
    ),
}


@pytest.mark.parametrize("case", list(BEYOND))
def test_what_only_the_run_can_tell_is_a_condition(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply, case: str
) -> None:
    spec, kind, status, words = BEYOND[case]
    apply_run(profile_run("bad", storage, spec=spec))
    run = shown(cluster, namespace, kind, status, words)
    print(condition(run, kind))


def test_wrong_credentials_are_named_and_never_shown(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    make_secret(cluster, namespace, "STNOBODYKNOWSTHISKEY", "neither-this-secret-value")
    apply_run(profile_run("bad", storage))
    run = shown(cluster, namespace, "StorageReady", "False", ["StorageDenied", "credentials"])
    assert "neither-this-secret-value" not in str(run)


def test_a_missing_secret_is_named(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    apply_run(profile_run("bad", {**storage, "credentialsSecretRef": {"name": "no-such-secret"}}))
    named(cluster, namespace, "no-such-secret", "ContainerConfigError")


@pytest.mark.parametrize("policy", ["IfNotPresent", "Never"])
def test_an_image_that_cannot_be_pulled_is_named(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply, policy: str
) -> None:
    operator.stop()
    operator.environment["SHAPETRACE_IMAGE_PULL_POLICY"] = policy
    operator.start()
    apply_run(profile_run("bad", storage, spec={"engine": {"image": "localhost/no-such-image:1"}}))
    named(cluster, namespace, "no-such-image", "ImagePullFailed")


def test_a_quota_refusal_is_shown(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "small", "namespace": namespace},
            "spec": {"hard": {"requests.memory": "64Mi"}},
        }
    )
    apply_run(profile_run("bad", storage))
    shown(cluster, namespace, "Scheduled", "False", ["QuotaExceeded", "small"])


def test_a_missing_service_account_is_named(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    apply_run(profile_run("bad", storage, spec={"pod": {"serviceAccountName": "no-such-account"}}))
    shown(cluster, namespace, "Scheduled", "False", ["AdmissionRefused", "no-such-account"])


def test_a_refusal_by_admission_is_shown_in_its_own_words(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    """Pod Security `restricted` cannot refuse our pods (every test runs under it, and the API refuses root by itself),
    so a policy of the cluster's owner does it, through the same Event on the Job."""
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "validations": [{"expression": "false", "message": "pods of this team need a cost label"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {"policyName": namespace, "validationActions": ["Deny"]},
    }
    try:
        cluster.apply(policy, binding)
        probe = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "probe", "namespace": namespace},
            "spec": {
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": "c",
                        "image": "localhost/none",
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        }
        wait_until(
            "the policy is in force",
            lambda: (
                "cost label"
                in cluster.kubectl(
                    "create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(probe), check=False
                ).stderr
            ),
            120,
        )
        apply_run(profile_run("bad", storage))
        shown(cluster, namespace, "Scheduled", "False", ["AdmissionRefused", "cost label"])
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            cluster.kubectl("delete", kind, namespace, "--ignore-not-found", check=False)


def test_a_run_that_cannot_store_frees_its_gpus(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    resource = f"example.com/{namespace[-6:]}gpu"
    localcluster.run("fake-gpu", "node-1", resource, "2")
    try:
        started = time.monotonic()
        apply_run(
            profile_run(
                "bad",
                storage,
                tensor=2,
                spec={
                    "accelerator": {"vendor": "amd", "resourceName": resource},
                    "pod": SMALL_POD,
                    "storage": {"s3": {"bucket": "there-is-no-such-bucket"}},
                },
            )
        )

        def over() -> bool:
            pods = cluster.list("pods", namespace, "shapetrace.dev/role=capture")
            run = cluster.get("profilerun", "bad", namespace)
            return finished(run) and all(pod["status"]["phase"] in ("Failed", "Succeeded") for pod in pods)

        wait_until("the run is over and its pod holds nothing", over, 240)
        print(f"freed after {time.monotonic() - started:.1f} s")
        # another pod gets them
        apply_run(
            profile_run(
                "next",
                storage,
                tensor=2,
                spec={"accelerator": {"vendor": "amd", "resourceName": resource}, "pod": SMALL_POD},
            )
        )
        wait_until(
            "the next run is scheduled",
            lambda: condition(cluster.get("profilerun", "next", namespace), "Scheduled").get("status") == "True",
            120,
        )
    finally:
        key = resource.replace("/", "~1")
        cluster.kubectl(
            "patch",
            "node",
            "node-1",
            "--subresource=status",
            "--type=json",
            "-p",
            f'[{{"op":"remove","path":"/status/capacity/{key}"}},{{"op":"remove","path":"/status/allocatable/{key}"}}]',
            check=False,
        )
