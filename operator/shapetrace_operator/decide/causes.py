"""The first cause of a failure, from what containers said and what Kubernetes tells of pods and Jobs."""

from __future__ import annotations

import re
from typing import Any

from shapetrace_api.engine import MAX_RANKS
from shapetrace_api.status import Failure
from shapetrace_contract import names
from shapetrace_contract.reasons import EXIT_CODES, Reason

from shapetrace_operator.decide import ranks
from shapetrace_operator.decide.model import Attempt
from shapetrace_operator.decide.over import is_lost
from shapetrace_operator.observe import Container, Pod

_IN_ORDER = (names.CONTAINER_PREFLIGHT, names.CONTAINER_INJECT, names.CONTAINER_ENGINE)
SIGKILL_CODE = 137
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
UNKNOWN = "ContainerStatusUnknown"
"""What the kubelet writes, with exit code 137, for what it never started or lost track of."""


def record(attempt: Attempt) -> None:
    """Note the first cause in the status, if there is one."""
    if attempt.status.failure is None:
        found = next((cause for pod in attempt.pods if (cause := of_pod(attempt, pod)) is not None), None)
        found = found or _of_job(attempt)
        if found is not None:
            attempt.fail(found)


def of_pod(attempt: Attempt, pod: Pod) -> Failure | None:
    """Why a pod ended badly; None for one that runs, or ended well."""
    for name in _IN_ORDER:
        container = pod.container(name)
        if container.ended and container.exit_code != 0 and container.reason != UNKNOWN:
            return of_container(pod, container)
    engine = pod.container(names.CONTAINER_ENGINE)
    if engine.ended and engine.reason != UNKNOWN:
        return None
    if pod.over or is_lost(attempt, pod):
        return _lost(pod)
    return None


def of_container(pod: Pod, container: Container) -> Failure:
    """Why a container ended badly: its own words, or what its exit code tells."""
    said = container.termination
    code = container.exit_code
    if said is not None:
        message = said.message
        taken = pod.disruption or ("the pod was deleted" if pod.deletion or pod.gone else "")
        if taken and said.reason == Reason.STOPPED.value:
            message = f"{message} ({taken})"
        return Failure(
            rank=_whole(said.rank, 0, MAX_RANKS - 1),
            container=container.name,
            exit_code=_whole(said.exitCode, -255, 255, code),
            reason=said.reason if _WORD.fullmatch(said.reason) else Reason.ENGINE_FAILED.value,
            message=message,
        )
    return ranks.failure(_reason(container), _words(container), container=container.name, exit_code=code)


def _whole(value: Any, least: int, most: int, otherwise: int | None = None) -> int | None:
    """A number of a termination message, which an engine's script can write as well as the launcher."""
    good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    return value if good else otherwise


def _reason(container: Container) -> Reason:
    if container.reason == "OOMKilled":
        return Reason.OUT_OF_MEMORY
    known = EXIT_CODES.get(container.exit_code or 0)
    if known is not None and known is not Reason.DONE:
        return known
    return Reason.ENGINE_FAILED if container.name == names.CONTAINER_ENGINE else Reason.CONTAINER_CONFIG


def _words(container: Container) -> str:
    if container.reason == "OOMKilled":
        return (
            f"the container {container.name} was killed for want of memory: raise spec.pod.resources "
            "(spool and shared memory are added to it)"
        )
    signal = " (SIGKILL)" if container.exit_code == SIGKILL_CODE else ""
    detail = f": {container.message}" if container.message else ", and left no message; see its log"
    return f"the container {container.name} ended with exit code {container.exit_code}{signal}{detail}"


def _lost(pod: Pod) -> Failure:
    why = pod.disruption or pod.message or _how_lost(pod)
    node = f" on node {pod.node}" if pod.node else ""
    return ranks.failure(Reason.POD_LOST, f"the pod {pod.name}{node} was lost: {why}", container=None)


def _how_lost(pod: Pod) -> str:
    if pod.gone or (pod.over and pod.deletion is not None):
        return "it was deleted"
    return "it ended, and no container tells why" if pod.over else "its node does not answer"


def _of_job(attempt: Attempt) -> Failure | None:
    if attempt.pods:
        return None
    job = attempt.job
    if job is None:
        return ranks.failure(Reason.POD_LOST, "the Job of this attempt was deleted by someone else")
    if job.failed is not None:
        reason = Reason.DEADLINE_EXCEEDED if job.failed.startswith("DeadlineExceeded") else Reason.POD_LOST
        return ranks.failure(reason, f"the Job {job.name} failed and its pod is gone: {job.failed}")
    return None
