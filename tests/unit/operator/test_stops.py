"""What ends an attempt from outside: blockers, deadlines, suspension; and what comes after: retries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shapetrace_operator.observe import Container, Event, Refusal

QUOTA = 'Error creating: pods "demo-a1-x7k2p" is forbidden: exceeded quota: team, requested: limits.cpu=8, limited: 4'
PSA = (
    'Error creating: pods "demo-a1-x7k2p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
)


def pending(make: Any, **containers: Container) -> Any:
    return replace(make.capture_pod(), phase="Pending", containers=containers)


def waiting(name: str, reason: str, message: str = "") -> Container:
    return Container(name, reason=reason, message=message, image="example/image:1")


@pytest.mark.parametrize(
    ("container", "condition", "reason", "fix", "grace_seconds"),
    [
        (waiting("engine", "ErrImageNeverPull"), "Captured", "ImagePullFailed", "spec.engine.image", 20),
        (waiting("engine", "InvalidImageName"), "Captured", "ImagePullFailed", "spec.engine.image", 20),
        (waiting("engine", "ImagePullBackOff", "no such host"), "Captured", "ImagePullFailed", "imagePullSecrets", 300),
        (waiting("preflight", "ErrImagePull"), "StorageReady", "ImagePullFailed", "shapetrace installation", 300),
        (
            waiting("preflight", "CreateContainerConfigError", 'secret "s3" not found'),
            "StorageReady", "ContainerConfigError", "credentialsSecretRef", 30,
        ),
        (
            waiting("engine", "CreateContainerConfigError", 'secret "hub" not found'),
            "Captured", "ContainerConfigError", "spec.engine.env", 30,
        ),
    ],
)  # fmt: skip
def test_a_container_that_cannot_start_is_shown_at_once_and_ends_the_attempt_soon(
    stage: Any, make: Any, container: Container, condition: str, reason: str, fix: str, grace_seconds: int
) -> None:
    run = stage().started()
    run.pods = [pending(make, **{container.name: container})]
    shown = run.step(5)
    assert run.condition(condition) == ("False", reason)
    assert fix in run.message(condition)
    assert "failure" not in run.status
    assert run.status["reason"] == reason
    assert shown.wake_seconds == pytest.approx(grace_seconds)
    assert not run.step(5 + grace_seconds - 1).delete
    plan = run.step(5 + grace_seconds)
    assert [item.role for item in plan.delete] == ["capture"]
    assert run.status["failure"]["reason"] == reason


def test_the_reason_is_in_the_status_before_the_job_is_deleted_also_after_a_crash(stage: Any, make: Any) -> None:
    run = stage().started()
    run.pods = [pending(make, engine=waiting("engine", "ErrImageNeverPull"))]
    run.step(5)
    job = run.jobs[0]
    run.step(25)
    run.jobs = [job]  # the operator was killed between the write and the deletion
    again = run.decide(40)
    assert [item.uid for item in again.delete] == [job.uid]
    assert again.status.to_dict() == run.status


def test_a_blocker_that_heals_is_taken_back(stage: Any, make: Any) -> None:
    run = stage().started()
    run.pods = [pending(make, preflight=waiting("preflight", "ErrImagePull"))]
    run.step(5)
    run.pods = [pending(make, preflight=waiting("preflight", "ContainerCreating"))]
    run.step(10)
    assert run.condition("StorageReady") == ("Unknown", "Waiting")
    assert "reason" not in run.status
    run.pods = [make.capture_pod()]
    run.step(400)
    assert run.status["phase"] == "Capturing"


def test_a_pull_that_fails_and_waits_in_turn_keeps_its_text(stage: Any, make: Any) -> None:
    run = stage().started()
    run.pods = [pending(make, engine=waiting("engine", "ErrImagePull", "not found"))]
    run.step(5)
    before = run.status
    text = 'Back-off pulling image "example/image:1": ErrImagePull: not found'
    run.pods = [pending(make, engine=waiting("engine", "ImagePullBackOff", text))]
    run.step(15)
    assert run.status == before


def test_a_volume_that_is_not_there_is_looked_for_among_the_claims_of_the_spec(stage: Any, make: Any) -> None:
    run = stage().started()
    pod = replace(make.capture_pod(), scheduled=False, node=None, phase="Pending", containers={})
    text = '0/1 nodes are available: persistentvolumeclaim "models" not found. not found'
    run.pods = [replace(pod, unschedulable=text)]
    run.step(5)
    assert "look at the claims in spec.models and spec.engine.cache" in run.message("Scheduled")
    assert "spec.accelerator" not in run.message("Scheduled")


def test_no_node_waits_until_the_pending_timeout(stage: Any, make: Any) -> None:
    run = stage(pendingTimeoutSeconds=600).started()
    pod = replace(make.capture_pod(), scheduled=False, node=None, phase="Pending", containers={})
    run.pods = [replace(pod, unschedulable="0/1 nodes are available: 1 Insufficient amd.com/gpu.")]
    run.step(5)
    assert (run.condition("Scheduled"), run.status["reason"]) == (("False", "Unschedulable"), "Unschedulable")
    assert "spec.accelerator" in run.message("Scheduled")
    run.step(599)
    assert "failure" not in run.status
    plan = run.step(600)
    assert run.status["failure"]["reason"] == "PendingTimeout"
    assert "Insufficient amd.com/gpu" in run.status["failure"]["message"]
    assert plan.delete
    run.pods = []
    end = run.step(601)
    assert end.create is None, "nothing was ever claimed, so there is nothing to finish"
    assert run.status["phase"] == "Failed"


@pytest.mark.parametrize(("text", "reason", "ends"), [(QUOTA, "QuotaExceeded", False), (PSA, "AdmissionRefused", True)])
def test_refused_pods_are_found_in_the_events_of_the_job(stage: Any, text: str, reason: str, ends: bool) -> None:
    run = stage().started()
    run.more["events"] = [Event("FailedCreate", text)]
    run.step(5)
    assert run.condition("Scheduled") == ("False", reason)
    first = run.message("Scheduled")
    run.more["events"] = [Event("FailedCreate", text.replace("x7k2p", "zzzzz"))]
    run.step(10)
    assert run.message("Scheduled") == first
    run.step(60)
    assert ("failure" in run.status) is ends


def test_a_volume_that_is_missing_ends_soon_one_that_is_slow_may_wait(stage: Any, make: Any) -> None:
    outcomes = []
    for text in ('MountVolume.SetUp failed for volume "ca" : configmap "ca" not found', "timed out waiting"):
        run = stage().started()
        run.pods = [pending(make, preflight=waiting("preflight", "PodInitializing"))]
        run.more["events"] = [Event("FailedMount", text)]
        run.step(5)
        assert run.condition("StorageReady") == ("False", "MountFailed")
        run.step(60)
        outcomes.append("failure" in run.status)
    assert outcomes == [True, False]


def test_a_job_that_the_server_refuses_is_tried_again_and_its_number_stays_free(stage: Any) -> None:
    run = stage()
    run.more["refusal"] = Refusal(403, "Forbidden", "exceeded quota: count/jobs.batch")
    plan = run.step(0)
    assert plan.create is None
    assert plan.wake_seconds is not None
    assert "attempt" not in run.status
    assert run.condition("Scheduled") == ("False", "QuotaExceeded")
    run.more = {}
    assert run.step(5).create["metadata"]["name"].endswith("-a1")
    assert run.condition("Scheduled") == ("Unknown", "Waiting")


def test_a_job_that_can_never_be_taken_ends_the_run(stage: Any) -> None:
    run = stage()
    run.more["refusal"] = Refusal(422, "Invalid", "spec.template: bad")
    run.step(0)
    assert (run.status["phase"], run.status["failure"]["reason"]) == ("Failed", "BadConfiguration")


def test_the_active_deadline_stops_the_job_and_keeps_what_was_captured(stage: Any, make: Any) -> None:
    run = stage(activeDeadlineSeconds=100).capturing()
    assert run.step(50).wake_seconds == pytest.approx(60)
    plan = run.step(110)
    assert plan.delete
    assert run.status["failure"]["reason"] == "DeadlineExceeded"
    run.pods = [make.ended_pod(run.pods[0], 115, 143, make.message("Stopped", drained=True))]
    assert run.step(116).create["metadata"]["name"].endswith("-f1")


def test_an_engine_that_has_ended_is_not_late(stage: Any) -> None:
    run = stage(activeDeadlineSeconds=100).capturing().finished_engine(40, drained=False)
    run.step(111)
    assert "failure" not in run.status


# ---- suspension
def test_a_run_that_is_created_suspended_makes_no_job(stage: Any) -> None:
    run = stage(suspend=True)
    assert run.step(0).create is None
    assert (run.status["phase"], run.status["reason"]) == ("Suspended", "Suspended")
    assert run.condition("Finished")[0] == "False"
    run.run["spec"]["suspend"] = False
    assert run.step(50).create["metadata"]["name"].endswith("-a1")
    assert run.status["phase"] == "Pending"
    assert "reason" not in run.status


def suspended_while_capturing(stage: Any, make: Any, **spec: Any) -> Any:
    run = stage(**spec).capturing()
    run.run["spec"]["suspend"] = True
    plan = run.step(20)
    assert [item.role for item in plan.delete] == ["capture"]
    assert run.condition("Succeeded") == ("Unknown", "Suspended")
    run.pods = [make.ended_pod(run.pods[0], 25, 143, make.message("Stopped", drained=True))]
    return run


def test_suspending_stores_and_commits_what_was_captured_then_shows_suspended(stage: Any, make: Any) -> None:
    run = suspended_while_capturing(stage, make)
    assert run.step(26).create["metadata"]["name"] == "demo-0a1b2-a1-f1"
    run.finish_answers(make.verdict_message("Partial"))
    run.step(40)
    assert (run.status["phase"], run.status["verdict"]) == ("Suspended", "Partial")
    assert run.status["manifest"]
    assert "failure" not in run.status
    assert run.condition("Finished")[0] == "False"
    run.run["spec"]["suspend"] = False
    plan = run.step(100)
    assert plan.create["metadata"]["name"] == "demo-0a1b2-a2"
    assert (run.status["attempt"], run.status["phase"]) == (2, "Pending")
    assert "verdict" not in run.status
    assert "manifest" not in run.status


def test_resuming_before_the_stop_is_over_goes_on_with_the_next_attempt(stage: Any, make: Any) -> None:
    run = suspended_while_capturing(stage, make)
    run.run["spec"]["suspend"] = False
    assert run.step(26).create["metadata"]["name"] == "demo-0a1b2-a1-f1"
    run.finish_answers(make.verdict_message("Partial"))
    assert run.step(40).create["metadata"]["name"] == "demo-0a1b2-a2"


def test_a_suspension_that_comes_after_the_capture_lets_the_run_end(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.run["spec"]["suspend"] = True
    run.step(41)
    run.finish_answers(make.verdict_message())
    run.step(60)
    assert run.status["phase"] == "Succeeded"
    assert "reason" not in run.status


def test_suspending_before_a_pod_started_needs_no_finish(stage: Any, make: Any) -> None:
    run = stage().started()
    pod = replace(make.capture_pod(), scheduled=False, node=None, phase="Pending", containers={})
    run.pods = [pod]
    run.run["spec"]["suspend"] = True
    run.step(5)
    run.pods = [replace(pod, gone=True)]
    assert run.step(6).create is None
    assert run.status["phase"] == "Suspended"


def test_a_suspended_run_still_says_what_its_attempt_waited_for(stage: Any, make: Any) -> None:
    run = stage().started()
    passed = make.capture_pod().containers["preflight"]
    blocked = pending(make, preflight=passed, engine=waiting("engine", "ErrImagePull", "no such host"))
    run.pods = [blocked]
    run.step(5)
    run.run["spec"]["suspend"] = True
    run.step(10)
    cause = "ImagePullFailed: the image example/image:1 of container engine cannot be pulled: no such host"
    assert cause in run.message("Succeeded")
    assert run.status["reason"] == "Suspended"
    run.pods = [replace(blocked, gone=True)]
    run.step(12)
    run.finish_answers(make.verdict_message("Partial", failure={"reason": "Partial", "message": "rank 0: no record"}))
    run.step(40)
    assert run.status["phase"] == "Suspended"
    assert run.message("Succeeded").startswith(
        f"suspended by spec.suspend; set it to false to start attempt 2; attempt 1 could not start: {cause}"
    )
    run.run["spec"]["suspend"] = False
    run.step(50)
    assert run.message("Succeeded") == ""


def test_a_run_that_waited_for_nothing_says_only_how_it_goes_on(stage: Any, make: Any) -> None:
    run = suspended_while_capturing(stage, make)
    assert run.message("Succeeded") == "spec.suspend is set: the attempt is stopped, what it has captured is stored"
    run.step(26)
    run.finish_answers(make.verdict_message("Partial"))
    run.step(40)
    assert run.message("Succeeded") == "suspended by spec.suspend; set it to false to start attempt 2"


def test_a_queue_that_takes_the_job_back_is_followed_by_the_next_attempt(stage: Any, make: Any) -> None:
    run = stage().capturing()
    run.jobs = [replace(run.jobs[0], suspended=True)]
    plan = run.step(20)
    assert plan.delete, "the same Job would start a second pod for the same attempt"
    run.pods = [make.ended_pod(run.pods[0], 25, 143, make.message("Stopped", drained=True))]
    run.step(26)
    run.finish_answers(make.verdict_message("Partial"))
    assert run.step(40).create["metadata"]["name"] == "demo-0a1b2-a2"


# ---- retries
def failed(stage: Any, make: Any, reason: str = "EngineFailed", code: int = 50, **spec: Any) -> Any:
    run = stage(**spec).capturing()
    run.pods = [make.ended_pod(run.pods[0], 30, code, make.message(reason, drained=True))]
    run.step(31)
    run.finish_answers(make.verdict_message("Partial"))
    return run


def test_without_retries_the_first_failure_is_the_end(stage: Any, make: Any) -> None:
    run = failed(stage, make)
    assert run.step(60).create is None
    assert (run.status["phase"], run.status["reason"]) == ("Failed", "EngineFailed")


def test_a_retry_is_a_new_attempt_that_starts_once_the_finish_is_over(stage: Any, make: Any) -> None:
    run = failed(stage, make, retries=1)
    plan = run.step(60)
    assert plan.create["metadata"]["name"] == "demo-0a1b2-a2"
    assert plan.create["metadata"]["annotations"]["shapetrace.dev/retries"] == "1"
    assert run.status["attempt"] == 2
    assert "failure" not in run.status
    second = make.ended_pod(
        make.capture_pod(attempt=2, uid="pod-2"), 90, 50, make.message("EngineFailed", drained=True)
    )
    run.pods.append(second)
    assert run.step(91).create["metadata"]["name"] == "demo-0a1b2-a2-f1"
    run.finish_answers(make.verdict_message("Partial"))
    assert run.step(99).create is None
    assert run.status["phase"] == "Failed"


@pytest.mark.parametrize("reason", ["HooksNotApplied", "BadConfiguration"])
def test_what_would_fail_again_is_not_tried_again(stage: Any, make: Any, reason: str) -> None:
    run = failed(stage, make, reason=reason, code=51, retries=3)
    assert run.step(60).create is None
    assert run.status["phase"] == "Failed"


def test_a_disruption_does_not_count(stage: Any, make: Any) -> None:
    run = failed(stage, make, reason="Stopped", code=143, retries=1)
    plan = run.step(60)
    assert plan.create["metadata"]["annotations"]["shapetrace.dev/retries"] == "0"


def test_disruptions_end_some_day(stage: Any, make: Any) -> None:
    run = stage(retries=1).started()
    run.jobs = [make.job(attempt=12, retries=0)]
    run.pods = [make.capture_pod(attempt=12)]
    run.step(5)
    assert run.status["attempt"] == 12
    run.pods = [make.ended_pod(run.pods[0], 30, 143, make.message("Stopped", drained=True))]
    run.step(31)
    run.finish_answers(make.verdict_message("Partial"))
    assert run.step(60).create is None
    assert run.status["phase"] == "Failed"


def test_a_job_that_a_crash_left_behind_is_taken_over(stage: Any, make: Any) -> None:
    run = failed(stage, make, retries=1)
    plan = run.decide(60)
    run.jobs.append(run.job_from(plan.create, 60))  # created, and killed before the status was written
    again = run.step(61)
    assert again.create is None
    assert run.status["attempt"] == 2
    assert run.status["phase"] == "Pending"
    assert "failure" not in run.status
