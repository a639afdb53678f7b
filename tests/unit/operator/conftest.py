"""Runs, Jobs and pods as decisions see them, at times counted in seconds from one start."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.decide import Case, Plan, decide
from shapetrace_operator.observe import Container, Job, Observed, Pod, State

START = datetime(2026, 1, 1, tzinfo=UTC)
UID = "0a1b2c3d-0000-4000-8000-000000000001"
SPEC: dict[str, Any] = {
    "engine": {"name": "torch"},
    "parallelism": {"tensor": 2},
    "capture": {"targets": [{"runner": "decode", "sizes": [1, 2]}]},
    "accelerator": {"vendor": "none"},
    "storage": {"s3": {"bucket": "traces"}},
}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Stage:
    """One run and what is observed of it; ``decide`` moves it on as the operator would."""

    def __init__(self, **spec: Any) -> None:
        self.defaults = Defaults(image="shapetrace:1", engine_image="engine:1")
        self.run: dict[str, Any] = {
            "metadata": {"name": "demo", "namespace": "lab", "uid": UID, "generation": 1},
            "spec": {**copy.deepcopy(SPEC), **spec},
        }
        self.jobs: list[Job] = []
        self.pods: list[Pod] = []
        self.more: dict[str, Any] = {}

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.run.get("status") or {})

    @property
    def observed(self) -> Observed:
        return Observed(jobs=tuple(self.jobs), pods=tuple(self.pods), **self.more)

    def decide(self, seconds: float) -> Plan:
        """Decide without doing anything."""
        return decide(Case(copy.deepcopy(self.run), self.observed, at(seconds), self.defaults))

    def step(self, seconds: float) -> Plan:
        """Decide, and do what the plan says: Jobs appear and vanish at once, the status is written."""
        plan = self.decide(seconds)
        if plan.create is not None:
            self.jobs.append(self.job_from(plan.create, seconds))
        self.run["status"] = plan.status.to_dict()
        gone = {job.uid for job in plan.delete}
        self.jobs = [job for job in self.jobs if job.uid not in gone]
        return plan

    def job_from(self, body: dict[str, Any], seconds: float = 0) -> Job:
        metadata = body["metadata"]
        return job(
            attempt=int(metadata["labels"]["shapetrace.dev/attempt"]),
            role=metadata["labels"]["shapetrace.dev/role"],
            number=int(metadata["annotations"].get("shapetrace.dev/finish", 0)),
            retries=int(metadata["annotations"]["shapetrace.dev/retries"]),
            created=at(seconds),
            started=at(seconds),
        )

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        found = next(item for item in self.status["conditions"] if item["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        return str(next(item for item in self.status["conditions"] if item["type"] == kind)["message"])

    # ---- ways to a moment that many tests begin from
    def started(self) -> Stage:
        """The capture Job exists and the status says so."""
        self.step(0)
        return self

    def capturing(self, **pod_fields: Any) -> Stage:
        """The engine has been running since second 10."""
        self.started()
        self.pods = [capture_pod(**pod_fields)]
        self.step(11)
        return self

    def finished_engine(self, seconds: float, code: int = 0, reason: str = "Done", drained: bool = True) -> Stage:
        """The engine has ended and left its message."""
        pod = self.pods[0]
        self.pods = [ended_pod(pod, seconds, code, message(reason, drained=drained, exitCode=code))]
        return self

    def finish_answers(self, text: str, code: int = 0, seconds: float = 60) -> Stage:
        """The finish pod has ended with that message."""
        finish = self.jobs[-1]
        assert finish.role == "finish"
        self.pods.append(finish_pod(finish, text, code, seconds))
        return self


def job(**fields: Any) -> Job:
    values: dict[str, Any] = {"attempt": 1, "role": "capture", "created": START, "started": START, **fields}
    name = f"demo-{values['role']}-a{values['attempt']}-{values.get('number', 0)}"
    return Job(**{"name": name, "uid": f"uid-{name}", **values})


def capture_pod(**fields: Any) -> Pod:
    """A pod whose engine has been running since second 10."""
    values: dict[str, Any] = {
        "name": "demo-pod",
        "uid": "pod-uid",
        "attempt": 1,
        "role": "capture",
        "job": "uid-demo-capture-a1-0",
        "node": "node-1",
        "ip": "10.0.0.9",
        "phase": "Running",
        "scheduled": True,
        "created": at(1),
        "containers": {
            "preflight": Container("preflight", State.TERMINATED, exit_code=0, started=at(3), finished=at(5)),
            "inject": Container("inject", State.TERMINATED, exit_code=0, started=at(6), finished=at(7)),
            "collector": Container("collector", State.RUNNING, started=at(8)),
            "engine": Container("engine", State.RUNNING, started=at(10)),
        },
    }
    return Pod(**{**values, **fields})


def ended_pod(pod: Pod, seconds: float, code: int, text: str, reason: str = "") -> Pod:
    engine = Container(
        "engine", State.TERMINATED, exit_code=code, message=text, reason=reason, started=at(10), finished=at(seconds)
    )
    return Pod(**{**vars(pod), "containers": {**pod.containers, "engine": engine}})


def finish_pod(owner: Job, text: str, code: int = 0, seconds: float = 60) -> Pod:
    container = Container(
        "finish", State.TERMINATED, exit_code=code, message=text, started=at(seconds - 2), finished=at(seconds)
    )
    phase = "Succeeded" if code == 0 else "Failed"
    return Pod(
        name=f"{owner.name}-pod",
        uid=f"{owner.uid}-pod",
        attempt=owner.attempt,
        role="finish",
        job=owner.uid,
        phase=phase,
        scheduled=True,
        containers={"finish": container},
    )


def message(reason: str, **fields: Any) -> str:
    return json.dumps({"v": 1, "reason": reason, "message": f"said {reason}", "rank": None, **fields})


def verdict_message(verdict: str = "Complete", **fields: Any) -> str:
    rows = [[0, 2, 2, 2, 0, 900, verdict], [1, 2, 2, 2, 0, 800, verdict]]
    body = {"v": 1, "verdict": verdict, "uri": "s3://traces/manifest.json", "sha256": "a" * 64, "failure": None}
    return json.dumps({**body, "ranks": rows, **fields})


@pytest.fixture
def stage() -> Callable[..., Stage]:
    """``stage(**spec)``: a run that nobody has worked on yet."""
    return Stage


@pytest.fixture
def make() -> type[Make]:
    """Makers of Jobs, pods and messages."""
    return Make


class Make:
    at = staticmethod(at)
    job = staticmethod(job)
    capture_pod = staticmethod(capture_pod)
    ended_pod = staticmethod(ended_pod)
    finish_pod = staticmethod(finish_pod)
    message = staticmethod(message)
    verdict_message = staticmethod(verdict_message)
