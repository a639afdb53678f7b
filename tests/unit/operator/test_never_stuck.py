"""Nothing waits for ever, nothing is written over and over, nothing runs on that nobody waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shapetrace_operator.observe import Event, Refusal
from shapetrace_operator.status_patch import merge_patch

QUOTA = Refusal(403, "Forbidden", 'jobs "x" is forbidden: exceeded quota: q, requested: 1')


def failed_once(stage: Any, make: Any, **spec: Any) -> Any:
    """The first attempt is committed and bad; its pod and Jobs are still there."""
    run = stage(retries=1, pendingTimeoutSeconds=30, **spec).capturing().finished_engine(20, 50, "EngineFailed")
    run.pods = [replace(run.pods[0], phase="Failed")]
    run.step(21)
    run.finish_answers(make.verdict_message("Partial"))
    return run


def test_a_retry_that_the_quota_refuses_waits_no_longer_than_the_pending_timeout(stage: Any, make: Any) -> None:
    run = failed_once(stage, make)
    run.more["refusal"] = QUOTA
    run.step(61)
    assert run.condition("Scheduled") == ("False", "QuotaExceeded")
    for seconds in range(66, 120, 5):
        run.step(seconds)
    assert run.status["phase"] == "Failed"
    assert run.condition("Finished")[0] == "True"


def test_a_retry_that_waits_writes_nothing_as_long_as_nothing_changes(stage: Any, make: Any) -> None:
    run = failed_once(stage, make)
    run.more["refusal"] = QUOTA
    run.step(61)
    before = run.status
    run.step(71)
    assert merge_patch(before, run.status) == {}


def test_a_run_that_waited_long_before_it_was_suspended_waits_anew_when_it_goes_on(stage: Any, make: Any) -> None:
    run = stage(pendingTimeoutSeconds=600).started()
    waiting = make.capture_pod(scheduled=False, node=None, phase="Pending", containers={}, unschedulable="no room")
    run.pods = [waiting]
    run.step(10)
    assert run.condition("Scheduled")[0] == "False"
    run.run["spec"]["suspend"] = True
    run.step(500)
    run.pods = [replace(waiting, gone=True)]
    run.step(501)
    assert run.status["phase"] == "Suspended"
    run.run["spec"]["suspend"] = False
    run.more["refusal"] = QUOTA
    run.step(5000)
    run.step(5005)
    assert run.status["phase"] == "Suspended", "refused for five seconds only"
    run.step(5700)
    assert run.status["phase"] == "Failed"


def test_a_run_that_is_being_deleted_stops_what_it_started(stage: Any) -> None:
    """A finalizer of somebody else may keep the run for hours; its devices are free at once."""
    run = stage().capturing()
    run.run["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:20Z"
    assert [job.role for job in run.decide(20).delete] == ["capture"]


def test_a_job_of_an_attempt_that_is_not_the_current_one_is_stopped(stage: Any, make: Any) -> None:
    run = stage().capturing()
    run.run["status"]["attempt"] = 2
    assert run.jobs[0] in run.decide(20).delete


def test_a_failed_attempt_is_not_followed_by_another_while_the_run_is_suspended(stage: Any, make: Any) -> None:
    run = failed_once(stage, make, suspend=False)
    run.run["spec"]["suspend"] = True
    plan = run.step(61)
    assert plan.create is None
    assert run.status["phase"] == "Suspended"
    run.run["spec"]["suspend"] = False
    plan = run.step(70)
    assert plan.create["metadata"]["annotations"]["shapetrace.dev/retries"] == "1", "the failed attempt counts"
    assert run.status["attempt"] == 2


def test_a_finish_that_is_suspended_by_a_queue_says_so(stage: Any) -> None:
    run = stage().capturing().finished_engine(20)
    run.step(21)
    run.jobs[-1] = replace(run.jobs[-1], suspended=True)
    run.step(30)
    assert "suspended" in run.message("Succeeded")


def test_refusals_that_kubernetes_has_combined_read_the_same_every_time(stage: Any) -> None:
    run = stage().started()
    texts = []
    for number, seconds in (("abcde", 10), ("fghij", 20)):
        said = f'(combined from similar events): Error creating: pods "demo-a1-{number}" is forbidden: exceeded quota'
        run.more["events"] = (Event("FailedCreate", said),)
        run.step(seconds)
        texts.append(run.message("Scheduled"))
    assert texts[0] == texts[1]
