"""Which Python threads ran while a window was open."""

from __future__ import annotations

import threading

from shapetrace_capture.beside import Beside, run_nanoseconds


class Threads(dict[int, "int | None"]):
    """Identities and times on a CPU, changed by the test."""

    def look(self) -> dict[int, int | None]:
        return dict(self)


def test_a_thread_that_slept_through_the_window_did_not_run() -> None:
    threads = Threads({1: 500})
    beside = Beside(threads.look)
    threads[1] = 700  # it runs before the window, and after
    beside.opening()
    beside.closed()
    threads[1] = 900
    assert not beside.ran()


def test_a_thread_that_ran_in_the_window_is_remembered_as_long_as_it_lives() -> None:
    threads = Threads({1: 500, 2: 500})
    beside = Beside(threads.look)
    beside.opening()
    threads[1] = 501
    beside.closed()
    for _ in range(2):
        beside.opening()
        beside.closed()
        assert beside.ran()
    del threads[1]
    assert not beside.ran()


def test_a_thread_that_began_in_the_window_ran() -> None:
    threads = Threads()
    beside = Beside(threads.look)
    beside.opening()
    threads[1] = 0
    beside.closed()
    assert beside.ran()


def test_a_thread_whose_time_cannot_be_told_is_taken_to_have_run() -> None:
    threads = Threads({1: None})
    beside = Beside(threads.look)
    beside.opening()
    beside.closed()
    assert beside.ran()


def test_the_others_are_all_threads_but_the_one_that_asks() -> None:
    waiting, stop = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        stop.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    try:
        found = run_nanoseconds()
    finally:
        stop.set()
        thread.join()
    assert thread.ident in found
    assert threading.get_ident() not in found
