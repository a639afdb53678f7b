"""What others can write - messages, labels, annotations, counters, a status by hand - never stops a decision."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapetrace_contract.progress import RankProgress
from shapetrace_operator.cache import Cache
from shapetrace_operator.observe import observe

RUN_UID = "0a1b2c3d-0000-4000-8000-000000000001"
WORDS = [
    pytest.param('{"v":1,"reason":"EngineFailed","rank":"none"}', id="a rank that is no number"),
    pytest.param('{"v":1,"reason":"EngineFailed","rank":-7}', id="a rank below zero"),
    pytest.param('{"v":1,"reason":"EngineFailed","rank":10000000}', id="a rank that nobody has"),
    pytest.param('{"v":1,"reason":"EngineFailed","exitCode":99999}', id="an exit code out of range"),
    pytest.param('{"v":1,"reason":"EngineFailed","exitCode":[]}', id="an exit code that is none"),
    pytest.param('{"v":1,"reason":"1st","message":"x"}', id="a reason that begins with a digit"),
    pytest.param('{"v":1,"reason":"Zurück"}', id="a reason with an umlaut"),
    pytest.param('{"v":1,"reason":""}', id="no reason"),
    pytest.param('{"v":1,"reason":"EngineFailed","message":"\\ud800"}', id="half a character"),
    pytest.param('{"v":1,"reason":"\\ud800"}', id="half a character for a reason"),
    pytest.param("[" * 4096, id="deeply nested"),
    pytest.param('{"reason":' + "9" * 4000 + "}", id="a long number"),
    pytest.param("null", id="null"),
    pytest.param("\x00\x1b[2J", id="control characters"),
]


@pytest.mark.parametrize("words", WORDS)
def test_forged_words_of_the_engine_do_not_keep_a_run_from_its_end(stage: Any, make: Any, words: str) -> None:
    run = stage().capturing()
    run.pods = [replace(make.ended_pod(run.pods[0], 20, 137, words), phase="Failed")]
    run.step(21)
    run.finish_answers(make.verdict_message("Partial"))
    run.step(61)
    assert run.status["phase"] == "Failed"
    assert run.status["failure"]["container"] == "engine"
    assert "\ud800" not in json.dumps(run.status, ensure_ascii=False)


@pytest.mark.parametrize("words", WORDS)
def test_forged_words_of_a_finish_are_no_answer(stage: Any, make: Any, words: str) -> None:
    run = stage().capturing().finished_engine(20)
    run.step(21)
    run.finish_answers(words)
    run.jobs[-1] = replace(run.jobs[-1], complete=True)
    assert run.step(61).create["metadata"]["name"].endswith("-f2")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"uri": ""}, id="an empty address"),
        pytest.param({"uri": "\ud800"}, id="half a character"),
        pytest.param({"failure": {"reason": "", "message": "\ud800"}}, id="a failure that is none"),
        pytest.param({"failure": {"reason": "EngineFailed", "signal": 10**9}}, id="a signal that is none"),
        pytest.param({"ranks": [[0, 10**12, 10**12, 10**12, 0, 10**30, "Complete"]]}, id="counters beyond all bounds"),
        pytest.param({"ranks": [[0, 2, 2, 2, 0, 9, "\ud800"]]}, id="a verdict that is none"),
    ],
)
def test_what_does_not_fit_in_an_answer_of_the_finish_does_not_stop_the_run(
    stage: Any, make: Any, fields: dict[str, Any]
) -> None:
    run = stage().capturing().finished_engine(20)
    run.step(21)
    for number in range(3):
        run.finish_answers(make.verdict_message(**fields), seconds=60 + number)
        run.jobs[-1] = replace(run.jobs[-1], complete=True)
        run.step(61 + number)
    assert run.status["phase"] in ("Succeeded", "Failed")


def test_counters_that_add_up_to_more_than_the_schema_holds_are_cut(stage: Any) -> None:
    run = stage().capturing()
    big = 2**31 - 1
    run.more["progress"] = {rank: RankProgress(rank, "Capturing", big, big, big, big, bytes=2**53) for rank in range(2)}
    run.step(20)
    assert run.status["progress"]["captured"] == big
    assert run.status["progress"]["bytes"] == 2**53


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=20),
    time=st.sampled_from(
        ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]
    ),
    number=st.sampled_from([0, 1, 2**31 - 1]),
)
def test_a_status_edited_by_hand_does_not_stop_decisions(stage: Any, text: str, time: str, number: int) -> None:
    run = stage(ttlSecondsAfterFinished=5).capturing()
    times = {"startTime": time, "captureTime": time, "completionTime": time}
    status = {**run.status, **times, "attempt": number, "failure": {"reason": "X", "message": text}}
    status["conditions"] = [{**item, "lastTransitionTime": time} for item in status["conditions"]]
    for finished in (False, True):
        if finished:
            status["conditions"] = [
                {**item, "status": "True"} if item["type"] == "Finished" else item for item in status["conditions"]
            ]
        run.run["status"] = status
        run.decide(30)
        run.pods = []
        run.decide(40)


# ---- labels, annotations and owners
def child(name: str, owner: dict[str, Any], **labels: str) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "lab",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": {"shapetrace.dev/run": RUN_UID, **{f"shapetrace.dev/{key}": value for key, value in labels.items()}},
        "annotations": {"shapetrace.dev/finish": "9" * 5000, "shapetrace.dev/retries": "9" * 5000},
        "ownerReferences": [{"controller": True, **owner}],
    }
    return {"metadata": metadata, "spec": {}, "status": {}}


RUN_OWNER = {"kind": "ProfileRun", "name": "demo", "uid": RUN_UID}
JOB, FINISH = "demo-0a1b2-a1", "demo-0a1b2-a1-f2"


def cache() -> Cache:
    made = Cache()
    made.put_run({"metadata": {"name": "demo", "namespace": "lab", "uid": RUN_UID}, "spec": {}, "status": {}})
    return made


def test_what_a_job_is_is_told_by_its_name_which_nobody_can_edit() -> None:
    known = cache()
    known.put_job(child(JOB, RUN_OWNER, attempt="7", role="finish"))
    known.put_job(child(FINISH, RUN_OWNER, attempt="9" * 60, role="capture"))
    jobs = observe(known.runs[RUN_UID], known).jobs
    found = sorted((job.attempt, job.role, job.number, job.retries) for job in jobs)
    assert found == [(1, "capture", 0, None), (1, "finish", 2, None)]


@pytest.mark.parametrize(
    "name", ["demo-0a1b2-a0", "demo-0a1b2-a" + "9" * 40, "demo-0a1b2-a2147483648", "other", "demo-0a1b2-a1-f"]
)
def test_a_job_that_we_would_not_name_so_is_not_ours(name: str) -> None:
    known = cache()
    known.put_job(child(name, RUN_OWNER, attempt="1", role="capture"))
    assert observe(known.runs[RUN_UID], known).jobs == []


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param({"kind": "ConfigMap", "name": "mine", "uid": "uid-mine"}, id="another kind"),
        pytest.param({"kind": "Job", "name": "mine", "uid": "uid-mine"}, id="a Job of somebody else"),
        pytest.param({"kind": "Job", "name": JOB, "uid": "uid-mine"}, id="a namesake of our Job"),
    ],
)
def test_a_pod_with_our_labels_that_none_of_our_jobs_made_is_not_ours(owner: dict[str, Any]) -> None:
    known = cache()
    known.put_job(child(JOB, RUN_OWNER, attempt="1", role="capture"))
    known.put_pod(child("forged", owner, attempt="1", role="capture"))
    assert observe(known.runs[RUN_UID], known).pods == []


def test_a_pod_stays_ours_when_its_job_is_gone_and_is_what_its_job_was() -> None:
    known = cache()
    known.put_pod(child("pod", {"kind": "Job", "name": JOB, "uid": f"uid-{JOB}"}, attempt="5", role="finish"))
    (pod,) = observe(known.runs[RUN_UID], known).pods
    assert (pod.attempt, pod.role) == (1, "capture")


def test_the_counters_of_an_earlier_attempt_are_not_those_of_the_next() -> None:
    known = cache()
    known.put_job(child(JOB, RUN_OWNER))
    known.put_pod(child("pod", {"kind": "Job", "name": JOB, "uid": f"uid-{JOB}"}))
    known.progress["uid-pod"] = [RankProgress(0, "Done", 4, 4, 4)]
    assert observe(known.runs[RUN_UID], known).progress[0].uploaded == 4
    known.put_job(child("demo-0a1b2-a2", RUN_OWNER))
    assert observe(known.runs[RUN_UID], known).progress == {}
