"""What keeps a pod from starting: the condition that shows it, what to do about it, and how long it may last.

What waits without holding a device (no node, no quota) waits for ``pendingTimeoutSeconds``. What holds devices and
cannot heal by itself ends the attempt soon, so that others get them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shapetrace_api.status import ConditionType
from shapetrace_contract import names
from shapetrace_contract.reasons import Reason

from shapetrace_operator.decide.model import Attempt
from shapetrace_operator.observe import Container, Event, Job, Pod

REFUSED_GRACE_SECONDS = 20
"""Never pulled, an invalid name, refused by Pod Security: only the run or the cluster's policy can change it."""
MISSING_GRACE_SECONDS = 30
"""A missing Secret or ConfigMap: what is applied together with the run arrives within seconds. The pod holds its
devices meanwhile, which have to be free again within a minute."""
PULL_GRACE_SECONDS = 300
"""A registry may be away or slow for minutes; the pod holds its devices meanwhile."""

_PLACEMENT = "spec.accelerator, spec.parallelism and spec.pod"
_NEVER_PULLED = {"ErrImageNeverPull", "InvalidImageName"}
_PULLING = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_ORDER = (
    names.CONTAINER_PREFLIGHT,
    names.CONTAINER_INJECT,
    names.CONTAINER_COLLECTOR,
    names.CONTAINER_ENGINE,
    names.CONTAINER_FINISH,
)
_TRY = re.compile(r"^(\(combined from similar events\): )?(Error creating: )?(pods \"[^\"]*\" is forbidden: )?")
_BACK_OFF = re.compile(r"^Back-off pulling image \"[^\"]*\": [A-Za-z]+: ")
"""The kubelet says in turn that it failed and that it waits, with the same cause in both."""
_NOT_FOUND = re.compile(r"(secret|configmap|persistentvolumeclaim|serviceaccount)s? \\?\"[^\"]*\\?\" not found", re.I)


@dataclass(frozen=True)
class Blocker:
    """Why a pod does not start."""

    condition: ConditionType
    """The condition that is False because of it."""
    reason: Reason
    message: str
    """What is wrong and what to do."""
    grace_seconds: float | None = None
    """How long it may last; None: until the pending timeout."""


def find(attempt: Attempt) -> Blocker | None:
    """What keeps the attempt from starting; None where nothing does, or nothing is known yet."""
    return of_job(attempt.job, attempt.pods, attempt.observed.events)


def of_job(job: Job | None, pods: Sequence[Pod], events: Sequence[Event]) -> Blocker | None:
    """The same of any Job of ours: its pods, and the events about it or them."""
    if not pods:
        return _no_pod(events) if job is not None else None
    for pod in pods:
        if pod.over:
            continue
        if not pod.scheduled:
            return _unscheduled(pod)
        blocked = next((found for item in _in_order(pod) if (found := _waiting(item)) is not None), None)
        blocked = blocked or _mount(pod, events)
        if blocked is not None:
            return blocked
    return None


def _no_pod(events: Sequence[Event]) -> Blocker | None:
    """Quota and admission refuse pods silently: only Events of the Job tell."""
    refused = [event for event in events if event.reason == "FailedCreate"]
    if not refused:
        return None
    # each try names another pod; the text has to stay the same for the status to stay the same
    text = _TRY.sub("", refused[-1].message)
    if "exceeded quota" in text or "must specify limits" in text:
        return Blocker(
            ConditionType.SCHEDULED,
            Reason.QUOTA_EXCEEDED,
            f"the namespace's quota refuses the pod: {text}; lower spec.pod.resources or wait for room",
        )
    if "violates PodSecurity" in text:
        return Blocker(
            ConditionType.SCHEDULED,
            Reason.ADMISSION_REFUSED,
            f"Pod Security refuses the pod: {text}; change spec.pod or the namespace's policy",
            REFUSED_GRACE_SECONDS,
        )
    return Blocker(
        ConditionType.SCHEDULED,
        Reason.ADMISSION_REFUSED,
        f"admission refuses the pod: {text}; look at spec.pod (serviceAccountName, priorityClassName) and webhooks",
    )


def _unscheduled(pod: Pod) -> Blocker | None:
    if pod.unschedulable is None:
        return None
    # a claim that is missing or unbound is told before any device is looked for
    about_a_claim = "persistentvolumeclaim" in pod.unschedulable.lower()
    fix = "the claims in spec.models and spec.engine.cache" if about_a_claim else _PLACEMENT
    text = f"no node takes the pod: {pod.unschedulable.rstrip('. ')}; look at {fix}"
    return Blocker(ConditionType.SCHEDULED, Reason.UNSCHEDULABLE, text)


def _in_order(pod: Pod) -> list[Container]:
    return [pod.containers[name] for name in _ORDER if name in pod.containers]


def _waiting(container: Container) -> Blocker | None:
    """A container that the kubelet cannot make."""
    engine = container.name == names.CONTAINER_ENGINE
    # StorageReady is preflight's word; what comes after it only keeps the capture from starting
    preflight = container.name == names.CONTAINER_PREFLIGHT
    condition = ConditionType.STORAGE_READY if preflight else ConditionType.CAPTURED
    if container.ended or container.started is not None:
        return None
    if container.reason in _NEVER_PULLED | _PULLING:
        never = container.reason in _NEVER_PULLED
        fix = (
            "check spec.engine.image and spec.pod.imagePullSecrets"
            if engine
            else "check the image of the shapetrace installation and spec.pod.imagePullSecrets"
        )
        return Blocker(
            condition,
            Reason.IMAGE_PULL_FAILED,
            f"the image {container.image or '?'} of container {container.name} cannot be pulled: "
            f"{_BACK_OFF.sub('', container.message) or container.reason}; {fix}",
            REFUSED_GRACE_SECONDS if never else PULL_GRACE_SECONDS,
        )
    if container.reason in _CONFIG:
        fix = "check spec.engine.env" if engine else "check spec.storage.s3.credentialsSecretRef"
        return Blocker(
            condition,
            Reason.CONTAINER_CONFIG,
            f"the container {container.name} cannot be made: {container.message}; {fix}",
            MISSING_GRACE_SECONDS,
        )
    return None


def _mount(pod: Pod, events: Sequence[Event]) -> Blocker | None:
    if any(item.started is not None for item in pod.containers.values()):
        return None
    failed = [event for event in events if event.reason in ("FailedMount", "FailedAttachVolume")]
    if not failed:
        return None
    text = failed[-1].message
    return Blocker(
        ConditionType.STORAGE_READY,
        Reason.MOUNT_FAILED,
        f"a volume cannot be mounted: {text}; check spec.storage.s3.caBundle, spec.models and spec.engine.cache",
        MISSING_GRACE_SECONDS if _NOT_FOUND.search(text) else None,
    )
