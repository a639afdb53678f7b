"""A run from `kubectl apply` to fetched traces, as a person sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, Operator
from independent import differences
from runs import VARIANTS, condition, profile_run
from waiting import wait_until

Apply = Callable[[dict[str, Any]], str]
Finish = Callable[..., dict[str, Any]]


def fetch(
    cluster: Cluster, namespace: str, name: str, folder: Path, credentials: tuple[str, str]
) -> subprocess.CompletedProcess[str]:
    """`shapetrace fetch` with a person's own credentials."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder.parent),
        "AWS_ACCESS_KEY_ID": credentials[0],
        "AWS_SECRET_ACCESS_KEY": credentials[1],
    }
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "shapetrace_cli",
            "fetch",
            name,
            str(folder),
            "-n",
            namespace,
            "--kubeconfig",
            str(cluster.kubeconfig),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_run_of_two_ranks_is_complete_and_every_trace_is_what_its_name_says(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    apply_run: Apply,
    wait_finished: Finish,
    tmp_path: Path,
) -> None:
    apply_run(profile_run("whole", storage, sizes=(1, 2, 4), tensor=2, variants=VARIANTS))
    run = wait_finished("whole")
    status = run["status"]
    assert (status["phase"], status["verdict"]) == ("Succeeded", "Complete"), status
    assert status["progress"]["summary"] == "24/24"
    assert status["progress"]["ranksSummary"] == "2/2"
    assert [(entry["rank"], entry["state"], entry["uploaded"], entry["verdict"]) for entry in status["ranks"]] == [
        (0, "Done", 12, "Complete"),
        (1, "Done", 12, "Complete"),
    ]
    for kind in ("Accepted", "StorageReady", "Scheduled", "Captured", "Uploaded", "Succeeded", "Finished"):
        assert condition(run, kind).get("status") == "True", (kind, status["conditions"])
    columns = cluster.kubectl("get", "prun", "whole", "-n", namespace, "--no-headers").stdout.split()
    assert columns[:5] == ["whole", "Succeeded", "Complete", "24/24", "2/2"]

    done = fetch(cluster, namespace, "whole", tmp_path / "out", store.credentials)
    assert done.returncode == 0, done.stderr
    assert differences(tmp_path / "out") == []
    supports = [trace["support"] for trace in json.loads((tmp_path / "out/manifest.json").read_text())["traces"]]
    assert {support["size"] for support in supports} == {"proven"}
    assert {value for support in supports for value in support["variants"].values()} <= {"proven", "distinct"}


PACED = """
import time, torch, shapetrace_capture
weight = torch.ones(64, 64)
for size in range(1, 25):
    with shapetrace_capture.shape(size=size, unit="bs", runner="decode"):
        torch.mm(torch.ones(size, 64), weight)
    time.sleep(0.75)
"""
"""24 captures in 18 s on any machine: the operator writes counters every 3 s."""


