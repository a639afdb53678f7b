"""What the watches deliver, as Kubernetes writes it, and what decisions then see."""

from __future__ import annotations

from typing import Any

from shapetrace_contract.progress import RankProgress
from shapetrace_operator.cache import MAX_GONE_PODS, Cache, Key, Reachability
from shapetrace_operator.observe import MAX_PROGRESS_FAILURES, State, observe

RUN_UID = "run-1"
JOB = "demo-run-1-a1"
KEY = Key("lab", "demo", RUN_UID)


def run(version: int = 1, **fields: Any) -> dict[str, Any]:
    metadata = {"name": "demo", "namespace": "lab", "uid": RUN_UID, "resourceVersion": str(version)}
    return {"metadata": {**metadata, "managedFields": [{"big": "x"}]}, "spec": {}, "status": {}, **fields}


def child(
    uid: str, version: int = 1, *, kind: str = "ProfileRun", owner: str = RUN_UID, **fields: Any
) -> dict[str, Any]:
    metadata = {
        "name": uid,
        "namespace": "lab",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"shapetrace.dev/run": RUN_UID, "shapetrace.dev/attempt": "1", "shapetrace.dev/role": "capture"},
        "ownerReferences": [{"kind": kind, "name": owner, "uid": owner, "controller": True}],
    }
    return {"metadata": metadata, "spec": {}, "status": {}, **fields}


def pod(uid: str = "pod-1", version: int = 1, **status: Any) -> dict[str, Any]:
    made = child(uid, version, kind="Job", owner=JOB, status=status)
    made["spec"] = {"nodeName": "node-1", "containers": [{"name": "engine"}]}
    return made


def ended(name: str, code: int, message: str = "") -> dict[str, Any]:
    moment = "2026-01-01T00:00:09Z"
    state = {"exitCode": code, "message": message, "reason": "Error", "startedAt": moment, "finishedAt": moment}
    return {"name": name, "image": "i", "state": {"terminated": state}}


def filled() -> Cache:
    cache = Cache()
    cache.put_run(run())
    cache.put_job(child(JOB))
    return cache


def test_children_bring_the_key_of_their_run() -> None:
    cache = Cache()
    assert cache.put_job(child(JOB)) is None, "the run is not known yet"
    assert cache.put_run(run()) == KEY
    assert cache.put_pod(pod()) == KEY
    assert cache.remove_pod(pod()) == KEY


def test_a_child_of_another_namespace_belongs_to_no_run() -> None:
    cache = filled()
    forged = child("demo-run-1-a2")
    forged["metadata"]["namespace"] = "elsewhere"
    assert cache.put_job(forged) is None
    assert [job.name for job in observe(cache.runs[RUN_UID], cache).jobs] == [JOB]


def test_a_job_that_only_carries_the_label_is_not_ours() -> None:
    cache = filled()
    cache.put_job(child("demo-run-1-a2", owner="someone"))
    assert [job.name for job in observe(cache.runs[RUN_UID], cache).jobs] == [JOB]


def test_what_arrives_late_does_not_undo_what_is_newer() -> None:
    cache = filled()
    cache.put_pod(pod(version=10, phase="Running"))
    cache.put_pod(pod(version=9, phase="Pending"))
    cache.put_run(run(version=3, status={"phase": "Capturing"}))
    cache.put_run(run(version=2))
    assert cache.pods["pod-1"]["status"]["phase"] == "Running"
    assert cache.runs[RUN_UID]["status"]["phase"] == "Capturing"


def test_objects_are_cut_down() -> None:
    cache = filled()
    cache.put_pod(pod(phase="Running"))
    assert "managedFields" not in cache.runs[RUN_UID]["metadata"]
    assert "containers" not in cache.pods["pod-1"]["spec"]


def test_the_last_words_of_a_pod_outlive_it() -> None:
    cache = filled()
    cache.put_pod(pod(version=2, phase="Running", containerStatuses=[ended("engine", 50, "words")]))
    cache.remove_pod(pod(version=3, phase="Running"))  # the final event may say less
    (seen,) = observe(cache.runs[RUN_UID], cache).pods
    assert seen.gone
    assert seen.container("engine").ended
    assert (seen.container("engine").exit_code, seen.container("engine").message) == (50, "words")


