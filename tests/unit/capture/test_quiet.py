"""A window with stacks starts when the other threads rest; where they never do, after a short bounded time."""

from __future__ import annotations

import threading
import time

import pytest
from shapetrace_capture import quiet
from shapetrace_capture.quiet import WAIT_AGAIN_SECONDS, WAIT_SECONDS, Quiet


class Others:
    """Threads that rest at given looks, and the clock of the looks."""

    def __init__(self, rest_at: set[int]) -> None:
        self.rest_at, self.looks, self.now = rest_at, 0, 0.0

    def busy(self) -> bool:
        self.looks += 1
        return self.looks not in self.rest_at

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def quiet(self) -> Quiet:
        return Quiet(self.clock, self.sleep, self.busy)


def test_the_first_quiet_moment_ends_the_wait() -> None:
    others = Others(rest_at={4})
    assert others.quiet().wait()
    assert others.looks == 4


def test_threads_that_never_rest_cost_the_limit_once_and_little_afterwards() -> None:
    others = Others(rest_at=set())
    made = others.quiet()
    assert not made.wait()
    assert others.now == pytest.approx(WAIT_SECONDS, abs=0.002)
    began = others.now
    assert not made.wait()
    assert others.now - began == pytest.approx(WAIT_AGAIN_SECONDS, abs=0.002)


def test_after_a_quiet_moment_the_limit_is_whole_again() -> None:
    others = Others(rest_at={1000})
    made = others.quiet()
    assert not made.wait()
    others.rest_at = {others.looks + 1}
    assert made.wait()
    others.rest_at, began = set(), others.now
    assert not made.wait()
    assert others.now - began == pytest.approx(WAIT_SECONDS, abs=0.002)


@pytest.mark.skipif(not quiet.TASKS.is_dir(), reason="no /proc here: running threads cannot be seen")
def test_a_thread_at_work_is_seen_and_one_at_rest_is_not() -> None:
    begin, stop = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=work)
    thread.start()
    made = Quiet(time.monotonic, time.sleep)
    try:
        assert made.wait(), "a thread that waits for a lock is at rest"
        begin.set()
        assert not made.wait()
    finally:
        begin.set()
        stop.set()
        thread.join()
    assert made.wait()
