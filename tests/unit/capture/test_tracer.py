"""What is known of torch's Python tracer."""

from __future__ import annotations

import sys
import threading

import pytest
from shapetrace_capture.tracer import is_fragile, sees_stray_return


@pytest.mark.parametrize(
    ("version", "fragile"),
    [
        ("2.6.0+debian", True),
        ("2.7.1", True),
        ("1.13.1", True),
        ("2.8.0a0+git1234", False),
        ("2.8.0", False),
        ("2.15.0+cu132", False),
        ("3.0", False),
        ("unknown", False),
        ("2.x", False),
    ],
)
def test_torch_is_fragile_before_2_8(version: str, fragile: bool) -> None:
    assert is_fragile(version) is fragile


def test_no_stray_return_is_seen_where_nothing_traces() -> None:
    assert not sees_stray_return()
    assert not sees_stray_return(), "the question leaves nothing behind"
    assert sys.getprofile() is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12 calls are traced by thread")
def test_calls_traced_for_another_thread_give_a_stray_return() -> None:
    traced, stop = threading.Event(), threading.Event()

    def trace() -> None:
        sys.setprofile(lambda *_: None)
        traced.set()
        stop.wait()

    thread = threading.Thread(target=trace)
    thread.start()
    traced.wait()
    try:
        assert sees_stray_return()
    finally:
        stop.set()
        thread.join()
    assert not sees_stray_return()
