"""Requests and limits. Every container has both, so that quotas on limits take the pod; none is of class Guaranteed by
accident: what we add is asked for below its limit.
"""

from __future__ import annotations

from shapetrace_api.quantity import parse
from shapetrace_api.spec import ProfileRunSpec

from shapetrace_operator.build.defaults import GIB, MIB, Defaults
from shapetrace_operator.objects import Object

CPU_REQUESTS = {"cpu": "500m", "memory": "1Gi"}
CPU_LIMITS = {"cpu": "8", "memory": "8Gi"}
"""For a run without an accelerator that gives none: enough for the small decoder of the engine torch."""
REQUESTED_CPUS_PER_DEVICE, MOST_CPUS_PER_DEVICE = 2, 16
REQUESTED_GIB_PER_DEVICE, MOST_GIB_PER_DEVICE = 16, 128
"""For a run with an accelerator that gives none: serving engines stage weights in host memory. Nodes with eight devices
have 1 to 3 TiB of it and 96 to 256 CPUs."""
SPOOL_BYTES_PER_RANK = GIB // 2
"""A trace of a large model is up to 300 MiB raw, and all ranks capture a shape at the same time."""
SHM_BYTES_PER_DEVICE = GIB
"""Tensor parallel engines exchange through /dev/shm; vendors advise 8 to 16 GiB for eight devices."""

PREFLIGHT: Object = {
    "requests": {"cpu": "50m", "memory": "96Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
INJECT: Object = {"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
COLLECTOR: Object = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"cpu": "4", "memory": "2Gi"},
}
"""The collector compresses and uploads while the engine captures; its memory holds a trace at a time."""
FINISH: Object = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}}


def size_bytes(text: str | None, default_bytes: int) -> int:
    """A size in whole bytes."""
    return int(parse(text)) if text else default_bytes


def spool_bytes(spec: ProfileRunSpec, defaults: Defaults) -> int:
    """Size of the spool."""
    room_bytes = max(defaults.spool_bytes, SPOOL_BYTES_PER_RANK * spec.parallelism.ranks)
    return size_bytes(spec.pod.spool_size, room_bytes)


def shm_bytes(spec: ProfileRunSpec, defaults: Defaults) -> int:
    """Size of /dev/shm."""
    devices = spec.parallelism.ranks if spec.accelerator.device_resource else 0
    return size_bytes(spec.pod.shm_size, max(defaults.shm_bytes, SHM_BYTES_PER_DEVICE * devices))


def mebibytes(count_bytes: int) -> str:
    """A size as Kubernetes shows it, rounded up to whole MiB."""
    return f"{-(-count_bytes // MIB)}Mi"


def engine_resources(spec: ProfileRunSpec, defaults: Defaults) -> Object:
    """What the engine's container asks for and may use.

    Spool and /dev/shm are memory that is charged to the container that writes them, the engine: they are added to what
    the run asks for, or the engine is killed for want of memory while it records.
    """
    asked = spec.pod.resources
    usual_requests, usual_limits = _usual(spec)
    requests = {**usual_requests, **(asked.requests if asked else {})}
    limits = {**usual_limits, **(asked.limits if asked else {})}
    if asked is not None:
        for name, text in requests.items():  # a run that asks for more than our default limit gets what it asks for
            if name not in asked.limits and name in limits and parse(limits[name]) < parse(text):
                limits[name] = text
        for name, text in limits.items():
            if name not in asked.requests and name in requests and parse(requests[name]) > parse(text):
                requests[name] = text
    added_bytes = spool_bytes(spec, defaults) + shm_bytes(spec, defaults)
    for amounts in (requests, limits):
        amounts["memory"] = mebibytes(int(parse(amounts["memory"])) + added_bytes)
    devices = devices_of(spec)
    return {"requests": {**requests, **devices}, "limits": {**limits, **devices}}


def _usual(spec: ProfileRunSpec) -> tuple[dict[str, str], dict[str, str]]:
    if spec.accelerator.device_resource is None:
        return CPU_REQUESTS, CPU_LIMITS
    ranks = spec.parallelism.ranks
    return (
        {"cpu": str(REQUESTED_CPUS_PER_DEVICE * ranks), "memory": f"{REQUESTED_GIB_PER_DEVICE * ranks}Gi"},
        {"cpu": str(MOST_CPUS_PER_DEVICE * ranks), "memory": f"{MOST_GIB_PER_DEVICE * ranks}Gi"},
    )


def devices_of(spec: ProfileRunSpec) -> dict[str, str]:
    """Extended resources: requests and limits have to be equal."""
    devices = dict(spec.accelerator.extra_resources)
    resource = spec.accelerator.device_resource
    if resource is not None:
        devices[resource] = str(spec.parallelism.ranks)
    return devices
