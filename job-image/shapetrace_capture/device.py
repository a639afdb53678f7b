"""The few questions to torch's device, asked so that a CPU build answers too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shapetrace_capture.libraries import packages


def kind(torch: Any) -> str:
    """``rocm``, ``cuda`` or ``cpu``: an accelerator counts once this process uses it."""
    if not torch.cuda.is_initialized():
        return "cpu"
    return "rocm" if torch.version.hip else "cuda"


def is_capturing(torch: Any) -> bool:
    """Whether the current stream records a graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def synchronise(torch: Any) -> None:
    """Wait for the device, so that the tail of a warm-up does not leak into the window."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def other_profiler(torch: Any) -> bool:
    """Whether a profiler that is not ours runs in this process: torch allows one."""
    python_side = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    return bool(python_side or torch.autograd._profiler_enabled())


def versions(torch: Any) -> dict[str, Any]:
    """What ``environment.json`` tells of torch, the device and the packages that compute on it."""
    found: dict[str, Any] = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "hip": torch.version.hip}
    found.update(packages())
    if torch.cuda.is_initialized():
        found["deviceName"] = _answer(torch.cuda.get_device_name)
        found["deviceArchitecture"] = _answer(lambda: _architecture(torch))
        found["driver"] = _answer(lambda: torch._C._cuda_getDriverVersion())  # noqa: PLW0108 - ROCm's has none
        collectives = "rccl" if torch.version.hip else "nccl"
        found[collectives] = _answer(lambda: ".".join(map(str, torch.cuda.nccl.version())))
    return found


def _architecture(torch: Any) -> str:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return str(properties.gcnArchName) if torch.version.hip else f"sm_{properties.major}{properties.minor}"


def _answer(question: Callable[[], Any]) -> Any:
    """None where this build has no answer: one of many facts is not worth the record."""
    try:
        return question()
    except Exception:
        return None