def test_the_image_that_the_kubelet_resolved_is_kept_to_the_end() -> None:
    cache = filled()
    status = {**ended("engine", 0), "imageID": "docker.io/engine@sha256:abc"}
    cache.put_pod(pod(version=2, phase="Running", containerStatuses=[status]))
    cache.remove_pod(pod(version=3, phase="Running", containerStatuses=[{**status, "state": {}}]))
    (seen,) = observe(cache.runs[RUN_UID], cache).pods
    assert (seen.container("engine").ended, seen.container("engine").image_id) == (True, "docker.io/engine@sha256:abc")


def test_a_sidecar_that_runs_again_is_running() -> None:
    cache = filled()
    restarted = {"name": "collector", "state": {"running": {}}, "lastState": ended("collector", 137)["state"]}
    cache.put_pod(pod(phase="Running", initContainerStatuses=[restarted]))
    (seen,) = observe(cache.runs[RUN_UID], cache).pods
    assert seen.container("collector").state is State.RUNNING


def test_a_pod_that_is_gone_does_not_come_back() -> None:
    cache = filled()
    cache.put_pod(pod(version=2))
    cache.remove_pod(pod(version=3))
    cache.put_pod(pod(version=2))
    assert "pod-1" not in cache.pods


def test_pods_that_are_gone_are_bounded_and_forgotten_with_the_end() -> None:
    cache = filled()
    for index in range(MAX_GONE_PODS + 5):
        name = f"pod-{index}"
        cache.put_pod(pod(name, containerStatuses=[ended("engine", 0)]))
        cache.progress[name] = [RankProgress(0)]
        cache.remove_pod(pod(name, version=2, containerStatuses=[ended("engine", 0)]))
    assert len(cache.gone_pods) == MAX_GONE_PODS
    assert len(cache.terminations) == MAX_GONE_PODS
    cache.forget_details(RUN_UID)
    assert (cache.gone_pods, cache.terminations, cache.progress) == ({}, {}, {})


def test_a_deleted_run_leaves_nothing_once_its_children_are_gone() -> None:
    cache = filled()
    cache.put_pod(pod(containerStatuses=[ended("engine", 0)]))
    cache.reachability["pod-1"] = Reachability()
    cache.remove_run(RUN_UID)
    cache.remove_pod(pod(version=2))
    cache.remove_job(child(JOB, version=2))
    assert cache == Cache()


def test_a_job_about_to_fail_counts_as_failed() -> None:
    cache = filled()
    moment = "2026-01-01T00:01:00Z"
    conditions = [
        {"type": "FailureTarget", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": moment}
    ]
    cache.put_job(child(JOB, version=2, status={"conditions": conditions, "startTime": moment}))
    (job,) = observe(cache.runs[RUN_UID], cache).jobs
    assert job.over
    assert job.failed == "R: m"
    assert job.failed_since == job.started


def test_a_pod_without_a_node_says_what_the_scheduler_says() -> None:
    cache = filled()
    waiting = pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}])
    waiting["spec"] = {}
    cache.put_pod(waiting)
    (seen,) = observe(cache.runs[RUN_UID], cache).pods
    assert (seen.scheduled, seen.unschedulable) == (False, "no")


def test_progress_names_the_pod_that_gave_it() -> None:
    cache = filled()
    cache.put_pod(pod(phase="Running"))
    cache.progress["pod-1"] = [RankProgress(1, "Capturing", pod="forged")]
    entry = observe(cache.runs[RUN_UID], cache).progress[1]
    assert (entry.pod, entry.node) == ("pod-1", "node-1")


def test_a_collector_that_once_answered_is_reachable() -> None:
    cache = filled()
    cache.put_pod(pod(phase="Running"))
    reach = cache.reachability["pod-1"] = Reachability(failures=MAX_PROGRESS_FAILURES)
    assert observe(cache.runs[RUN_UID], cache).unreachable
    reach.answered = True
    assert not observe(cache.runs[RUN_UID], cache).unreachable
