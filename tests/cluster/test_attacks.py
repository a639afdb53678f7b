"""What others do to the children of a run, or to the cluster around it, neither ends the operator nor fools it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import yaml
from cluster import Cluster, Operator
from runs import condition, finished, profile_run
from waiting import wait_until

Apply = Callable[[dict[str, Any]], str]
Finish = Callable[..., dict[str, Any]]
NOWHERE = {"pod": {"nodeSelector": {"example.com/no-such": "node"}}}
CAPTURES, FINISHES = "shapetrace.dev/role=capture", "shapetrace.dev/role=finish"


def failing_run(name: str, storage: dict[str, Any], image: str, **spec: Any) -> dict[str, Any]:
    """A script that ends with 1 as soon as it is started."""
    engine = {"name": "command", "image": image, "args": ["python3", "-c", "raise SystemExit(1)"]}
    return profile_run(name, storage, spec={"engine": engine, **spec})


def seen(cluster: Cluster, namespace: str, name: str, kind: str, status: str, word: str = "") -> dict[str, Any]:
    """Wait until the condition has that status, with the word in its reason or message; the run."""

    def probe() -> dict[str, Any] | None:
        run = cluster.get("profilerun", name, namespace)
        found = condition(run, kind)
        text = f"{found.get('reason')} {found.get('message')}"
        return run if found.get("status") == status and word in text else None

    return wait_until(
        f"{kind}={status} {word}", probe, 120, lambda: (cluster.get("profilerun", name, namespace) or {}).get("status")
    )


def job_names(cluster: Cluster, namespace: str) -> list[str]:
    return sorted(job["metadata"]["name"] for job in cluster.list("jobs", namespace))


def owner(kind: str, version: str, obj: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = obj["metadata"]
    reference = {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    return [{**reference, "controller": True, "blockOwnerDeletion": False}]


def forged_pod(namespace: str, run: dict[str, Any], image: str, owners: list[dict[str, Any]]) -> dict[str, Any]:
    """A pod that claims to be a finish of the run, and that everything was captured."""
    answer = {"v": 1, "verdict": "Complete", "uri": "s3://b/m", "sha256": "a" * 64, "failure": None, "ranks": []}
    labels = {"run": run["metadata"]["uid"], "attempt": "1", "role": "finish"}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    script = f"open('/dev/termination-log', 'w').write({json.dumps(json.dumps(answer))})"
    container = {"name": "finish", "image": image, "imagePullPolicy": "IfNotPresent", "securityContext": security}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "forged",
            "namespace": namespace,
            "labels": {f"shapetrace.dev/{key}": value for key, value in labels.items()},
            "ownerReferences": owners,
        },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{**container, "command": ["python3", "-c", script]}],
        },
    }


def test_forged_labels_annotations_and_pods_change_nothing(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    apply_run(profile_run("target", storage, spec=NOWHERE))
    run = seen(cluster, namespace, "target", "Scheduled", "False", "Unschedulable")
    (job,) = job_names(cluster, namespace)
    cluster.kubectl("create", "configmap", "mine", "-n", namespace)
    mine = cluster.get("configmap", "mine", namespace)
    assert mine is not None
    cluster.apply(forged_pod(namespace, run, cluster.image("shapetrace"), owner("ConfigMap", "v1", mine)))
    digits = "9" * 5000
    for key in ("retries", "finish"):
        cluster.kubectl("annotate", "job", job, "-n", namespace, "--overwrite", f"shapetrace.dev/{key}={digits}")
    labels = ["shapetrace.dev/attempt=" + "9" * 60, "shapetrace.dev/role=finish"]
    cluster.kubectl("label", "job", job, "-n", namespace, "--overwrite", *labels)
    forged_job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "forged",
            "namespace": namespace,
            "labels": {"shapetrace.dev/run": run["metadata"]["uid"], "shapetrace.dev/attempt": "9" * 60},
            "ownerReferences": owner("ProfileRun", "shapetrace.dev/v1alpha1", run),
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}},
        },
    }
    cluster.apply(forged_job)
    wait_until(
        "the forged pod has said its word",
        lambda: (cluster.get("pod", "forged", namespace) or {})["status"]["phase"] == "Succeeded",
        120,
    )
    apply_run(profile_run("other", storage, spec=NOWHERE))
    seen(cluster, namespace, "other", "Scheduled", "False", "Unschedulable")
    assert operator.process is not None
    assert operator.process.poll() is None, operator.log.read_text()[-2000:]
    status = (cluster.get("profilerun", "target", namespace) or {})["status"]
    assert (status["phase"], status["attempt"], "verdict" in status) == ("Pending", 1, False), status
    assert not cluster.list("jobs", namespace, FINISHES + ",shapetrace.dev/attempt=1")
    assert "Error" not in operator.log.read_text()


def test_a_webhook_that_is_away_is_shown_and_the_run_goes_on_when_it_is_gone(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "away.example.com",
                "clientConfig": {"service": {"name": "away", "namespace": namespace}},
                "rules": [
                    {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    cluster.apply(webhook)
    try:
        wait_until("the webhook refuses", lambda: refuses_jobs(cluster, namespace), 120)
        apply_run(profile_run("patient", storage, spec=NOWHERE))
        seen(cluster, namespace, "patient", "Scheduled", "False", "failed calling webhook")
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", namespace)
    seen(cluster, namespace, "patient", "Scheduled", "False", "Unschedulable")
    assert len(job_names(cluster, namespace)) == 1


def refuses_jobs(cluster: Cluster, namespace: str) -> bool:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}},
    }
    done = cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(job), check=False)
    return "failed calling webhook" in done.stderr


def test_a_retry_that_the_quota_refuses_ends_with_the_pending_timeout(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    cluster.kubectl("create", "quota", "jobs", "-n", namespace, "--hard=count/jobs.batch=2")
    image = cluster.image("shapetrace-engine")
    # within which the first attempt's engine has to be started, on a machine that may be busy
    apply_run(failing_run("again", storage, image, retries=2, pendingTimeoutSeconds=40))
    run = wait_finished("again")
    status = run["status"]
    assert (status["phase"], status["attempt"]) == ("Failed", 1), status
    assert condition(run, "Scheduled")["reason"] == "QuotaExceeded", status
    assert len(job_names(cluster, namespace)) == 2


def test_retries_end_and_each_is_finished(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(failing_run("never", storage, cluster.image("shapetrace-engine"), retries=1))
    status = wait_finished("never")["status"]
    assert (status["phase"], status["attempt"]) == ("Failed", 2), status
    assert status["failure"]["reason"] == "EngineFailed"
    assert len(cluster.list("jobs", namespace, CAPTURES)) == len(cluster.list("jobs", namespace, FINISHES)) == 2


def test_a_run_kept_by_a_finalizer_of_somebody_else_frees_its_devices(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    apply_run(profile_run("kept", storage, spec=NOWHERE))
    seen(cluster, namespace, "kept", "Scheduled", "False", "Unschedulable")
    patch = ["patch", "prun", "kept", "-n", namespace, "--type=merge", "-p"]
    cluster.kubectl(*patch, '{"metadata":{"finalizers":["example.com/archive"]}}')
    try:
        cluster.kubectl("delete", "prun", "kept", "-n", namespace, "--wait=false")
        wait_until("its Job is gone", lambda: not job_names(cluster, namespace), 120)
        assert cluster.get("profilerun", "kept", namespace) is not None
    finally:
        cluster.kubectl(*patch, '{"metadata":{"finalizers":null}}')


def test_suspended_and_resumed_many_times_one_job_is_left(
    cluster: Cluster, operator: Operator, namespace: str, storage: dict[str, Any], apply_run: Apply
) -> None:
    apply_run(profile_run("nervous", storage, spec=NOWHERE))
    seen(cluster, namespace, "nervous", "Scheduled", "False", "Unschedulable")
    for number in range(9):
        value = "true" if number % 2 == 0 else "false"
        cluster.kubectl(
            "patch", "prun", "nervous", "-n", namespace, "--type=merge", "-p", f'{{"spec":{{"suspend":{value}}}}}'
        )
    phase = "jsonpath={.status.phase}"
    cluster.kubectl("wait", "prun/nervous", "-n", namespace, f"--for={phase}=Suspended", "--timeout=120s")
    wait_until("no pod is left", lambda: not cluster.list("pods", namespace, CAPTURES), 120)
    assert not cluster.list("jobs", namespace, CAPTURES)
    patch = '{"spec":{"suspend":false}}'
    cluster.kubectl("patch", "prun", "nervous", "-n", namespace, "--type=merge", "-p", patch)
    seen(cluster, namespace, "nervous", "Scheduled", "False", "Unschedulable")
    assert len(cluster.list("jobs", namespace, CAPTURES)) == 1


def test_a_run_deleted_and_made_again_at_once_is_another_run(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    image = cluster.image("shapetrace-engine")
    apply_run(failing_run("same", storage, image))
    wait_until("its Job is there", lambda: job_names(cluster, namespace), 120)
    cluster.kubectl("delete", "prun", "same", "-n", namespace, "--timeout=60s")
    apply_run(failing_run("same", storage, image))
    run = wait_finished("same")
    assert finished(run)
    assert run["status"]["attempt"] == 1
    assert run["status"]["failure"]["reason"] == "EngineFailed", run["status"]
    uid = run["metadata"]["uid"]
    wait_until(
        "only the children of the second are left",
        lambda: {job["metadata"]["labels"]["shapetrace.dev/run"] for job in cluster.list("jobs", namespace)} == {uid},
        120,
    )
