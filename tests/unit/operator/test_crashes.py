"""Killed before or after any of its writes and started again, the operator brings a run to the same end.

A model of what Kubernetes does with our Jobs stands in for a cluster, so that every write of every way of a run can be
tried within seconds; the cluster tests do the same with a real API server for some of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from shapetrace_operator.observe import Container, Job, Pod, State

END_SECONDS = 400


class KilledError(Exception):
    """The operator is gone; what it had in memory with it."""


@dataclass
class World:
    """Jobs and pods in time, one step a second. ``script`` says what happens besides."""

    stage: Any
    make: Any
    script: Callable[[World, int], None]
    kill_at: int = 0
    """Which write (from 1) the operator is killed at; 0 for none."""
    before: bool = False
    """Killed before the request reached the server, otherwise before the answer reached the operator."""
    writes: int = 0
    created: list[str] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    """Attempts that delivered everything, as the bucket knows them."""

    def request(self, act: Callable[[], None]) -> None:
        self.writes += 1
        if self.writes == self.kill_at and self.before:
            raise KilledError
        act()
        if self.writes == self.kill_at:
            raise KilledError

    def operate(self, seconds: int) -> None:
        """One cycle of the operator, write by write, in the order that the plan asks for."""
        stage = self.stage
        plan = stage.decide(seconds)
        if plan.create is not None:
            made = stage.job_from(plan.create, seconds)
            if all(job.name != made.name for job in stage.jobs):  # otherwise: 409, adopted
                self.request(lambda: self.create(made, plan.create["metadata"]["name"]))
        if plan.status.to_dict() != stage.status:
            self.request(lambda: stage.run.update(status=plan.status.to_dict()))
        for job in plan.delete:
            self.request(lambda job=job: self.delete(job, seconds))

    def create(self, job: Job, name: str) -> None:
        self.created.append(name)
        self.stage.jobs.append(job)

    def delete(self, job: Job, seconds: int) -> None:
        self.stage.jobs = [other for other in self.stage.jobs if other.uid != job.uid]
        for pod in self.pods_of(job.uid):
            self.place(replace(pod, deletion=self.make.at(seconds + 60)))

    def pods_of(self, job: str) -> list[Pod]:
        return [pod for pod in self.stage.pods if pod.job == job and not pod.gone]

    def place(self, pod: Pod) -> None:
        self.stage.pods = [other for other in self.stage.pods if other.uid != pod.uid] + [pod]

    def kubernetes(self, seconds: int) -> None:
        """What controllers and kubelet do in one second."""
        for job in list(self.stage.jobs):
            if not any(pod.job == job.uid for pod in self.stage.pods) and not job.over:
                self.start(job, seconds)
        for pod in [pod for pod in self.stage.pods if not pod.gone]:
            age = seconds - int((pod.created - self.make.at(0)).total_seconds())
            if pod.deletion is not None:
                self.stop(pod, seconds)
            elif not pod.over:
                self.run_pod(pod, age, seconds)
            else:
                self.close(pod)

    def start(self, job: Job, seconds: int) -> None:
        pod = Pod(
            name=f"{job.name}-pod", uid=f"{job.uid}-pod", attempt=job.attempt, role=job.role, job=job.uid,
            created=self.make.at(seconds), scheduled=True, node="node-1", phase="Pending",
        )  # fmt: skip
        self.place(pod)

    def run_pod(self, pod: Pod, age: int, seconds: int) -> None:
        if pod.role == "finish":
            if age >= 2:
                done = self.make.finish_pod(next(j for j in self.stage.jobs if j.uid == pod.job), self.verdict(pod))
                self.place(replace(done, uid=pod.uid, created=pod.created))
            return
        containers = dict(pod.containers)
        if age >= 1:
            containers["preflight"] = Container("preflight", State.TERMINATED, exit_code=0, started=self.make.at(1))
        if age >= 2 and "engine" not in containers:
            containers["engine"] = Container("engine", State.RUNNING, started=self.make.at(seconds))
        pod = replace(pod, phase="Running", containers=containers)
        if age >= 8:
            pod = self.ended(pod, seconds, 0, "Done")
        self.place(pod)

    def ended(self, pod: Pod, seconds: int, code: int, reason: str) -> Pod:
        engine = Container(
            "engine", State.TERMINATED, exit_code=code, message=self.make.message(reason, drained=True),
            started=pod.container("engine").started or self.make.at(seconds), finished=self.make.at(seconds),
        )  # fmt: skip
        phase = "Succeeded" if code == 0 else "Failed"
        return replace(pod, phase=phase, containers={**pod.containers, "engine": engine})

    def stop(self, pod: Pod, seconds: int) -> None:
        running = pod.container("engine").state is State.RUNNING
        self.place(self.ended(pod, seconds, 143, "Stopped") if running else replace(pod, gone=True))

    def close(self, pod: Pod) -> None:
        complete = pod.phase == "Succeeded"
        self.stage.jobs = [
            replace(job, complete=complete, failed=None if complete else "BackoffLimitExceeded: once")
            if job.uid == pod.job and not job.over
            else job
            for job in self.stage.jobs
        ]

    def verdict(self, pod: Pod) -> str:
        """The bucket remembers what an attempt delivered, whatever the operator has forgotten."""
        whole = pod.attempt in self.delivered
        return str(self.make.verdict_message("Complete" if whole else "Partial"))

    @property
    def delivered(self) -> set[int]:
        return {
            pod.attempt for pod in self.stage.pods if pod.role == "capture" and pod.container("engine").exit_code == 0
        } | self.kept

    def forget(self) -> None:
        """A new operator lists what exists; pods that are gone are not in any list."""
        self.kept |= self.delivered
        self.stage.pods = [pod for pod in self.stage.pods if not pod.gone]

    def play(self) -> None:
        for seconds in range(END_SECONDS):
            self.script(self, seconds)
            self.kubernetes(seconds)
            try:
                self.operate(seconds)
            except KilledError:
                self.forget()
            if self.stage.status.get("completionTime"):
                return

    @property
    def end(self) -> tuple[Any, ...]:
        status = self.stage.status
        cause = (status.get("failure") or {}).get("reason")
        conditions = {item["type"]: (item["status"], item["reason"]) for item in status["conditions"]}
        return status["phase"], status.get("verdict"), status["attempt"], cause, json.dumps(conditions, sort_keys=True)


def nothing(world: World, seconds: int) -> None:
    return


def engine_fails(world: World, seconds: int) -> None:
    for pod in world.stage.pods:
        if pod.role == "capture" and pod.attempt == 1 and not pod.over and pod.container("engine").started is not None:
            world.place(world.ended(pod, seconds, 50, "EngineFailed"))


def preflight_fails(world: World, seconds: int) -> None:
    for pod in world.stage.pods:
        if pod.role == "capture" and not pod.over:
            text = world.make.message("StorageDenied")
            failed = Container("preflight", State.TERMINATED, exit_code=41, message=text, started=world.make.at(1))
            world.place(replace(pod, phase="Failed", containers={"preflight": failed}))


def no_image(world: World, seconds: int) -> None:
    for pod in world.stage.pods:
        if pod.role == "capture" and not pod.gone and pod.deletion is None:
            waiting = {"engine": Container("engine", reason="ErrImageNeverPull")}
            world.place(replace(pod, created=world.make.at(seconds), containers={**pod.containers, **waiting}))


def pod_deleted(world: World, seconds: int) -> None:
    for pod in world.stage.pods:
        if pod.role == "capture" and pod.attempt == 1 and pod.container("engine").state is State.RUNNING:
            world.place(replace(pod, deletion=world.make.at(seconds + 60)))


def job_deleted(world: World, seconds: int) -> None:
    if seconds == 6:
        for job in [job for job in world.stage.jobs if job.role == "capture"]:
            world.delete(job, seconds)


def suspended_and_resumed(world: World, seconds: int) -> None:
    world.stage.run["spec"]["suspend"] = 6 <= seconds < 60


def finish_pod_deleted_unread(world: World, seconds: int) -> None:
    for pod in [pod for pod in world.stage.pods if pod.role == "finish" and pod.job.endswith("-1")]:
        if pod.over:
            world.close(pod)
            world.stage.pods.remove(pod)


WAYS: dict[str, tuple[Callable[[World, int], None], dict[str, Any], tuple[str, str | None, int, str | None]]] = {
    "complete": (nothing, {}, ("Succeeded", "Complete", 1, None)),
    "engine fails": (engine_fails, {}, ("Failed", "Partial", 1, "EngineFailed")),
    "engine fails and is retried": (engine_fails, {"retries": 1}, ("Succeeded", "Complete", 2, None)),
    "preflight fails": (preflight_fails, {}, ("Failed", None, 1, "StorageDenied")),
    "image cannot be pulled": (no_image, {}, ("Failed", None, 1, "ImagePullFailed")),
    "too late": (nothing, {"activeDeadlineSeconds": 3}, ("Failed", "Partial", 1, "DeadlineExceeded")),
    "pod deleted": (pod_deleted, {}, ("Failed", "Partial", 1, "Stopped")),
    "pod deleted and retried": (pod_deleted, {"retries": 1}, ("Succeeded", "Complete", 2, None)),
    "job deleted": (job_deleted, {}, ("Failed", "Partial", 1, "Stopped")),
    "suspended and resumed": (suspended_and_resumed, {}, ("Succeeded", "Complete", 2, None)),
    "finish unread": (finish_pod_deleted_unread, {}, ("Succeeded", "Complete", 1, None)),
}


@pytest.mark.parametrize("way", sorted(WAYS))
def test_every_write_may_be_the_last_one(way: str, stage: Any, make: Any) -> None:
    script, spec, expected = WAYS[way]
    calm = World(stage(**spec), make, script)
    calm.play()
    assert calm.end[:4] == expected
    for kill_at in range(1, calm.writes + 1):
        for before in (True, False):
            world = World(stage(**spec), make, script, kill_at=kill_at, before=before)
            world.play()
            where = f"killed {'before' if before else 'after'} write {kill_at} of {calm.writes}"
            assert world.end == calm.end, where
            assert len(set(world.created)) == len(world.created), f"{where}: made twice: {world.created}"


def test_the_model_counts_few_writes(stage: Any, make: Any) -> None:
    world = World(stage(), make, nothing)
    world.play()
    assert world.created == ["demo-0a1b2-a1", "demo-0a1b2-a1-f1"]
    assert world.writes - len(world.created) <= 8