def test_counters_rise_while_capture_runs_and_objects_arrive_before_its_end(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
    tmp_path: Path,
) -> None:
    rows = tmp_path / "watch.txt"
    with rows.open("wb") as output:
        watch = subprocess.Popen(
            [
                str(cluster.bin / "kubectl"),
                "--kubeconfig",
                str(cluster.kubeconfig),
                "get",
                "prun",
                "-n",
                namespace,
                "-w",
                "--no-headers",
            ],
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
    try:
        image = cluster.image("shapetrace-engine")
        engine = {"name": "command", "image": image, "args": ["python3", "-c", PACED]}
        apply_run(profile_run("watched", storage, sizes=range(1, 25), spec={"engine": engine}))
        client = store.admin_client()

        def first_object() -> bool:
            listed = client.list_objects_v2(Bucket=bucket, Prefix="traces/").get("Contents", [])
            return any("/traces/rank-" in item["Key"] for item in listed)

        wait_until("the first trace is in the bucket", first_object, 300)
        progress = (cluster.get("profilerun", "watched", namespace) or {})["status"].get("progress") or {}
        run = wait_finished("watched")
        wait_until("the end was watched too", lambda: "Succeeded" in rows.read_text(), 60, rows.read_text)
    finally:
        watch.terminate()
        watch.wait()
    assert progress.get("captured", 0) < 24, "the last shape was captured before the first object was stored"
    assert run["status"]["progress"]["summary"] == "24/24"
    seen = [line.split() for line in rows.read_text().splitlines()]
    phases = list(dict.fromkeys(row[1] for row in seen if len(row) > 2))
    assert phases[-3:] == ["Capturing", "Finishing", "Succeeded"], phases
    counts = [
        int(row[column].split("/")[0])
        for row in seen
        for column in (2, 3)
        if row[1] == "Capturing"
        and len(row) > column
        and "/" in row[column]
        and row[column].split("/")[1] in ("24", "?")
    ]
    assert counts == sorted(counts)
    assert len(set(counts)) >= 3, seen


def audit_events(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The API server's audit log of one namespace, oldest first, responses only."""
    return [
        event
        for event in cluster.audit_events()
        if event["stage"] == "ResponseComplete" and (event.get("objectRef") or {}).get("namespace") == namespace
    ]


def test_few_writes_to_the_api(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(profile_run("frugal", storage, sizes=(1, 2, 4, 8), tensor=2, variants=VARIANTS))
    run = wait_finished("frugal")
    user = f"system:serviceaccount:{namespace}:st-shapetrace"
    writes = [
        event
        for event in audit_events(cluster, namespace)
        if event["user"]["username"] == user
        and event["verb"] in ("create", "update", "patch", "delete")
        and event["objectRef"]["resource"] in ("profileruns", "jobs")
    ]
    to_run = [event for event in writes if event["objectRef"]["resource"] == "profileruns"]
    jobs = [event for event in writes if event["objectRef"]["resource"] == "jobs"]
    first_job = writes.index(jobs[0])
    assert len(jobs) == 2, "one capture Job and one finish Job"
    assert first_job <= 1, [event["requestURI"] for event in writes[:3]]
    from datetime import datetime

    begin, end = (datetime.fromisoformat(run["status"][key]) for key in ("startTime", "completionTime"))
    seconds = (end - begin).total_seconds()
    print(f"writes to the ProfileRun: {len(to_run)} in {seconds:.0f} s")
    assert len(to_run) <= 8 + seconds / 3
    assert all(event["responseStatus"]["code"] < 300 for event in writes), [event["responseStatus"] for event in writes]
    assert len(json.dumps(run)) < 16_000


def test_a_finished_run_is_left_alone(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(profile_run("quiet", storage, sizes=(1,)))
    wait_finished("quiet")
    job = cluster.list("jobs", namespace, "shapetrace.dev/role=finish")[0]["metadata"]["name"]
    # wait for the last event there is (the finish Job's own completion), then look at two further changes of the store
    wait_until(
        "the finish Job is complete", lambda: (cluster.get("job", job, namespace) or {})["status"].get("succeeded"), 120
    )
    before = (cluster.get("profilerun", "quiet", namespace) or {})["metadata"]["resourceVersion"]
    operator.kill()
    operator.start()
    cluster.kubectl("annotate", "prun", "quiet", "-n", namespace, "looked=at")
    after = cluster.get("profilerun", "quiet", namespace) or {}
    audit = [
        event
        for event in audit_events(cluster, namespace)
        if event["verb"] == "patch" and event["user"]["username"].endswith("st-shapetrace")
    ]
    assert after["metadata"]["resourceVersion"] != before
    assert after["metadata"]["annotations"]["looked"] == "at"
    late = [event for event in audit if event["objectRef"].get("subresource") == "status"]
    writes_before = len(late)
    operator.kill()
    operator.start()
    again = [
        event
        for event in audit_events(cluster, namespace)
        if event["objectRef"].get("subresource") == "status" and event["user"]["username"].endswith("st-shapetrace")
    ]
    assert len(again) == writes_before, "a restarted operator wrote to a finished run"


def test_the_pods_hold_no_token_and_the_engine_no_credential(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(profile_run("tokens", storage, sizes=(1,)))
    wait_finished("tokens")
    pods = cluster.list("pods", namespace, "shapetrace.dev/run")
    assert {pod["metadata"]["labels"]["shapetrace.dev/role"] for pod in pods} == {"capture", "finish"}
    for pod in pods:
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert not [
            volume
            for volume in spec["volumes"]
            if "projected" in volume or "serviceaccount" in json.dumps(volume).lower()
        ]
        for container in spec.get("initContainers", []) + spec["containers"]:
            assert container["resources"]["limits"]["memory"], container["name"]
            names = {item["name"] for item in container.get("env", [])}
            has_credentials = "AWS_SECRET_ACCESS_KEY" in names
            assert has_credentials == (container["name"] in ("preflight", "collector", "finish")), container["name"]
            assert not container.get("envFrom")
        assert pod["status"]["qosClass"] == "Burstable"


def test_the_operator_may_do_what_it_does_and_nothing_else(
    cluster: Cluster, operator: Operator, namespace: str
) -> None:
    user = f"system:serviceaccount:{namespace}:st-shapetrace"

    def may(verb: str, resource: str, *more: str) -> bool:
        done = cluster.kubectl("auth", "can-i", verb, resource, "-n", namespace, "--as", user, *more, check=False)
        return done.stdout.strip() == "yes"

    wanted = {
        "profileruns.shapetrace.dev": {"get", "list", "watch", "delete"},
        "jobs.batch": {"list", "watch", "create", "delete"},
        "pods": {"list", "watch"},
        "events": {"list"},
        "secrets": set(),
        "configmaps": set(),
        "serviceaccounts": set(),
        "nodes": set(),
        "namespaces": set(),
        "customresourcedefinitions.apiextensions.k8s.io": set(),
    }
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    for resource, expected in wanted.items():
        assert {verb for verb in verbs if may(verb, resource)} == expected, resource
    assert {verb for verb in verbs if may(verb, "profileruns.shapetrace.dev", "--subresource=status")} == {"patch"}
    for subresource in ("exec", "log", "eviction"):
        assert not [verb for verb in verbs if may(verb, "pods", f"--subresource={subresource}")], subresource


@pytest.mark.parametrize("ranks", [8])
def test_the_object_stays_small(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Apply,
    wait_finished: Finish,
    ranks: int,
) -> None:
    """52 shapes x 8 ranks; eight ranks of the stand-in engine share two cores here."""
    sizes = list(range(1, 53))
    apply_run(
        profile_run(
            "large",
            storage,
            sizes=sizes,
            tensor=ranks,
            args=["--layers", "1", "--hidden", "64", "--heads", "8", "--vocabulary", "64"],
        )
    )
    run = wait_finished("large", 800)
    assert run["status"]["progress"]["summary"] == "416/416", run["status"]
    assert len(json.dumps(run)) < 16_000
