"""One run of the engine, from its start to the launcher's answer."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import spool
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Reason, exit_code
from shapetrace_contract.serving import SERVING

from shapetrace_launcher import hub
from shapetrace_launcher.cause import Answer, Cause, Observed, answer, cause_of
from shapetrace_launcher.command import build, environment_of
from shapetrace_launcher.complete import complete
from shapetrace_launcher.cpus import usable_cores
from shapetrace_launcher.engines import Command, Context, EngineConfigurationError
from shapetrace_launcher.engines.serving import installed
from shapetrace_launcher.log import BoundedLog
from shapetrace_launcher.processes import Processes
from shapetrace_launcher.serves import Serves
from shapetrace_launcher.settings import Settings
from shapetrace_launcher.signals import Signals

POLL_SECONDS = 0.2
"""How often the ranks' records are looked at; ends of processes and signals wake at once."""
END_SECONDS = 30.0
"""How long an engine whose ranks are all done may take to end, by itself or told to, and so to free its devices in
order."""
TELL_SECONDS = 5.0
"""How often an engine that serves is told to end meanwhile."""
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
        self._engine = settings.engine
        self._fetched = False
        self._resolved: list[dict[str, Any]] = []
        self._serves = Serves(None, clock)
        self._name = ""

    def run(self) -> Answer:
        """Everything; the answer says how to exit."""
        folder = self._settings.spool
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / spool.STOPPED).exists():
            text = f"{folder} holds the records of an earlier run; give each run an empty spool"
            return Answer(exit_code(Reason.BAD_CONFIGURATION), Reason.BAD_CONFIGURATION, text, drained=False)
        self._log = BoundedLog.in_spool(folder / spool.ENGINE_LOG)
        try:
            cause = self._fetch() or self._start() or self._watch()
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
        self._sink(f"shapetrace_launcher: {text}\n".encode(errors="replace"))

    def _fetch(self) -> Cause | None:
        """The models on a hub, into the cache; ``_engine`` then has their folders."""
        if self._engine.name not in SERVING or not hub.on_hub(self._engine):
            return None
        try:
            self._build()  # what cannot be started is not worth a download
        except EngineConfigurationError as error:
            return Cause(Reason.BAD_CONFIGURATION, str(error))
        limit_seconds = hub.SHARE_OF_DEADLINE * self._settings.limits.activeDeadlineSeconds
        processes = Processes(self._sink, self._signals, self._clock)
        with tempfile.TemporaryDirectory(prefix="shapetrace-") as folder:
            answer = Path(folder) / "models.json"
            command = hub.command(self._engine, sys.executable, answer)
            try:
                processes.start([command], [environment_of(command, self._environment)])
                processes.wait_until(lambda: not processes.alive or self._terminated, limit_seconds)
                if processes.exits and processes.exits[0].code == 0:
                    folders = hub.read_folders(answer)
                    self._resolved = hub.resolved(self._engine, folders)
                    self._engine = hub.with_folders(self._engine, folders)
                    self._fetched = True
                    return None
                if processes.exits:
                    return hub.cause(processes.exits[0])
                if self._terminated:
                    return Cause(
                        Reason.STOPPED, "stopped by SIGTERM while the models were fetched", signal=int(signal.SIGTERM)
                    )
                return hub.too_slow(limit_seconds)
            except (OSError, ValueError) as error:
                return Cause(Reason.ENGINE_FAILED, f"fetching the models left no answer: {error}")
            finally:
                processes.end(0)
                processes.close()

    def _build(self) -> list[Command]:
        context = Context(
            sys.executable,
            free_port(),
            usable_cores(),
            *installed(self._engine.name),
            self._environment,
            self._settings.limits.activeDeadlineSeconds,
            self._fetched,
        )
        return build(self._engine, self._settings.capture, context)

    def _start(self) -> Cause | None:
        try:
            commands = self._build()
            for command in commands:
                for note in command.notes:
                    self._say(note)
                self._say(f"starting {command.name}: {shorten(shlex.join(command.argv))}")
            self._serves = Serves(commands[0].port, self._clock)
            self._name = commands[0].engine
            self._processes.start(commands, [environment_of(command, self._environment) for command in commands])
        except EngineConfigurationError as error:
            return Cause(Reason.BAD_CONFIGURATION, str(error))
        except (OSError, ValueError) as error:  # ValueError: text that no program can be given
            text = f"engine.args: the program cannot be started: {error}{self._advice()}"
            return Cause(Reason.BAD_CONFIGURATION, text)
        return None

    def _advice(self) -> str:
        """What to write where a whole command line was given as the program."""
        args = self._settings.engine.args
        if not args or len(words := args[0].split()) < 2:
            return ""
        return f"; one word for each list entry: {json.dumps([*words, *args[1:]], ensure_ascii=False)}"

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
        serves_seconds = self._serves.seconds()
        processes = [] if serves_seconds is None else [_read(path) or {} for path in folder.glob("process-*.json")]
        return cause_of(
            Observed(
                tuple(range(engine.ranks)),
                exits,
                records,
                done,
                self._terminated,
                serves_seconds,
                self._name,
                processes,
            )
        )

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
            self._wait_for_end()
            self._processes.end(min(TERM_SECONDS, self._settings.limits.disruptionGraceSeconds / 4))
        else:
            # stopped, so that no record can follow stopped.json, which readers take for the end of the records
            self._processes.signal(signal.SIGSTOP)
            self._note(cause)
            self._processes.end(0)

    def _wait_for_end(self) -> None:
        """Until the engine has ended, or its time to do so is over. One that serves is told to, again and again: what
        handles the signal while the engine still starts may be caught by the code that it interrupts."""
        end = self._clock() + END_SECONDS
        while self._processes.alive and not self._terminated and self._clock() < end:
            if self._serves.forever:
                self._processes.terminate_heads()
            self._processes.wait_until(lambda: not self._processes.alive or self._terminated, TELL_SECONDS)

    def _note(self, cause: Cause) -> None:
        try:
            with contextlib.suppress(OSError):
                # the collector writes it after stopped.json only: an earlier one is the engine's, or was left over
                (self._settings.spool / spool.DRAINED).unlink()
            value = {**cause.to_json(), "models": self._resolved}
            spool.write_json(self._settings.spool / spool.STOPPED, value)
        except OSError as error:
            self._say(f"stopped.json cannot be written: {error}")
        self._noted_at = self._clock()

    def _drain(self) -> Mapping[str, Any] | None:
        """The collector's result, or None after ``uploadTimeoutSeconds`` (or what SIGTERM left of the grace)."""
        limits = self._settings.limits
        path = self._settings.spool / spool.DRAINED

        def is_over() -> bool:
            end = self._noted_at + limits.uploadTimeoutSeconds
            if self._terminated and self._told_to_stop_at is not None:
                # a quarter of the grace is left to the collector, which is told to end only after us
                end = min(end, self._told_to_stop_at + limits.disruptionGraceSeconds * 3 / 4)
            return path.exists() or self._clock() >= end

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
