"""From the cache to what decisions look at. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from shapetrace_contract import names
from shapetrace_contract.message import Termination
from shapetrace_contract.progress import RankProgress

from shapetrace_operator.build.names import ANNOTATION_RETRIES, numbers_of
from shapetrace_operator.cache import Cache
from shapetrace_operator.objects import Object, condition, owner_of, owner_uid, parse_number, parse_time, true_condition


class State(StrEnum):
    """What a container is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(frozen=True)
class Container:
    """One container of a pod."""

    name: str
    state: State = State.WAITING
    reason: str = ""
    message: str = ""
    """The termination message, or what the kubelet waits for."""
    image: str = ""
    image_id: str = ""
    """What the kubelet resolved the image to, with its digest."""
    exit_code: int | None = None
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether it has terminated."""
        return self.state is State.TERMINATED

    @property
    def termination(self) -> Termination | None:
        """Its own last words, if they are ours."""
        return Termination.from_text(self.message) if self.ended else None


@dataclass(frozen=True)
class Pod:
    """One pod of a run."""

    name: str
    uid: str
    attempt: int
    role: str
    job: str = ""
    """Uid of its Job."""
    node: str | None = None
    ip: str | None = None
    phase: str = "Pending"
    message: str = ""
    """Why the pod as a whole failed, such as an eviction."""
    scheduled: bool = False
    unschedulable: str | None = None
    """The scheduler's message, while it finds no node."""
    gone: bool = False
    """The object no longer exists; this is its last state."""
    created: datetime | None = None
    deletion: datetime | None = None
    """When the kubelet has to be done with it: the request to delete plus the grace."""
    disruption: str | None = None
    """Why the cluster took the pod away (condition DisruptionTarget)."""
    containers: Mapping[str, Container] = field(default_factory=dict)

    def container(self, name: str) -> Container:
        """A container, as waiting where the kubelet has not spoken of it."""
        return self.containers.get(name) or Container(name)

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more, as far as Kubernetes says."""
        return self.gone or self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Job:
    """One Job of a run."""

    name: str
    uid: str
    attempt: int
    role: str
    number: int = 0
    """Which finish of its attempt, from 1; 0 for a capture."""
    retries: int | None = None
    """Failed attempts before this one that count against spec.retries."""
    created: datetime | None = None
    started: datetime | None = None
    """Since when it may have pods: counted anew after a queue held it back."""
    suspended: bool = False
    deleting: bool = False
    complete: bool = False
    failed: str | None = None
    """``reason: message`` once it has failed, or is about to (FailureTarget: a lost node never lets it fail)."""
    failed_since: datetime | None = None

    @property
    def over(self) -> bool:
        """Whether it makes no pod any more."""
        return self.complete or self.failed is not None


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event about a Job or pod of the run."""

    reason: str
    message: str
    last_seen: datetime | None = None


@dataclass(frozen=True)
class Refusal:
    """Why the API server did not take a Job."""

    status: int
    reason: str
    message: str


@dataclass(frozen=True)
class Observed:
    """Everything of the cluster that a decision about one run looks at."""

    jobs: Sequence[Job] = ()
    pods: Sequence[Pod] = ()
    progress: Mapping[int, RankProgress] = field(default_factory=dict)
    """Rank -> last counters, of the pods of the newest attempt."""
    unreachable: bool = False
    """The operator asked a running pod for its progress several times and got no answer."""
    events: Sequence[Event] = ()
    refusal: Refusal | None = None

    @property
    def newest_attempt(self) -> int:
        """The highest attempt number on any Job; 0 without one."""
        return max((job.attempt for job in self.jobs), default=0)

    def capture_job(self, attempt: int) -> Job | None:
        """The Job of an attempt."""
        return next((job for job in self.jobs if job.attempt == attempt and job.role == names.ROLE_CAPTURE), None)

    def capture_pods(self, attempt: int) -> list[Pod]:
        """The capture pods of an attempt, those gone included."""
        return [pod for pod in self.pods if pod.attempt == attempt and pod.role == names.ROLE_CAPTURE]

    def finish_jobs(self, attempt: int) -> list[Job]:
        """The finish Jobs of an attempt, by number."""
        found = [job for job in self.jobs if job.attempt == attempt and job.role == names.ROLE_FINISH]
        return sorted(found, key=lambda job: job.number)

    def finish_pods(self, attempt: int) -> list[Pod]:
        """The finish pods of an attempt, those gone included."""
        return [pod for pod in self.pods if pod.attempt == attempt and pod.role == names.ROLE_FINISH]


MAX_PROGRESS_FAILURES = 8
"""Seconds without an answer, as one request is made a second; a busy node may leave out a few."""


def observe(run: Object, cache: Cache, events: Sequence[Event] = ()) -> Observed:
    """What is known of a run's children."""
    jobs = _jobs(run, cache)
    pods = _pods(run, cache, {job.name: job.uid for job in jobs})
    # counters of a pod of an earlier attempt say nothing about the attempt that has begun
    begun = (run.get("status") or {}).get("attempt") or 0
    attempt = max(begun, *(job.attempt for job in jobs), *(pod.attempt for pod in pods), 0)
    newest = [pod for pod in pods if pod.attempt == attempt and pod.role == names.ROLE_CAPTURE]
    progress = {
        entry.rank: replace(entry, pod=pod.name, node=pod.node or entry.node)
        for pod in newest
        for entry in cache.progress.get(pod.uid, ())
    }
    asked = [cache.reachability.get(pod.uid) for pod in newest]
    unreachable = any(item and not item.answered and item.failures >= MAX_PROGRESS_FAILURES for item in asked)
    return Observed(jobs=jobs, pods=pods, progress=progress, unreachable=unreachable, events=events)


