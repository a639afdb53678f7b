"""A container's CPU quota, of both cgroup versions, bounds the threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shapetrace_launcher.cpus import usable_cores

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, HERE),
        ({"cpu.max": "max 100000\n"}, HERE),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "9900000000 100000\n"}, HERE),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, HERE),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu.max": "nonsense"}, HERE),
    ],
)
def test_usable_cores_are_bounded_by_the_quota_of_the_cgroup(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
