"""`shapetrace run-local` as a person starts it, and what it must not leave behind."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("torch") and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed here: make venv-torch")


def processes() -> dict[int, tuple[int, str]]:
    """pid -> (parent, command line) of every process that can be seen."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            found[int(path.name)] = (parent, command)
    return found


def descendants(pid: int) -> dict[int, str]:
    """Command lines of the children of ``pid``, and of theirs."""
    table = processes()
    below, grown = {pid}, True
    while grown:
        more = {child for child, (parent, _) in table.items() if parent in below} - below
        below, grown = below | more, bool(more)
    return {child: table[child][1] for child in below - {pid}}


class Started:
    """A run-local under way: its lines on stderr as they come, its children."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "shapetrace_cli", "run-local", *arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self.seen: set[int] = set()

    def until(self, pattern: str) -> None:
        """Read stderr until ``pattern`` is found in a line; the run's children are noted on the way."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            self.note()
            if re.search(pattern, line):
                return
        pytest.fail(f"no line holds {pattern!r}:\n{''.join(self.lines)}")

    def note(self) -> dict[int, str]:
        children = descendants(self.process.pid)
        self.seen |= set(children)
        return children

    def child(self, module: str) -> int:
        """The pid of the child that runs a module."""
        return next(pid for pid, command in self.note().items() if command.rstrip().find(f"-m {module} ") >= 0)

    def end(self) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=240)
        return self.process.returncode, out, "".join(self.lines) + err


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where spools are made when /dev/shm is not used; must be empty afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def run_local(tmp_path: Path, temporary: Path) -> Iterator[Callable[..., Started]]:
    """Starts `shapetrace run-local` on a spec; kills what a failed test leaves."""
    running: list[Started] = []
    shared_before = set(Path("/dev/shm").glob("shapetrace-*"))

    def start(spec: dict[str, Any], *arguments: str) -> Started:
        path = tmp_path / "run.yaml"
        metadata = {"name": "local", "namespace": "here"}
        value = {"apiVersion": "shapetrace.dev/v1alpha1", "kind": "ProfileRun", "metadata": metadata, "spec": spec}
        path.write_text(yaml.safe_dump(value))
        made = Started(
            [str(path), "--out", str(tmp_path / "out"), *arguments], {**os.environ, "TMPDIR": str(temporary)}
        )
        running.append(made)
        return made

    yield start
    for made in running:
        if made.process.poll() is None:
            made.process.send_signal(signal.SIGTERM)
            made.process.wait(60)
        end = time.monotonic() + 60
        while (left := made.seen & set(processes())) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, "every process that a run started has ended"
    assert list(temporary.iterdir()) == []
    assert set(Path("/dev/shm").glob("shapetrace-*")) <= shared_before


@pytest.fixture
def differences() -> Callable[[Path], list[str]]:
    """The check that shares no code with the product."""
    path = Path(__file__).parents[1] / "cluster/support/independent.py"
    spec = importlib.util.spec_from_file_location("shapetrace_tests_independent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.differences