def _jobs(run: Object, cache: Cache) -> list[Job]:
    """The Jobs that the run controls and that are named as we name them."""
    name, namespace, uid = (run["metadata"][key] for key in ("name", "namespace", "uid"))
    found = []
    for obj in cache.jobs_of(uid):
        numbers = numbers_of(obj["metadata"]["name"], name, uid)
        if numbers is not None and owner_uid(obj) == uid and obj["metadata"]["namespace"] == namespace:
            found.append(job_of(obj, *numbers))
    return found


def _pods(run: Object, cache: Cache, jobs: Mapping[str, str]) -> list[Pod]:
    """The pods that Jobs of the run made. Labels alone prove nothing: everybody who may make pods can write them.

    ``jobs``: name -> uid of the Jobs that exist. A Job may be gone before its pods are; Kubernetes itself removes a pod
    whose owner never existed.
    """
    name, namespace, uid = (run["metadata"][key] for key in ("name", "namespace", "uid"))
    found = []
    for obj, gone in cache.pods_of(uid):
        owner = owner_of(obj) or {}
        job = str(owner.get("name"))
        numbers = numbers_of(job, name, uid) if owner.get("kind") == "Job" else None
        ours = numbers is not None and jobs.get(job) in (None, owner.get("uid"))
        if numbers is not None and ours and obj["metadata"]["namespace"] == namespace:
            found.append(pod_of(obj, gone, cache, *numbers))
    return sorted(found, key=lambda pod: (pod.attempt, pod.name))


def _role(number: int) -> str:
    return names.ROLE_FINISH if number else names.ROLE_CAPTURE


def job_of(obj: Object, attempt: int, number: int) -> Job:
    """Read a Job; ``attempt`` and ``number`` (of a finish, else 0) are those of its name."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    failed = true_condition(obj, "Failed") or true_condition(obj, "FailureTarget")
    return Job(
        name=metadata["name"],
        uid=metadata["uid"],
        attempt=attempt,
        role=_role(number),
        number=number,
        retries=parse_number((metadata.get("annotations") or {}).get(ANNOTATION_RETRIES)),
        created=parse_time(metadata.get("creationTimestamp")),
        started=parse_time(status.get("startTime")),
        suspended=bool((obj.get("spec") or {}).get("suspend")),
        deleting=bool(metadata.get("deletionTimestamp")),
        complete=true_condition(obj, "Complete") is not None,
        failed=_reason_and_message(failed) if failed else None,
        failed_since=parse_time(failed.get("lastTransitionTime")) if failed else None,
    )


def pod_of(obj: Object, gone: bool, cache: Cache, attempt: int, number: int) -> Pod:
    """Read a pod of a Job; ends of containers come from the cache where the pod itself no longer shows them."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    scheduled, disruption = condition(obj, "PodScheduled") or {}, true_condition(obj, "DisruptionTarget")
    states = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    containers = {state["name"]: replace(_container(state), image_id=state.get("imageID") or "") for state in states}
    over = gone or status.get("phase") in ("Succeeded", "Failed")
    for name, ended in cache.terminations.get(metadata["uid"], {}).items():
        # a sidecar that ended may be running again: its earlier end counts only once the pod is over
        known = containers.get(name, Container(name))
        if over and not known.ended:
            containers[name] = replace(_ended(name, ended, known.image), image_id=known.image_id)
    unscheduled = scheduled.get("status") == "False"
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        attempt=attempt,
        role=_role(number),
        job=owner_uid(obj) or "",
        node=(obj.get("spec") or {}).get("nodeName"),
        ip=status.get("podIP"),
        phase=status.get("phase") or "Pending",
        message=": ".join(text for text in (status.get("reason"), status.get("message")) if text),
        scheduled=scheduled.get("status") == "True" or bool((obj.get("spec") or {}).get("nodeName")),
        unschedulable=str(scheduled.get("message") or scheduled.get("reason") or "") if unscheduled else None,
        gone=gone,
        created=parse_time(metadata.get("creationTimestamp")),
        deletion=parse_time(metadata.get("deletionTimestamp")),
        disruption=_reason_and_message(disruption) if disruption else None,
        containers=containers,
    )


def _reason_and_message(item: Object) -> str:
    return f"{item.get('reason')}: {item.get('message')}"


def _container(status: Object) -> Container:
    name, image, state = status["name"], status.get("image") or "", status.get("state") or {}
    if "terminated" in state:
        return _ended(name, state["terminated"], image)
    if "running" in state:
        return Container(name, State.RUNNING, image=image, started=parse_time(state["running"].get("startedAt")))
    waiting = state.get("waiting") or {}
    return Container(
        name, State.WAITING, image=image, reason=waiting.get("reason") or "", message=waiting.get("message") or ""
    )


def _ended(name: str, terminated: Object, image: str) -> Container:
    return Container(
        name,
        State.TERMINATED,
        reason=terminated.get("reason") or "",
        message=terminated.get("message") or "",
        image=image,
        exit_code=terminated.get("exitCode"),
        started=parse_time(terminated.get("startedAt")),
        finished=parse_time(terminated.get("finishedAt")),
    )
