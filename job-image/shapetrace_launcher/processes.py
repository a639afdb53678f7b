"""The engine's processes: each in a session of its own, their output pumped, every child reaped (we are PID 1)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shapetrace_launcher.cause import Exit
from shapetrace_launcher.engines import Command
from shapetrace_launcher.signals import Signals
from shapetrace_launcher.words import last_words

READ_BYTES = 65536
LAST_WORDS_BYTES = 16_384
"""Enough for the tracebacks with which an engine of many processes ends."""


@dataclass
class _Running:
    command: Command
    process: subprocess.Popen[bytes]
    partial: bytes = b""
    killed: bool = False
    tail: bytes = field(default=b"", repr=False)

    @property
    def last_words(self) -> str:
        return last_words(self.tail, of_many=self.command.port is not None)


class Processes:
    """Starts, watches and ends the processes. ``sink`` takes whole lines of their output."""

    def __init__(
        self,
        sink: Callable[[bytes], None],
        signals: Signals,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._signals = signals
        self._clock = clock
        self._running: list[_Running] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.descriptor, selectors.EVENT_READ, None)
        self._prefixed = False
        self.exits: list[Exit] = []

    @property
    def alive(self) -> bool:
        """Whether a process that we started still runs."""
        return len(self.exits) < len(self._running)

    def start(self, commands: Sequence[Command], environments: Sequence[Mapping[str, str]]) -> None:
        """Start all; OSError where a program cannot be started (those before it run already)."""
        self._prefixed = len(commands) > 1
        for command, environment in zip(commands, environments, strict=True):
            process = subprocess.Popen(  # noqa: S603 - starting the run's command line is what the launcher is for
                command.argv,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            running = _Running(command, process)
            self._running.append(running)
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self._selector.register(process.stdout, selectors.EVENT_READ, running)

    def wait(self, timeout_seconds: float) -> None:
        """Until output, a signal, the end of a child, or the timeout; then pump and reap what there is."""
        for key, _ in self._selector.select(max(0.0, timeout_seconds)):
            if key.data is None:
                self._signals.read()
            else:
                self._pump(key.data)
        self._reap()

    def wait_until(self, condition: Callable[[], bool], seconds: float, poll_seconds: float = 0.2) -> bool:
        """Whether ``condition`` came true within ``seconds``; the output is pumped meanwhile."""
        end = self._clock() + seconds
        while not condition():
            left_seconds = end - self._clock()
            if left_seconds <= 0:
                return False
            self.wait(min(left_seconds, poll_seconds))
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group of each process that has not ended."""
        self._send(os.killpg, number)

    def terminate_heads(self) -> None:
        """SIGTERM to the processes that we started and to none below them: an engine ends its own in order."""
        self._send(os.kill, signal.SIGTERM)

    def _send(self, send: Callable[[int, int], None], number: int) -> None:
        for running in self._running:
            if running.process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    send(running.process.pid, number)

    def end(self, term_seconds: float, kill_seconds: float = 10.0) -> None:
        """SIGTERM, after ``term_seconds`` SIGKILL; a process in the kernel's hands is given up after ``kill_seconds``.

        The groups are killed even where their leader has ended: what it left behind still holds the device.
        """
        if term_seconds > 0 and self.alive:
            self.signal(signal.SIGTERM)
            self.wait_until(lambda: not self.alive, term_seconds)
        for running in self._running:
            if not running.killed:  # once: later the number may belong to somebody else
                running.killed = True
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(running.process.pid, signal.SIGKILL)
        self.wait_until(lambda: not self.alive, kill_seconds)
        self._drain_output()

    def close(self) -> None:
        """Give the descriptors back."""
        self._selector.close()
        for running in self._running:
            if running.process.stdout is not None:
                running.process.stdout.close()

    def _pump(self, running: _Running) -> bool:
        """Pass on what is there, in whole lines; False at the end of the output."""
        assert running.process.stdout is not None
        try:
            data = os.read(running.process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            self._selector.unregister(running.process.stdout)
            self._emit(running, b"", last=True)
            return False
        running.tail = (running.tail + data)[-LAST_WORDS_BYTES:]
        self._emit(running, data, last=False)
        return True

    def _emit(self, running: _Running, data: bytes, last: bool) -> None:
        whole, newline, rest = (running.partial + data).rpartition(b"\n")
        if last or len(rest) > READ_BYTES:  # an endless line is cut, not collected
            whole, newline, rest = running.partial + data, b"\n", b""
        running.partial = rest
        if newline and (whole or not last):
            prefix = f"[{running.command.name}] ".encode() if self._prefixed else b""
            self._sink(b"".join(prefix + line + b"\n" for line in whole.split(b"\n")))

    def _drain_output(self) -> None:
        """What the ended processes left in their pipes; a grandchild that keeps one open is not waited for."""
        for running in self._running:
            self._drain(running)

    def _drain(self, running: _Running) -> None:
        """What the pipe holds now, and no more: what left the process group may go on printing for ever."""
        stdout = running.process.stdout
        if stdout is None or stdout not in self._selector.get_map():
            return
        # one more than fill it, for the end of the output
        for _ in range(fcntl.fcntl(stdout.fileno(), fcntl.F_GETPIPE_SZ) // READ_BYTES + 1):
            if not self._readable(stdout.fileno()) or not self._pump(running):
                return

    @staticmethod
    def _readable(descriptor: int) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            return bool(selector.select(0))

    def _reap(self) -> None:
        """Take the exit codes of our processes, and of orphans that PID 1 inherits."""
        ours = {running.process.pid: running for running in self._running if running.process.returncode is None}
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            running = ours.pop(found.si_pid, None)
            if running is None:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(found.si_pid, os.WNOHANG)
                continue
            code = running.process.wait()
            self._drain(running)
            self.exits.append(Exit(running.command.name, running.command.ranks, code, running.last_words))
