"""What every benchmark here shares: conditions beside each figure, medians over interleaved rounds, one JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def interleaved(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """``(round, name)``: A B C, then C B A, so that no configuration always runs first or on a warmer machine."""
    for number in range(rounds):
        for name in names if number % 2 == 0 else list(reversed(names)):
            yield number, name


def conditions(**more: Any) -> dict[str, Any]:
    """What the figures depend on: the machine, its load now, and what the benchmark adds."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load1": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **more,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def median(values: Sequence[float]) -> float:
    """The median, three digits."""
    return round(statistics.median(values), 3)


def write(path: Path, result: Mapping[str, Any]) -> None:
    """The result's file: a whole one or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=2) + "\n")
    part.replace(path)


def line(name: str, ratio: float, described: Mapping[str, Any]) -> str:
    """The closing line: ``name ratio=... conditions=...``, the conditions as JSON without blanks."""
    return f"{name} ratio={ratio:.3f} conditions={json.dumps(described, separators=(',', ':')).replace(' ', '_')}"
