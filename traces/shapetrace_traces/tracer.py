"""What stands beside the events of a trace: device, versions, distributed place, base time. AMD's and NVIDIA's keys."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from shapetrace_traces.fold.values import bounded

ROCM_VERSIONS = ("roctracer_version", "hip_runtime_version", "hip_driver_version")
CUDA_VERSIONS = ("cupti_version", "cuda_runtime_version", "cuda_driver_version")
FLAGS = ("record_shapes", "with_stack", "with_flops", "profile_memory", "with_modules")
PLACE = {"backend": "backend", "rank": "rank", "world_size": "worldSize", "pg_count": "groups"}
"""Key of Kineto's ``distributedInfo`` -> ours. The groups themselves are left out: there may be thousands."""

TOP_LEVEL_KEYS = frozenset(
    {"shapetrace", "schemaVersion", "deviceProperties", "distributedInfo", "trace_id", "baseTimeNanoseconds"}
    | {*ROCM_VERSIONS, *CUDA_VERSIONS, *FLAGS}
)
"""Keys beside ``traceEvents`` that are kept while reading."""
_AMD = {"amd", "radeon", "instinct"}
_NVIDIA = {"nvidia", "tesla", "geforce", "quadro"}
MAX_GPU_NAMES = 16
_LARGEST = 2**63
"""Times and numbers of Kineto are 64 bits wide."""


def describe_tracer(
    top: Mapping[str, Any], calls: Collection[str] = (), *, has_activities: bool = False
) -> dict[str, Any]:
    """The fields of the index that come from beside the events. ``calls`` are names of runtime calls in them."""
    identity = top.get("trace_id")
    base = top.get("baseTimeNanoseconds")
    keys = ("schemaVersion", *ROCM_VERSIONS, *CUDA_VERSIONS)
    versions = {key: value for key in keys if _is_small(value := top.get(key))}
    return {
        "device": _device(top, calls, has_activities),
        "gpus": _gpus(top.get("deviceProperties")),
        "versions": {key: bounded(value) if isinstance(value, str) else value for key, value in versions.items()},
        "flags": [key for key in FLAGS if top.get(key) in (1, True)],
        "distributed": _place(top.get("distributedInfo")),
        "traceId": bounded(identity) if isinstance(identity, str) else None,
        "baseTimeNanoseconds": base if _is_whole(base) else None,
    }


def _device(top: Mapping[str, Any], calls: Collection[str], has_activities: bool) -> str:
    """Whose tracer wrote its version, else whose runtime was called, else whose names the GPUs have."""
    if any(key in top for key in ROCM_VERSIONS):
        return "rocm"
    if any(key in top for key in CUDA_VERSIONS):
        return "cuda"
    is_hip, is_cuda = (any(name.startswith(prefix) for name in calls) for prefix in ("hip", "cu"))
    if is_hip != is_cuda:
        return "rocm" if is_hip else "cuda"
    gpus = _gpus(top.get("deviceProperties"))
    words = {word for name in gpus for word in name.lower().split()}
    if bool(words & _AMD) != bool(words & _NVIDIA):
        return "rocm" if words & _AMD else "cuda"
    return "unknown" if gpus or has_activities else "cpu"


def _gpus(value: Any) -> dict[str, int]:
    """Name -> devices, of the most frequent names; a driver that tells no name leaves it empty."""
    devices = value if isinstance(value, list) else []
    names = Counter(bounded(str(device.get("name", ""))) for device in devices if isinstance(device, dict))
    return dict(sorted(names.most_common(MAX_GPU_NAMES)))


def _place(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    found = {name: value[key] for key, name in PLACE.items() if _is_small(value.get(key))}
    return {name: bounded(item) if isinstance(item, str) else item for name, item in found.items()}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _is_small(value: Any) -> bool:
    """Text or a number that JSON knows."""
    return isinstance(value, str) or _is_whole(value) or (isinstance(value, float) and math.isfinite(value))
