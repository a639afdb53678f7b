"""How many CPUs this container may use: the smaller of its affinity and its cgroup's quota."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """At least 1. A pod with a CPU limit sees all CPUs of the node in its affinity."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return max(1, cores if quota is None else min(cores, int(quota)))


def _quota(cgroup: Path) -> float | None:
    """Quota in CPUs; None without one. Version 2: ``cpu.max``, version 1: two files."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = " ".join((cgroup / name).read_text() for name in names).split()
            limit_us, period_us = (int(word) for word in words[:2])
        except (OSError, ValueError):  # no such file, or "max": no quota
            continue
        return limit_us / period_us if limit_us > 0 and period_us > 0 else None
    return None
