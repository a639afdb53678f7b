"""Child processes with a log each, ended without a trace whatever happens to us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_TAIL_BYTES = 8 * 1024


class Process:
    """One child in a session of its own, so that Ctrl-C at the terminal reaches us alone; we tell it."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it; OSError where the program is not there."""
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            self._child = subprocess.Popen(  # noqa: S603 - our own modules
                list(argv),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._child.poll()

    def wait(self, timeout_seconds: float) -> int | None:
        """Wait at most that long; the exit code, None if it still runs."""
        try:
            return self._child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """SIGTERM to the process itself: it ends its own children in order."""
        if self.code is None:
            self._child.terminate()

    def kill(self) -> None:
        """SIGKILL to everything in its session that it left behind, and to itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def tail(self, lines: int = 20) -> list[str]:
        """The last lines of its log."""
        with contextlib.suppress(OSError), self.log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            return stream.read().decode(errors="replace").splitlines()[-lines:]
        return []
