"""Back-pressure first, then a loss that says why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shapetrace_capture.room import Room

MIB = 1 << 20


class Spool:
    """A file system of a given size whose free space changes as time passes, and the clock of that time."""

    def __init__(self, total: int, free: list[int]) -> None:
        self.total, self.free, self.now, self.looks = total, free, 0.0, 0

    def usage(self, _: Path) -> Any:
        self.looks += 1
        free = self.free.pop(0) if len(self.free) > 1 else self.free[0]
        return SimpleNamespace(f_bavail=free, f_frsize=MIB, f_blocks=self.total)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def room(self, wait_seconds: float = 30.0) -> Room:
        return Room(Path("/spool"), wait_seconds, self.clock, self.sleep, self.usage)


@pytest.mark.parametrize(
    ("total", "free", "is_free"),
    [
        (256, 64, True),
        (256, 63, False),
        (2000, 200, True),
        (2000, 199, False),
        (1_000_000, 1024, True),  # a local run on a large disk that is nearly full
        (1_000_000, 1023, False),
    ],
)
def test_64_mib_and_a_tenth_are_kept(total: int, free: int, is_free: bool) -> None:
    assert (Spool(total, [free]).room(0).wait() is None) is is_free


def test_a_capture_waits_until_the_collector_made_room() -> None:
    spool = Spool(256, [10, 10, 10, 100])
    assert spool.room().wait() is None
    assert 0 < spool.now < 1


def test_the_wait_is_bounded_and_says_what_is_missing() -> None:
    spool = Spool(256, [10])
    fault = spool.room(30).wait()
    assert fault is not None
    assert fault.startswith("spool full: 10 MiB of 256 MiB are free and 64 MiB are kept")
    assert 30 <= spool.now < 31


def test_after_a_wait_in_vain_the_next_captures_do_not_wait_until_there_was_room_again() -> None:
    spool = Spool(256, [10])
    room = spool.room(30)
    room.wait()
    waited = spool.now
    assert room.wait() is not None
    assert spool.now == waited
    spool.free = [100, 10, 10, 100]
    assert room.wait() is None
    assert room.wait() is None, "it waits again"
    assert spool.now > waited
