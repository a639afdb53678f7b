"""When an attempt is over, why it failed, and whether there is something to finish."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from shapetrace_operator.observe import Container, State


def preflight_failed(make: Any, code: int, reason: str) -> Any:
    pod = make.capture_pod()
    failed = Container(
        "preflight", State.TERMINATED, exit_code=code, message=make.message(reason), started=make.at(3),
        finished=make.at(5),
    )  # fmt: skip
    return replace(pod, phase="Failed", containers={"preflight": failed, "engine": Container("engine")})


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (40, "StorageUnreachable"),
        (41, "StorageDenied"),
        (42, "ConditionalWritesIgnored"),
        (44, "BadConfiguration"),
    ],
)
def test_a_run_that_cannot_store_ends_without_a_finish(stage: Any, make: Any, code: int, reason: str) -> None:
    run = stage().started()
    run.pods = [preflight_failed(make, code, reason)]
    plan = run.step(6)
    assert plan.create is None
    assert run.status["phase"] == "Failed"
    assert run.status["failure"]["reason"] == reason
    assert run.status["failure"]["container"] == "preflight"
    assert run.condition("StorageReady") == ("False", reason)
    assert run.condition("Succeeded") == ("False", reason)
    assert "verdict" not in run.status
    assert [entry["state"] for entry in run.status["ranks"]] == ["Lost", "Lost"]


def test_a_claim_of_another_pod_is_finished_for_what_that_pod_stored(stage: Any, make: Any) -> None:
    run = stage().started()
    run.pods = [preflight_failed(make, 43, "AttemptTaken")]
    assert run.step(6).create["metadata"]["name"].endswith("-f1")
    assert run.status["failure"]["reason"] == "AttemptTaken"


def test_a_preflight_that_was_killed_leaves_it_to_the_finish(stage: Any, make: Any) -> None:
    run = stage().started()
    pod = preflight_failed(make, 137, "")
    killed = replace(pod.containers["preflight"], message="", reason="OOMKilled")
    run.pods = [replace(pod, containers={**pod.containers, "preflight": killed})]
    run.step(6)
    assert run.status["failure"]["reason"] == "OutOfMemory"
    run.finish_answers(make.message("NothingToFinish"), code=61)
    run.step(20)
    assert run.status["phase"] == "Failed"
    assert run.status["failure"]["reason"] == "OutOfMemory"


def test_an_engine_that_failed_is_finished_once_its_collector_is_done(stage: Any, make: Any) -> None:
    run = stage().capturing()
    text = make.message("EngineFailed", rank=1, exitCode=3, drained=False)
    run.pods = [make.ended_pod(run.pods[0], 30, 50, text)]
    plan = run.step(31)
    assert plan.create is None
    assert run.status["phase"] == "Finishing"
    assert run.status["failure"] == {
        "rank": 1, "container": "engine", "exitCode": 3, "reason": "EngineFailed", "message": "said EngineFailed",
    }  # fmt: skip
    assert plan.wake_seconds == pytest.approx(60 + 15 - 1)
    ended = Container("collector", State.TERMINATED, exit_code=0)
    pod = run.pods[0]
    run.pods = [replace(pod, containers={**pod.containers, "collector": ended})]
    assert run.step(33).create["metadata"]["name"].endswith("-f1")


def test_the_finish_is_told_the_image_that_ran(stage: Any, make: Any) -> None:
    run = stage().capturing()
    pod = make.ended_pod(run.pods[0], 30, 0, make.message("Done", drained=True))
    engine = replace(pod.containers["engine"], image_id="docker.io/engine@sha256:" + "a" * 64)
    run.pods = [replace(pod, containers={**pod.containers, "engine": engine})]
    (container,) = run.step(31).create["spec"]["template"]["spec"]["containers"]
    (value,) = [json.loads(item["value"]) for item in container["env"] if item["name"] == "SHAPETRACE_IMAGE"]
    assert value == {"v": 1, "reference": "engine:1", "id": "docker.io/engine@sha256:" + "a" * 64}


def test_a_collector_that_never_ends_is_given_up_after_the_grace(stage: Any, make: Any) -> None:
    run = stage(disruptionGraceSeconds=20).capturing()
    run.pods = [make.ended_pod(run.pods[0], 30, 50, make.message("EngineFailed"))]
    assert run.step(64).create is None
    assert run.step(65).create is not None


def test_an_engine_container_killed_for_memory_says_what_to_raise(stage: Any, make: Any) -> None:
    run = stage().capturing()
    run.pods = [make.ended_pod(run.pods[0], 30, 137, "", reason="OOMKilled")]
    run.step(31)
    assert run.status["failure"]["reason"] == "OutOfMemory"
    assert "spec.pod.resources" in run.status["failure"]["message"]


def test_a_pod_that_vanished_is_finished(stage: Any) -> None:
    run = stage().capturing()
    run.pods = [replace(run.pods[0], gone=True)]
    plan = run.step(30)
    assert plan.create["metadata"]["name"].endswith("-f1")
    assert run.status["failure"]["reason"] == "PodLost"


def test_an_eviction_is_named(stage: Any, make: Any) -> None:
    run = stage().capturing()
    pod = replace(run.pods[0], disruption="EvictionByEvictionAPI: evicting", phase="Failed")
    run.pods = [make.ended_pod(pod, 30, 143, make.message("Stopped"))]
    run.step(31)
    assert run.status["failure"]["reason"] == "Stopped"
    assert "EvictionByEvictionAPI" in run.status["failure"]["message"]


def test_the_true_cause_from_the_manifest_replaces_a_lost_pod(stage: Any, make: Any) -> None:
    run = stage().capturing()
    run.pods = [replace(run.pods[0], gone=True)]
    run.step(30)
    cause = {"reason": "EngineFailed", "message": "rank 1 was killed", "rank": 1, "exitCode": None, "signal": 9}
    run.finish_answers(make.verdict_message("Partial", failure=cause))
    run.step(60)
    assert run.status["failure"] == {
        "rank": 1, "exitCode": -9, "reason": "EngineFailed", "message": "rank 1 was killed",
    }  # fmt: skip


def test_the_first_cause_is_kept(stage: Any, make: Any) -> None:
    run = stage(activeDeadlineSeconds=20).capturing()
    run.step(31)
    assert run.status["failure"]["reason"] == "DeadlineExceeded"
    run.pods = [make.ended_pod(run.pods[0], 33, 143, make.message("Stopped", drained=True))]
    run.step(34)
    cause = {"reason": "Stopped", "message": "stopped by SIGTERM"}
    run.finish_answers(make.verdict_message("Partial", failure=cause))
    run.step(60)
    assert run.status["failure"]["reason"] == "DeadlineExceeded"


def test_a_lost_node_is_ended_by_the_clock_and_its_job_deleted(stage: Any, make: Any) -> None:
    run = stage().capturing()
    # the request to delete came at 100, the grace ends at 160, the kubelet is silent
    run.pods = [replace(run.pods[0], deletion=make.at(160))]
    waiting = run.step(120)
    assert waiting.create is None
    assert waiting.wake_seconds == pytest.approx(160 + 15 - 120)
    plan = run.step(175)
    assert [item.role for item in plan.delete] == ["capture"]
    assert plan.create["metadata"]["name"].endswith("-f1")
    assert run.status["failure"]["reason"] == "PodLost"
    assert "node-1" in run.status["failure"]["message"]


def test_failure_target_starts_the_clock_too(stage: Any, make: Any) -> None:
    run = stage(disruptionGraceSeconds=10).capturing()
    run.jobs = [replace(run.jobs[0], failed="DeadlineExceeded: too long", failed_since=make.at(100))]
    assert run.step(110).create is None
    assert run.step(125).create is not None


def test_a_job_that_vanished_is_an_ended_attempt_never_made_again(stage: Any, make: Any) -> None:
    run = stage().started()
    run.jobs = []
    plan = run.step(5)
    assert plan.create["metadata"]["name"] == "demo-0a1b2-a1-f1"
    run.finish_answers(make.message("NothingToFinish"), code=61)
    run.step(20)
    assert (run.status["phase"], run.status["failure"]["reason"]) == ("Failed", "PodLost")
    assert run.step(30).create is None


def test_a_failed_job_whose_pod_nobody_saw_is_finished(stage: Any) -> None:
    run = stage().started()
    run.jobs = [replace(run.jobs[0], failed="BackoffLimitExceeded: once")]
    assert run.step(5).create["metadata"]["name"].endswith("-f1")


def test_the_finish_is_made_again_where_no_answer_can_be_read(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    names = [run.step(40).create["metadata"]["name"]]
    for seconds in (50, 60):
        run.jobs[-1] = replace(run.jobs[-1], complete=True)
        names.append(run.step(seconds).create["metadata"]["name"])
    assert [name.rpartition("-")[2] for name in names] == ["f1", "f2", "f3"]
    run.jobs[-1] = replace(run.jobs[-1], failed="BackoffLimitExceeded: thrice")
    plan = run.step(70)
    assert plan.create is None
    assert run.status["phase"] == "Failed"
    assert run.condition("Succeeded") == ("False", "FinishFailed")
    assert run.condition("Finished")[0] == "True"
    assert "verdict" not in run.status


def test_a_finish_under_way_is_waited_for(stage: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    assert run.step(41).create is None


def test_an_answer_is_taken_whatever_became_of_the_finish_job(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message())
    run.jobs = [replace(run.jobs[-1], failed="DeadlineExceeded: late")]
    run.step(60)
    assert run.status["phase"] == "Succeeded"


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", '{"verdict":"Complete"}', '{"verdict":"Fine","uri":"","sha256":""}']
)
def test_a_message_that_is_none_is_no_answer(stage: Any, text: str) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(text)
    run.jobs[-1] = replace(run.jobs[-1], complete=True)
    assert run.step(60).create["metadata"]["name"].endswith("-f2")


def test_a_finish_of_many_ranks_names_only_those_that_are_not_complete(stage: Any, make: Any) -> None:
    run = stage(engine={"name": "command", "image": "x", "args": ["x"]}, parallelism={"tensor": 64})
    run.step(0)
    run.capturing().finished_engine(40)
    run.step(40)
    text = make.verdict_message("Partial", ranks=[[5, 4, 3, 3, 1, 10, "Partial"]], rest=63)
    run.finish_answers(text)
    run.step(60)
    states = {entry["rank"]: entry["state"] for entry in run.status["ranks"]}
    assert states.pop(5) == "Failed"
    assert set(states.values()) == {"Done"}
    assert len(states) == 63


def test_a_finish_that_cannot_start_says_why(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    finish = run.jobs[-1]
    waiting = Container("finish", reason="CreateContainerConfigError", message='secret "gone" not found')
    pod = make.finish_pod(finish, "")
    run.pods.append(replace(pod, phase="Pending", containers={"finish": waiting}))
    run.step(50)
    assert run.condition("Succeeded") == ("Unknown", "ContainerConfigError")
    assert 'secret "gone" not found' in run.message("Succeeded")


def test_a_pod_deleted_before_its_first_container_started_is_lost(stage: Any, make: Any) -> None:
    run = stage().started()
    pod = make.capture_pod()
    unknown = {
        name: Container(name, State.TERMINATED, reason="ContainerStatusUnknown", exit_code=137, message="not located")
        for name in pod.containers
    }
    run.pods = [replace(pod, gone=True, containers=unknown)]
    run.step(5)
    assert run.status["failure"]["reason"] == "PodLost"
    assert "captureTime" not in run.status


def test_an_image_without_python_is_told_in_the_words_of_the_kubelet(stage: Any, make: Any) -> None:
    run = stage().started()
    pod = make.capture_pod()
    engine = Container(
        "engine", State.TERMINATED, reason="StartError", exit_code=128, message='exec: "python3": not found',
        finished=make.at(20),
    )  # fmt: skip
    run.pods = [replace(pod, containers={**pod.containers, "engine": engine})]
    run.step(21)
    assert run.status["failure"]["reason"] == "EngineFailed"
    assert 'exec: "python3": not found' in run.status["failure"]["message"]


def test_that_something_is_missing_does_not_hide_why(stage: Any, make: Any) -> None:
    run = stage().capturing()
    run.pods = [replace(run.pods[0], gone=True)]
    run.step(20)
    missing = {"reason": "Partial", "message": "rank 0 left no part and no trace"}
    run.finish_answers(make.verdict_message("Partial", failure=missing))
    run.step(61)
    assert run.status["failure"]["reason"] == "PodLost"


def test_a_pod_deleted_before_its_engine_started_was_deleted(stage: Any, make: Any) -> None:
    """Its node answers: the kubelet has ended the pod, whose object is still there."""
    run = stage().started()
    waiting = {"preflight": make.capture_pod().containers["preflight"], "engine": Container("engine")}
    run.pods = [make.capture_pod(phase="Failed", deletion=make.at(60), containers=waiting)]
    run.step(8)
    assert "it was deleted" in run.status["failure"]["message"]
