"""As PID 1 the launcher reaps what is left to it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import pytest
from shapetrace_launcher.engines import Command
from shapetrace_launcher.processes import Processes
from shapetrace_launcher.signals import Signals

PR_SET_CHILD_SUBREAPER = 36

ORPHAN = """
import os, sys
if os.fork() == 0:
    orphan = os.fork()
    if orphan == 0:
        os._exit(3)
    open(sys.argv[1], "w").write(str(orphan))
    os._exit(0)
os.wait()
"""


def test_orphans_are_reaped_and_do_not_count_as_ranks(tmp_path: Path) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        pytest.skip("this kernel has no child subreaper, so orphans cannot be given to this process")
    pid_file = tmp_path / "orphan"
    try:
        with Signals() as signals:
            processes = Processes(lambda _: None, signals)
            command = Command((sys.executable, "-c", ORPHAN, str(pid_file)), (0,))
            processes.start([command], [dict(os.environ)])
            assert processes.wait_until(lambda: bool(processes.exits), 30)
            # only this orphan is asked for: the process that runs the tests may have children of its own
            orphan = int(pid_file.read_text())
            assert processes.wait_until(lambda: not _is_child(orphan), 30)
            processes.close()
        assert [(end.ranks, end.code) for end in processes.exits] == [((0,), 0)]
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _is_child(pid: int) -> bool:
    """Whether it runs below this process or waits there to be reaped."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def test_output_without_a_newline_and_endless_lines_are_passed_on(tmp_path: Path) -> None:
    seen: list[bytes] = []
    script = "import sys; sys.stdout.write('x' * 300_000 + '\\nlast words')"
    with Signals() as signals:
        processes = Processes(seen.append, signals)
        processes.start([Command((sys.executable, "-c", script), (0,))], [dict(os.environ)])
        processes.wait_until(lambda: bool(processes.exits), 30)
        processes.end(0)
        processes.close()
    text = b"".join(seen)
    assert text.replace(b"\n", b"") == b"x" * 300_000 + b"last words"
    assert processes.exits[0].last_words == "last words"


KEEPS_THE_PIPE = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
"""


def test_a_grandchild_that_keeps_the_pipe_open_is_not_waited_for(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with Signals() as signals:
        processes = Processes(lambda _: None, signals)
        command = Command((sys.executable, "-c", KEEPS_THE_PIPE, str(pid_file)), (0,))
        processes.start([command], [dict(os.environ)])
        assert processes.wait_until(lambda: bool(processes.exits), 30)
        processes.end(0)  # would never come back if it read to the end of the pipe
        processes.close()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
