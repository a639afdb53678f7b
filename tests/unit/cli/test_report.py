"""What a person who waits sees where there is no terminal."""

from __future__ import annotations

import io
import threading

import pytest
from shapetrace_cli.report import Reporter


class Log(io.StringIO):
    """Tells when a line has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if text.endswith("\n"):
            self.came.set()
        return count


@pytest.mark.timeout(90)
def test_one_large_object_is_told_of_while_it_is_under_way() -> None:
    log = Log()
    with Reporter("dir", 1, 100, log) as reporter:
        reporter.begin("reading 1 file", 0.01)
        assert log.came.wait(60)
    assert log.getvalue() == "dir: reading 1 file\n"


def test_what_is_over_before_a_person_waits_is_not_told_of() -> None:
    log = Log()
    with Reporter("dir", 1, 100, log) as reporter:
        reporter.begin("reading 1 file")
        reporter.step(100)
    assert log.getvalue() == ""
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_quiet_is_quiet() -> None:
    log = Log()
    with Reporter("dir", 1, 100, log, quiet=True) as reporter:
        reporter.begin("reading 1 file", 0)
    assert log.getvalue() == ""
