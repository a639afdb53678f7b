"""Exit codes and the reasons that conditions, failures and messages carry: part of the API."""

from __future__ import annotations

from enum import Enum


class Reason(str, Enum):
    """Why something ended as it did. The value is what conditions and messages show."""

    # the containers' own, with an exit code each
    DONE = "Done"
    STORAGE_UNREACHABLE = "StorageUnreachable"
    STORAGE_DENIED = "StorageDenied"
    CONDITIONAL_WRITES_IGNORED = "ConditionalWritesIgnored"
    ATTEMPT_TAKEN = "AttemptTaken"
    BAD_CONFIGURATION = "BadConfiguration"
    ENGINE_FAILED = "EngineFailed"
    HOOKS_NOT_APPLIED = "HooksNotApplied"
    UPLOAD_TIMEOUT = "UploadTimeout"
    FINISH_STORAGE = "FinishStorage"
    NOTHING_TO_FINISH = "NothingToFinish"
    STOPPED = "Stopped"
    # what only the operator sees
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG = "ContainerConfigError"
    MOUNT_FAILED = "MountFailed"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ADMISSION_REFUSED = "AdmissionRefused"
    PENDING_TIMEOUT = "PendingTimeout"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    OUT_OF_MEMORY = "OutOfMemory"
    POD_LOST = "PodLost"
    SUSPENDED = "Suspended"
    FINISH_FAILED = "FinishFailed"
    NOT_PROVEN = "NotProven"

    def __str__(self) -> str:
        return self.value


EXIT_CODES: dict[int, Reason] = {
    0: Reason.DONE,
    40: Reason.STORAGE_UNREACHABLE,
    41: Reason.STORAGE_DENIED,
    42: Reason.CONDITIONAL_WRITES_IGNORED,
    43: Reason.ATTEMPT_TAKEN,
    44: Reason.BAD_CONFIGURATION,
    50: Reason.ENGINE_FAILED,
    51: Reason.HOOKS_NOT_APPLIED,
    52: Reason.UPLOAD_TIMEOUT,
    60: Reason.FINISH_STORAGE,
    61: Reason.NOTHING_TO_FINISH,
    143: Reason.STOPPED,
}
"""Exit code of a container of ours -> reason. 143 is 128 + SIGTERM: stopped before drained, never 0."""

MEANING: dict[Reason, tuple[str, str]] = {
    Reason.DONE: ("launcher", "every rank was done and everything it captured is stored"),
    Reason.STORAGE_UNREACHABLE: ("preflight", "the object store did not answer within 20 s"),
    Reason.STORAGE_DENIED: ("preflight", "the object store refused: credentials, a missing right, or no such bucket"),
    Reason.CONDITIONAL_WRITES_IGNORED: ("preflight", "the store overwrote an object that it was told to keep"),
    Reason.ATTEMPT_TAKEN: ("preflight", "another pod already works, or worked, on this attempt"),
    Reason.BAD_CONFIGURATION: ("any", "a setting cannot be used; the message names it"),
    Reason.ENGINE_FAILED: ("launcher", "the engine ended badly; the message names the first rank that died"),
    Reason.HOOKS_NOT_APPLIED: ("launcher", "the engine ran without our hooks, so nothing it did is recorded"),
    Reason.UPLOAD_TIMEOUT: ("launcher", "not everything could be stored within uploadTimeoutSeconds"),
    Reason.FINISH_STORAGE: ("finish", "the finish could not read from or write to the object store"),
    Reason.NOTHING_TO_FINISH: ("finish", "no claim exists: the attempt never passed its preflight"),
    Reason.STOPPED: ("launcher", "stopped (deleted, evicted, suspended) before everything was stored"),
    Reason.UNSCHEDULABLE: ("operator", "no node can take the pod; the message is the scheduler's"),
    Reason.IMAGE_PULL_FAILED: ("operator", "an image cannot be pulled"),
    Reason.CONTAINER_CONFIG: ("operator", "a container cannot be made, for example because a Secret is missing"),
    Reason.MOUNT_FAILED: ("operator", "a volume cannot be mounted"),
    Reason.QUOTA_EXCEEDED: ("operator", "a ResourceQuota refuses the pod"),
    Reason.ADMISSION_REFUSED: ("operator", "admission (Pod Security, a webhook, a missing ServiceAccount) refuses it"),
    Reason.PENDING_TIMEOUT: ("operator", "the engine did not start within pendingTimeoutSeconds"),
    Reason.DEADLINE_EXCEEDED: ("operator", "the run took longer than activeDeadlineSeconds"),
    Reason.OUT_OF_MEMORY: ("operator", "the kernel killed a process of the engine for want of memory"),
    Reason.POD_LOST: ("operator", "the pod vanished: deleted, evicted, or its node was lost"),
    Reason.SUSPENDED: ("operator", "suspended by spec.suspend"),
    Reason.FINISH_FAILED: ("operator", "three finish Jobs ended without a result"),
    Reason.NOT_PROVEN: ("operator", "strict is set, and a trace's label is not proven or distinct"),
}
"""Reason -> (who says it, what it means); the table in docs is generated from here."""


def exit_code(reason: Reason) -> int:
    """The exit code of a container's reason; KeyError for the operator's own reasons, which have none."""
    return {value: code for code, value in EXIT_CODES.items()}[reason]


class Verdict(str, Enum):
    """What the evidence says of a rank and of a run, in the order in which it is decided."""

    MISLABELLED = "Mislabelled"
    UNDER_RECORDED = "UnderRecorded"
    PARTIAL = "Partial"
    EAGER = "Eager"
    COMPLETE = "Complete"

    def __str__(self) -> str:
        return self.value


GOOD_VERDICTS = (Verdict.COMPLETE, Verdict.EAGER)
"""With these a run succeeds. A tuple, because ``in`` then takes a verdict's text too."""


class RankState(str, Enum):
    """``status.ranks[].state``."""

    WAITING = "Waiting"
    LOADING = "Loading"
    CAPTURING = "Capturing"
    DRAINING = "Draining"
    DONE = "Done"
    FAILED = "Failed"
    LOST = "Lost"

    def __str__(self) -> str:
        return self.value
