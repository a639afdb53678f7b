"""A run from creation to its end, decision by decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from shapetrace_contract.progress import RankProgress
from shapetrace_operator.observe import Container, State


def test_the_job_is_created_before_the_status_names_its_attempt(stage: Any) -> None:
    run = stage()
    plan = run.step(0)
    assert plan.create["metadata"]["name"] == "demo-0a1b2-a1"
    assert run.status["attempt"] == 1
    assert run.status["phase"] == "Pending"
    assert run.condition("Accepted") == ("True", "Accepted")
    assert run.condition("Finished") == ("False", "InProgress")
    assert run.status["progress"]["summary"] == "0/?"
    assert run.status["progress"]["ranksSummary"] == "0/2"
    assert [entry["state"] for entry in run.status["ranks"]] == ["Waiting", "Waiting"]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"name": "org/large"}, "org/large"),
        ({"path": "/in/the/image/large"}, "large"),
        ({"pvc": {"claimName": "weights", "path": "team/large"}}, "large"),
    ],
)
def test_the_first_model_is_named_whatever_its_source(stage: Any, model: dict[str, Any], name: str) -> None:
    run = stage(models=[model, {"role": "draft", "name": "org/small"}])
    run.step(0)
    assert run.status["model"] == name


def test_a_run_without_models_names_none(stage: Any) -> None:
    run = stage()
    run.step(0)
    assert "model" not in run.status


def test_nothing_is_done_twice(stage: Any) -> None:
    run = stage().started()
    again = run.step(1)
    assert again.create is None
    assert again.status.to_dict() == run.status


def test_phases_follow_the_pod(stage: Any, make: Any) -> None:
    run = stage().started()
    running = make.capture_pod()
    waiting = {name: Container(name) for name in running.containers}
    run.pods = [replace(running, scheduled=False, node=None, phase="Pending", containers={})]
    run.step(1)
    assert run.status["phase"] == "Pending"
    run.pods = [replace(running, phase="Pending", containers=waiting)]
    run.step(2)
    assert run.status["phase"] == "Preparing"
    assert run.condition("Scheduled") == ("True", "Scheduled")
    assert run.condition("StorageReady") == ("Unknown", "Waiting")
    run.pods = [replace(running, containers={**waiting, "preflight": running.containers["preflight"]})]
    run.step(6)
    assert run.condition("StorageReady") == ("True", "PreflightPassed")
    run.pods = [running]
    run.step(11)
    assert run.status["phase"] == "Capturing"
    assert run.status["captureTime"] == "2026-01-01T00:00:10Z"


def test_a_phase_never_goes_back(stage: Any) -> None:
    run = stage().capturing()
    pod = run.pods[0]
    run.pods = [replace(pod, containers={**pod.containers, "engine": Container("engine")})]
    run.step(12)
    assert run.status["phase"] == "Capturing"


def test_counters_are_unknown_until_every_rank_has_a_plan(stage: Any) -> None:
    run = stage().capturing()
    run.more["progress"] = {0: RankProgress(0, "Capturing", expected=4, captured=3, uploaded=2, bytes=10)}
    run.step(12)
    assert run.status["progress"]["summary"] == "2/?"
    assert "expected" not in run.status["progress"]
    assert run.condition("Captured") == ("Unknown", "InProgress")
    run.more["progress"] = {
        0: RankProgress(0, "Done", expected=4, captured=4, uploaded=4, bytes=20),
        1: RankProgress(1, "Draining", expected=4, captured=4, uploaded=1, bytes=5),
    }
    run.step(15)
    assert run.status["progress"]["summary"] == "5/8"
    assert run.status["progress"]["ranksSummary"] == "1/2"
    assert run.condition("Captured")[0] == "True"
    assert run.condition("Uploaded")[0] == "Unknown"


def test_an_entry_keeps_its_time_while_nothing_of_it_changes(stage: Any) -> None:
    run = stage().capturing()
    run.more["progress"] = {0: RankProgress(0, "Loading")}
    run.step(12)
    before = run.status["ranks"]
    run.step(20)
    assert run.status["ranks"] == before
    assert before[0]["updatedTime"] == "2026-01-01T00:00:12Z"


def test_a_foreign_answer_cannot_break_the_status(stage: Any) -> None:
    run = stage().capturing()
    wild = RankProgress(0, "Capturing", captured=2**60, lastShape="x" * 5000, message="y" * 5000)
    run.more["progress"] = {0: wild, 7: RankProgress(7, "Done")}
    run.step(12)
    assert [entry["rank"] for entry in run.status["ranks"]] == [0, 1]
    assert run.status["ranks"][0]["captured"] == 0


def test_a_drained_engine_starts_the_finish_at_once(stage: Any) -> None:
    run = stage().capturing().finished_engine(40)
    plan = run.step(40)
    assert plan.create["metadata"]["name"] == "demo-0a1b2-a1-f1"
    assert run.status["phase"] == "Finishing"


def test_complete_ends_succeeded(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message())
    run.step(60)
    assert run.status["phase"] == "Succeeded"
    assert run.status["verdict"] == "Complete"
    assert run.status["manifest"] == {"uri": "s3://traces/manifest.json", "sha256": "a" * 64}
    assert run.status["progress"]["summary"] == "4/4"
    assert run.status["progress"]["ranksSummary"] == "2/2"
    assert run.condition("Captured")[0] == run.condition("Uploaded")[0] == "True"
    assert run.condition("Succeeded") == ("True", "Complete")
    assert run.condition("Finished") == ("True", "Succeeded")
    assert "failure" not in run.status


def test_a_finished_run_is_left_alone(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message())
    run.step(60)
    run.jobs, run.pods, before = [], [], run.status
    plan = run.step(999_999)
    assert (plan.create, plan.delete, plan.delete_run, plan.wake_seconds) == (None, (), False, None)
    assert run.status == before


@pytest.mark.parametrize("verdict", ["Partial", "Mislabelled", "UnderRecorded"])
def test_other_verdicts_end_failed_and_keep_what_was_delivered(stage: Any, make: Any, verdict: str) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(
        make.verdict_message(verdict, ranks=[[0, 2, 2, 1, 1, 9, verdict], [1, 2, 2, 2, 0, 9, "Complete"]])
    )
    run.step(60)
    assert run.status["phase"] == "Failed"
    assert run.status["verdict"] == verdict
    assert run.status["manifest"]["sha256"] == "a" * 64
    assert run.condition("Succeeded") == ("False", verdict)
    assert run.condition("Uploaded")[0] == "False"
    assert [entry["state"] for entry in run.status["ranks"]] == ["Failed", "Done"]


def test_eager_succeeds_and_under_strict_it_does_not(stage: Any, make: Any) -> None:
    eager = make.verdict_message("Eager", ranks=[[0, 0, 0, 0, 0, 0, "Eager"], [1, 0, 0, 0, 0, 0, "Eager"]])
    outcomes = []
    for strict in (False, True):
        capture = {"targets": [{"runner": "decode", "sizes": [1]}], "strict": strict}
        run = stage(capture=capture).capturing().finished_engine(40)
        run.step(40)
        run.finish_answers(eager)
        run.step(60)
        outcomes.append((run.status["phase"], run.condition("Succeeded")[1]))
    assert outcomes == [("Succeeded", "Eager"), ("Failed", "NotProven")]


@pytest.mark.parametrize("eager", ["the CPU platform of vLLM captures no graphs", "", None, 3])
def test_an_eager_run_says_why_it_has_no_graphs(stage: Any, make: Any, eager: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message("Eager", ranks=[[0, 0, 0, 0, 0, 0, "Eager"]] * 2, eager=eager))
    run.step(60)
    assert run.condition("Succeeded") == ("True", "Eager")
    said = f": {eager}" if eager and isinstance(eager, str) else ""
    assert run.message("Succeeded") == f"no graphs were captured{said}"


@pytest.mark.parametrize("ok", [True, False])
def test_whether_kernels_are_still_seen_is_a_condition_and_fails_no_run(stage: Any, make: Any, ok: bool) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message(gpuEvents={"ok": ok, "message": "what was seen"}))
    run.step(60)
    assert run.status["phase"] == "Succeeded"
    assert run.condition("GpuEventsRecorded") == (("True", "KernelsSeen") if ok else ("False", "KernelsMissing"))
    assert run.message("GpuEventsRecorded") == "what was seen"


@pytest.mark.parametrize("note", ["1 place captured graphs that no hook covers, first lazy.py:3 f", "", None, 3])
def test_a_complete_run_says_of_what_it_is_not(stage: Any, make: Any, note: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message(note=note))
    run.step(60)
    assert run.condition("Succeeded") == ("True", "Complete")
    assert run.message("Succeeded") == (note if isinstance(note, str) else "")


def test_not_proven_said_by_the_finish_fails_a_complete_run(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.step(40)
    cause = {"reason": "NotProven", "message": "size of x is only consistent", "rank": 0}
    run.finish_answers(make.verdict_message("Complete", failure=cause))
    run.step(60)
    assert (run.status["phase"], run.status["verdict"]) == ("Failed", "Complete")
    assert run.condition("Succeeded") == ("False", "NotProven")


def test_a_bad_exit_after_everything_was_drained_does_not_change_the_verdict(stage: Any, make: Any) -> None:
    run = stage().capturing().finished_engine(40, code=50, reason="EngineFailed")
    run.step(40)
    assert run.status["failure"]["reason"] == "EngineFailed"
    run.finish_answers(make.verdict_message())
    run.step(60)
    assert run.status["phase"] == "Succeeded"
    assert "failure" not in run.status


def test_the_ttl_deletes_the_run_after_its_end(stage: Any, make: Any) -> None:
    run = stage(ttlSecondsAfterFinished=100).capturing().finished_engine(40)
    run.step(40)
    run.finish_answers(make.verdict_message())
    run.step(60)
    early = run.step(100)
    assert not early.delete_run
    assert early.wake_seconds == pytest.approx(60)
    assert run.step(160).delete_run


def test_a_run_that_is_being_deleted_is_left_to_the_garbage_collector(stage: Any) -> None:
    run = stage().capturing().finished_engine(40)
    run.run["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:41Z"
    plan = run.step(41)
    assert plan.create is None
    assert plan.delete == ()


def test_a_spec_that_cannot_be_accepted_ends_at_once_and_names_the_field(stage: Any) -> None:
    run = stage(parallelism={"tensor": 3})
    plan = run.step(0)
    assert plan.create is None
    assert run.status["phase"] == "Failed"
    assert run.condition("Accepted") == ("False", "BadConfiguration")
    assert "spec.parallelism.tensor" in run.message("Accepted")
    assert run.condition("Finished")[0] == "True"


def test_a_collector_that_cannot_be_reached_is_said_so(stage: Any) -> None:
    run = stage().capturing()
    run.more["unreachable"] = True
    run.step(20)
    assert run.condition("Captured") == ("Unknown", "ProgressUnreachable")


def test_a_queue_that_holds_the_job_back_is_shown_and_costs_no_pending_time(stage: Any, make: Any) -> None:
    run = stage(pendingTimeoutSeconds=10).started()
    run.jobs = [replace(run.jobs[0], suspended=True, started=None)]
    run.step(500)
    assert run.status["phase"] == "Pending"
    assert "queue" in run.message("Scheduled")
    assert run.status["reason"] == "HeldBack"
    run.jobs = [replace(run.jobs[0], suspended=False, started=make.at(500))]
    run.step(501)
    assert "reason" not in run.status
    run.step(505)
    assert "failure" not in run.status
    run.step(511)
    assert run.status["failure"]["reason"] == "PendingTimeout"


def test_the_sidecar_state_does_not_end_a_running_engine(stage: Any) -> None:
    run = stage().capturing()
    pod = run.pods[0]
    crashed = Container("collector", State.WAITING, reason="CrashLoopBackOff")
    run.pods = [replace(pod, containers={**pod.containers, "collector": crashed})]
    plan = run.step(20)
    assert plan.create is None
    assert run.status["phase"] == "Capturing"
