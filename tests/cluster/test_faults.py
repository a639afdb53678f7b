"""What is captured is delivered, whatever dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import localcluster
import pytest
import s3 as objectstore
from cluster import Cluster, Operator
from faults import (
    capture_pod,
    container_pid,
    half_way,
    kill_whole_container,
    memory_limit_file,
    rank_pid,
)
from objects import make_secret
from runs import VARIANTS, condition, manifest_of, profile_run
from waiting import wait_until

Apply = Callable[[dict[str, Any]], str]
Finish = Callable[..., dict[str, Any]]
SLOW_ENGINE = ["--layers", "12", "--hidden", "512", "--heads", "8", "--vocabulary", "1024"]
"""About a third of a second a capture on two cores: there is a middle to be hit."""
TOTAL = 48
HALF_WAY = 6


def slow_run(name: str, storage: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return profile_run(
        name, storage, sizes=(1, 2, 4, 8, 12, 16), tensor=2, variants=VARIANTS, args=SLOW_ENGINE, spec=spec
    )


def trace_keys(store: objectstore.Store, bucket: str) -> set[str]:
    pages = store.admin_client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="traces/")
    return {
        item["Key"].split("/attempt-1/")[1]
        for page in pages
        for item in page.get("Contents", [])
        if "/traces/rank-" in item["Key"]
    }


def check_partial(run: dict[str, Any], store: objectstore.Store, bucket: str, at_least: int) -> dict[str, Any]:
    """Failed and Partial; what was captured is delivered and listed, nothing else is."""
    status = run["status"]
    assert (status["phase"], status["verdict"]) == ("Failed", "Partial"), status
    assert condition(run, "Succeeded")["status"] == "False"
    found = manifest_of(store, bucket, run)
    assert at_least <= len(found["traces"]) < TOTAL
    assert {trace["key"] for trace in found["traces"]} == trace_keys(store, bucket)
    assert status["progress"]["captured"] == status["progress"]["uploaded"] == len(found["traces"])
    return found


def test_a_rank_killed_half_way_fails_the_run_and_names_the_rank(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(slow_run("killed", storage))
    with half_way(cluster, namespace, HALF_WAY) as count:
        os.kill(rank_pid(container_pid(cluster, namespace, "engine"), 1), signal.SIGKILL)
    run = wait_finished("killed")
    check_partial(run, store, bucket, count)
    failure = run["status"]["failure"]
    assert (failure["reason"], failure["rank"], failure["container"]) == ("EngineFailed", 1, "engine"), failure


def test_a_rank_killed_for_want_of_memory_is_said_to_be_so(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(slow_run("oom", storage))

    def squeeze() -> bool:
        """Leave half a megabyte above what is used: the next allocation meets the limit, and the kernel kills."""
        pod = capture_pod(cluster, namespace)
        states = ((pod or {}).get("status") or {}).get("containerStatuses") or []
        if any("terminated" in entry["state"] for entry in states if entry["name"] == "engine"):
            return True
        with suppress(OSError):  # it grew in between, or the container is gone
            limit.write_text(str(int(usage.read_text()) + 512 * 1024))
        return False

    with half_way(cluster, namespace, HALF_WAY) as count:
        limit, usage = memory_limit_file(container_pid(cluster, namespace, "engine"))
        squeeze()
    wait_until("the kernel killed a rank", squeeze, 300)
    run = wait_finished("oom")
    check_partial(run, store, bucket, count)
    assert run["status"]["failure"]["reason"] in ("EngineFailed", "OutOfMemory"), run["status"]["failure"]


def test_the_whole_engine_container_killed_loses_nothing_that_was_captured(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(slow_run("gone", storage))
    with half_way(cluster, namespace, HALF_WAY) as count:
        kill_whole_container(container_pid(cluster, namespace, "engine"))
    run = wait_finished("gone")
    check_partial(run, store, bucket, count)


def test_a_killed_collector_goes_on_from_the_spool(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(slow_run("collector", storage))
    with half_way(cluster, namespace, HALF_WAY):
        os.kill(container_pid(cluster, namespace, "collector"), signal.SIGKILL)
    run = wait_finished("collector")
    assert (run["status"]["phase"], run["status"]["verdict"]) == ("Succeeded", "Complete"), run["status"]
    assert {trace["key"] for trace in manifest_of(store, bucket, run)["traces"]} == trace_keys(store, bucket)
    assert run["status"]["progress"]["summary"] == f"{TOTAL}/{TOTAL}"


def test_a_store_that_is_away_for_twenty_seconds_loses_nothing(
    cluster: Cluster, operator: Operator, namespace: str, apply_run: Apply, wait_finished: Finish, tmp_path: Path
) -> None:
    own = objectstore.start(tmp_path / "s3", port=18500, ip="10.244.0.1")
    try:
        own.create_bucket("away")
        make_secret(cluster, namespace, *own.limited_identity("away"))
        storage = {
            "bucket": "away",
            "prefix": "traces",
            "endpoint": own.endpoint,
            "region": "us-east-1",
            "pathStyle": True,
            "credentialsSecretRef": {"name": "shapetrace-s3"},
        }
        apply_run(slow_run("away", storage))
        with half_way(cluster, namespace, HALF_WAY):
            own.pause()
        timer = threading.Timer(20, own.resume)
        timer.start()
        try:
            run = wait_finished("away")
        finally:
            timer.join()
        assert (run["status"]["phase"], run["status"]["verdict"]) == ("Succeeded", "Complete"), run["status"]
        assert run["status"]["progress"]["summary"] == f"{TOTAL}/{TOTAL}"
        assert {trace["key"] for trace in manifest_of(own, "away", run)["traces"]} == trace_keys(own, "away")
    finally:
        own.stop()


def test_a_deleted_pod_keeps_what_it_captured(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(slow_run("deleted", storage))
    with half_way(cluster, namespace, HALF_WAY) as count:
        pod = capture_pod(cluster, namespace)
        assert pod is not None
        cluster.kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=false")
    run = wait_finished("deleted")
    check_partial(run, store, bucket, count)
    assert len(cluster.list("jobs", namespace, "shapetrace.dev/role=capture")) == 1


def test_a_deleted_run_is_gone_at_once_and_takes_its_children_along(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
) -> None:
    apply_run(slow_run("unwanted", storage))
    with half_way(cluster, namespace, HALF_WAY):
        cluster.kubectl("delete", "prun", "unwanted", "-n", namespace, "--timeout=15s")
    wait_until("no Job and no pod is left", lambda: not cluster.list("jobs,pods", namespace, "shapetrace.dev/run"), 120)
    assert trace_keys(store, bucket), "what was stored stays"


def test_a_finish_whose_pod_vanished_before_it_was_read_is_run_again(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    # the capture's pod; there is none for the finish as long as the quota holds
    cluster.kubectl("create", "quota", "one", "-n", namespace, "--hard=count/pods=1")
    apply_run(profile_run("twice", storage, sizes=(1, 2)))
    finish = wait_until(
        "the finish Job is there", lambda: cluster.list("jobs", namespace, "shapetrace.dev/role=finish"), 300
    )[0]
    operator.kill()
    cluster.kubectl("delete", "quota", "one", "-n", namespace)
    name = finish["metadata"]["name"]
    wait_until(
        "the finish is over", lambda: (cluster.get("job", name, namespace) or {})["status"].get("succeeded"), 300
    )
    before = store.admin_client().list_objects_v2(Bucket=bucket, Prefix="traces/")["Contents"]
    stored = {item["Key"]: item["ETag"] for item in before if item["Key"].endswith("manifest.json")}
    assert len(stored) == 1
    for pod in cluster.list("pods", namespace, f"batch.kubernetes.io/job-name={name}"):
        cluster.kubectl(
            "delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=true", "--grace-period=0", "--force"
        )
    operator.start()
    run = wait_finished("twice")
    assert (run["status"]["phase"], run["status"]["verdict"]) == ("Succeeded", "Complete"), run["status"]
    after = store.admin_client().list_objects_v2(Bucket=bucket, Prefix="traces/")["Contents"]
    assert {item["Key"]: item["ETag"] for item in after if item["Key"].endswith("manifest.json")} == stored
    assert len(cluster.list("jobs", namespace, "shapetrace.dev/role=finish")) == 2


@pytest.mark.disruptive
def test_an_api_server_away_for_a_while_changes_nothing(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(slow_run("restart", storage))
    with half_way(cluster, namespace, HALF_WAY):
        pass
    localcluster.run("restart", "apiserver", timeout_seconds=400)
    run = wait_finished("restart", 500)  # a controller that lost its lease takes a while to come back
    assert (run["status"]["phase"], run["status"]["verdict"]) == ("Succeeded", "Complete"), run["status"]
    assert len(cluster.list("jobs", namespace, "shapetrace.dev/run")) == 2
