"""What the watches delivered, by uid: runs, Jobs, pods, and what containers said at their end.

Decisions read from here, never from a list of their own. Objects are cut down to what decisions look at. A pod that is
gone stays, marked so, until its run is over: its termination messages are nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shapetrace_contract import names
from shapetrace_contract.progress import RankProgress

from shapetrace_operator.objects import Object, label

MAX_GONE_PODS = 32
"""Per run: one capture pod, and up to four pods of each of three finish Jobs, of two attempts."""

_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "labels", "annotations", "ownerReferences",
    "creationTimestamp", "deletionTimestamp",
)  # fmt: skip


class Key(NamedTuple):
    """One ProfileRun. The uid tells it from a later one of the same name."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass
class Reachability:
    """How asking a pod for its progress went."""

    failures: int = 0
    """In a row."""
    answered: bool = False


@dataclass
class Cache:
    """The operator's picture of the cluster. Bounded by the objects that exist and :data:`MAX_GONE_PODS`."""

    runs: dict[str, Object] = field(default_factory=dict)
    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    gone_pods: dict[str, Object] = field(default_factory=dict)
    terminations: dict[str, dict[str, Object]] = field(default_factory=dict)
    """Pod uid -> container -> its last ``state.terminated``."""
    progress: dict[str, list[RankProgress]] = field(default_factory=dict)
    """Pod uid -> the last answer of its collector."""
    reachability: dict[str, Reachability] = field(default_factory=dict)
    _children: dict[str, set[str]] = field(default_factory=dict)
    """Run uid -> uids of its Jobs and pods, those gone included."""

    # ---- runs
    def put_run(self, run: Object) -> Key:
        """Remember a ProfileRun unless a newer state of it is known."""
        uid = run["metadata"]["uid"]
        if not _older(run, self.runs.get(uid)):
            self.runs[uid] = {**run, "metadata": _slim_metadata(run)}
        return run_key(run)

    def unfinished_runs(self) -> list[Object]:
        """The runs whose status has no end yet."""
        return [run for run in self.runs.values() if (run.get("status") or {}).get("completionTime") is None]

    def remove_run(self, uid: str) -> None:
        """Forget a ProfileRun and everything known of its children that are gone."""
        self.runs.pop(uid, None)
        self.forget_details(uid)

    def forget_details(self, run_uid: str) -> None:
        """The run is over: drop what only an unfinished run needs."""
        for uid in [uid for uid in self._children.get(run_uid, ()) if uid in self.gone_pods or uid in self.pods]:
            self._drop_pod_details(uid)
            if self.gone_pods.pop(uid, None) is not None:
                self._unlink(run_uid, uid)

    # ---- children
    def put_job(self, job: Object) -> Key | None:
        """Remember a Job; the key of its run, None where it belongs to none."""
        return self._put(self.jobs, _slim_job(job))

    def put_pod(self, pod: Object) -> Key | None:
        """Remember a pod and the ends of its containers."""
        uid = pod["metadata"]["uid"]
        if uid in self.gone_pods:
            return self.key_of(pod)
        if not _older(pod, self.pods.get(uid)):
            self._remember_ends(pod)
        return self._put(self.pods, _slim_pod(pod))

    def mark_deleting(self, job_uid: str, moment: str) -> None:
        """The API server took the deletion of a Job; the watch will say so too, later than the next cycle perhaps."""
        job = self.jobs.get(job_uid)
        if job is not None:
            metadata = {**job["metadata"], "deletionTimestamp": moment}
            self.jobs[job_uid] = {**job, "metadata": metadata}

    def remove_job(self, job: Object) -> Key | None:
        """The Job is gone."""
        uid = job["metadata"]["uid"]
        self.jobs.pop(uid, None)
        run_uid = label(job, names.LABEL_RUN)
        if run_uid:
            self._unlink(run_uid, uid)
        return self.key_of(job)

    def remove_pod(self, pod: Object) -> Key | None:
        """The pod is gone; its last state is kept while its run is unfinished."""
        uid, run_uid = pod["metadata"]["uid"], label(pod, names.LABEL_RUN)
        known = self.pods.pop(uid, None)
        if run_uid is None:
            return None
        self._remember_ends(pod)
        if run_uid in self.runs:
            self._make_room(run_uid)
            last = _slim_pod(pod) if not _older(pod, known) or known is None else known
            self.gone_pods[uid] = last
            self._children.setdefault(run_uid, set()).add(uid)
        else:
            self._drop_pod_details(uid)
            self._unlink(run_uid, uid)
        return self.key_of(pod)

    def _make_room(self, run_uid: str) -> None:
        """The oldest goes: what it said is in the status, or was of an attempt that is over."""
        gone = [uid for uid in self._children.get(run_uid, ()) if uid in self.gone_pods]
        if len(gone) >= MAX_GONE_PODS:
            oldest = min(gone, key=lambda uid: str(self.gone_pods[uid]["metadata"].get("creationTimestamp") or ""))
            self.gone_pods.pop(oldest)
            self._drop_pod_details(oldest)
            self._unlink(run_uid, oldest)

    def jobs_of(self, run_uid: str) -> list[Object]:
        """The Jobs that carry the run's label."""
        return [self.jobs[uid] for uid in self._children.get(run_uid, ()) if uid in self.jobs]

    def pods_of(self, run_uid: str) -> list[tuple[Object, bool]]:
        """The pods that carry the run's label, each with whether it is gone."""
        children = self._children.get(run_uid, ())
        here = [(self.pods[uid], False) for uid in children if uid in self.pods]
        return here + [(self.gone_pods[uid], True) for uid in children if uid in self.gone_pods]

    def key_of(self, child: Object) -> Key | None:
        """The key of a child's run, None where the run is not known (its own event comes then)."""
        run = self.runs.get(label(child, names.LABEL_RUN) or "")
        if run is None or run["metadata"]["namespace"] != child["metadata"]["namespace"]:
            return None
        return run_key(run)

    def children_of(self, run_uid: str) -> set[str]:
        """Uids of the run's Jobs and pods that are believed to exist."""
        return {uid for uid in self._children.get(run_uid, ()) if uid in self.jobs or uid in self.pods}

    # ---- inner
    def _put(self, kind: dict[str, Object], obj: Object) -> Key | None:
        run_uid = label(obj, names.LABEL_RUN)
        if run_uid is None:
            return None
        uid = obj["metadata"]["uid"]
        if not _older(obj, kind.get(uid)):
            kind[uid] = obj
            self._children.setdefault(run_uid, set()).add(uid)
        return self.key_of(obj)

    def _remember_ends(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        for name, state in _container_states(pod):
            ended = (state.get("state") or {}).get("terminated") or (state.get("lastState") or {}).get("terminated")
            if ended:
                self.terminations.setdefault(uid, {})[name] = ended

    def _drop_pod_details(self, uid: str) -> None:
        self.progress.pop(uid, None)
        self.reachability.pop(uid, None)
        self.terminations.pop(uid, None)

    def _unlink(self, run_uid: str, uid: str) -> None:
        children = self._children.get(run_uid)
        if children is not None:
            children.discard(uid)
            if not children:
                del self._children[run_uid]


def run_key(run: Object) -> Key:
    """The key of a ProfileRun."""
    metadata = run["metadata"]
    return Key(metadata["namespace"], metadata["name"], metadata["uid"])


def _older(new: Object, known: Object | None) -> bool:
    """Whether ``new`` is an older state than ``known``: lists, watches and answers of writes overtake each other."""
    if known is None:
        return False
    versions = [str(obj["metadata"].get("resourceVersion") or "") for obj in (new, known)]
    # resource versions are numbers that grow, on every API server that keeps its state in etcd
    return all(text.isdecimal() for text in versions) and int(versions[0]) < int(versions[1])


def _container_states(pod: Object) -> list[tuple[str, Object]]:
    status = pod.get("status") or {}
    return [
        (state["name"], state)
        for kind in ("initContainerStatuses", "containerStatuses")
        for state in status.get(kind) or []
    ]


def _slim_metadata(obj: Object) -> Object:
    return {key: value for key, value in obj["metadata"].items() if key in _METADATA}


def _slim_job(job: Object) -> Object:
    spec: dict[str, Any] = {"suspend": bool((job.get("spec") or {}).get("suspend"))}
    return {"metadata": _slim_metadata(job), "spec": spec, "status": job.get("status") or {}}


def _slim_pod(pod: Object) -> Object:
    spec = pod.get("spec") or {}
    kept = {"nodeName": spec.get("nodeName")}
    return {"metadata": _slim_metadata(pod), "spec": kept, "status": pod.get("status") or {}}
