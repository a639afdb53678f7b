"""The few questions to torch's device, asked so that a CPU build answers too."""

from __future__ import annotations

from typing import Any


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
    """What ``environment.json`` tells of torch and the device."""
    found: dict[str, Any] = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "hip": torch.version.hip}
    if torch.cuda.is_initialized():
        found["deviceName"] = torch.cuda.get_device_name()
        driver = getattr(torch._C, "_cuda_getDriverVersion", None)
        found["driver"] = driver() if driver is not None else None
    return found
