"""After the captures: does the profiler still see what a GPU does?

Profiler sessions before or during graph capture have left activity collection dead for the rest of a process: later
traces had operators and no kernels, and everything reported success (tokenspeed, pull requests 1287 and 1348: CUDA 13.0
and ROCm 7.2.2 with torch 2.13). So a few kernels are launched under one more session, and what it saw is told.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shapetrace_contract import spool

from shapetrace_capture import device
from shapetrace_capture.window import Options, Window

KERNELS = 8
MAX_TRACE_BYTES = 16 * 1024**2
"""Of the session's own trace, which holds some dozens of events."""


def gpu_events(torch: Any, folder: Path) -> dict[str, int] | None:
    """``launched`` and ``seen`` kernels; None where this process uses no GPU, or where another profiler runs.

    ``folder`` takes the session's trace for a moment. Raises what torch raises.
    """
    if not torch.cuda.is_initialized() or device.is_capturing(torch) or device.other_profiler(torch):
        return None
    value = torch.zeros(1, device="cuda")
    device.synchronise(torch)
    window = Window(torch, Options(record_shapes=False))
    window.open([], "{}")
    try:
        for _ in range(KERNELS):
            value.add_(1)
        device.synchronise(torch)
    finally:
        window.close()
    path = spool.temporary(folder / "gpu-events.json")
    try:
        window.save(path)
        seen = _kernels(path)
    finally:
        window.free()
        path.unlink(missing_ok=True)
    return {"launched": KERNELS, "seen": seen}


def _kernels(path: Path) -> int:
    with path.open("rb") as stream:
        events = json.loads(stream.read(MAX_TRACE_BYTES))["traceEvents"]
    return sum(1 for event in events if event.get("cat") == "kernel")
