"""One run of the engine, from its start to the launcher's answer."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import spool
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Reason

from shapetrace_launcher.cause import Answer, Cause, Observed, answer, cause_of
from shapetrace_launcher.command import build, environment_of
from shapetrace_launcher.complete import complete
from shapetrace_launcher.cpus import usable_cores
from shapetrace_launcher.engines import Context, EngineConfigurationError
from shapetrace_launcher.log import BoundedLog
from shapetrace_launcher.processes import Processes
from shapetrace_launcher.settings import Settings
from shapetrace_launcher.signals import Signals

POLL_SECONDS = 0.2
"""How often the ranks' records are looked at; ends of processes and signals wake at once."""
END_SECONDS = 30.0
"""How long an engine whose ranks are all done may take to end by itself, and so to free its devices in order."""
TERM_SECONDS = 10.0
"""Between SIGTERM and SIGKILL, at the most."""


class Launcher:
    """Starts the engine, notes the first cause of its end, waits for the drain."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        signals: Signals,
        output: Callable[[bytes], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._signals = signals
        self._output = output
        self._clock = clock
        self._told_to_stop_at: float | None = None
        self._noted_at = clock()
        self._processes = Processes(self._sink, signals, clock)
        self._log: BoundedLog | None = None

    def run(self) -> Answer:
        """Everything; the answer says how to exit."""
        folder = self._settings.spool
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / spool.STOPPED).exists():
            text = f"{folder} holds the records of an earlier run; give each run an empty spool"
            return Answer(44, Reason.BAD_CONFIGURATION, text, drained=False)
        self._log = BoundedLog.in_spool(folder / spool.ENGINE_LOG)
        try:
            cause = self._start() or self._watch()
            self._end(cause)
            return answer(cause, self._drain(), self._terminated)
        finally:
            self._processes.end(0)
            self._processes.close()
            self._log.close()

    @property
    def _terminated(self) -> bool:
        if self._signals.stopped and self._told_to_stop_at is None:
            self._told_to_stop_at = self._clock()
        return self._signals.stopped

    def _sink(self, lines: bytes) -> None:
        self._output(lines)
        if self._log is not None:
            self._log.write(lines)

    def _say(self, text: str) -> None:
        self._sink(f"shapetrace_launcher: {text}\n".encode())

    def _start(self) -> Cause | None:
        try:
            context = Context(sys.executable, free_port(), usable_cores())
            commands = build(self._settings.engine, self._settings.capture, context)
            for command in commands:
                self._say(f"starting {command.name}: {shorten(shlex.join(command.argv))}")
            self._processes.start(commands, [environment_of(command, self._environment) for command in commands])
        except EngineConfigurationError as error:
            return Cause(Reason.BAD_CONFIGURATION, str(error))
        except OSError as error:
            return Cause(Reason.BAD_CONFIGURATION, f"engine.args: the program cannot be started: {error}")
        return None

    def _watch(self) -> Cause:
        """Until there is a cause."""
        looked_at, ended = self._clock(), 0
        while True:
            self._processes.wait(POLL_SECONDS)
            now = self._clock()
            # an engine that prints much wakes us often, and the records need not be read each time
            if now - looked_at < POLL_SECONDS and len(self._processes.exits) == ended and not self._terminated:
                continue
            looked_at, ended = now, len(self._processes.exits)
            cause = self._look()
            if cause is not None:
                return cause

    def _look(self) -> Cause | None:
        exits = list(self._processes.exits)  # before the records: see Observed
        folder, engine = self._settings.spool, self._settings.engine
        if engine.name == "command":
            # a script's own end says that it is done, not its records
            if exits and exits[0].code == 0:
                self._complete(folder)
            elif not exits and not self._terminated:
                return None
        records: dict[int, Mapping[str, Any]] = {}
        done: dict[int, Mapping[str, Any]] = {}
        for rank, rank_folder in spool.rank_folders(folder).items():
            for found, name in ((records, spool.RANK), (done, spool.DONE)):
                value = _read(rank_folder / name)
                if value is not None:
                    found[rank] = value
        return cause_of(Observed(tuple(range(engine.ranks)), exits, records, done, self._terminated))

    def _complete(self, folder: Path) -> None:
        try:
            complete(folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._say(f"the records of the script cannot be completed: {type(error).__name__}: {error}")

    def _end(self, cause: Cause) -> None:
        """Note the first cause, then end the engine, so that no later death can hide it."""
        self._say(f"{cause.reason}: {cause.message}")
        if cause.reason is Reason.STOPPED:
            self._processes.end(min(TERM_SECONDS, self._settings.limits.disruptionGraceSeconds / 4))
            self._note(cause)
        elif cause.reason is Reason.DONE:
            self._note(cause)
            self._processes.wait_until(lambda: not self._processes.alive or self._terminated, END_SECONDS)
            self._processes.end(min(TERM_SECONDS, self._settings.limits.disruptionGraceSeconds / 4))
        else:
            # stopped, so that no record can follow stopped.json, which readers take for the end of the records
            self._processes.signal(signal.SIGSTOP)
            self._note(cause)
            self._processes.end(0)

    def _note(self, cause: Cause) -> None:
        try:
            with contextlib.suppress(OSError):
                # the collector writes it after stopped.json only: an earlier one is the engine's, or was left over
                (self._settings.spool / spool.DRAINED).unlink()
            spool.write_json(self._settings.spool / spool.STOPPED, cause.to_json())
        except OSError as error:
            self._say(f"stopped.json cannot be written: {error}")
        self._noted_at = self._clock()

    def _drain(self) -> Mapping[str, Any] | None:
        """The collector's result, or None after ``uploadTimeoutSeconds`` (or what SIGTERM left of the grace)."""
        limits = self._settings.limits
        path = self._settings.spool / spool.DRAINED

        def is_over() -> bool:
            limit = self._noted_at + limits.uploadTimeoutSeconds
            if self._terminated and self._told_to_stop_at is not None:
                # a quarter of the grace is left to the collector, which is told to end only after us
                limit = min(limit, self._told_to_stop_at + limits.disruptionGraceSeconds * 3 / 4)
            return path.exists() or self._clock() >= limit

        if not path.exists():
            self._say(f"waiting for what was captured to be stored, {limits.uploadTimeoutSeconds} s at the most")
        self._processes.wait_until(is_over, limits.uploadTimeoutSeconds, POLL_SECONDS)
        return _read(path)


def _read(path: Path) -> dict[str, Any] | None:
    """A record, None where there is none or none that can be read."""
    try:
        return spool.read_json(path)
    except (OSError, ValueError):
        return None


def free_port() -> int:
    """A TCP port of this pod that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def to_stdout(data: bytes) -> None:
    """All of ``data`` to standard output; a reader that went away costs nothing but the output."""
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return
