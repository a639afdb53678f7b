"""Signals as events in a select loop: nothing happens inside a handler."""

from __future__ import annotations

import os
import signal
from types import TracebackType
from typing import Any

STOP = (signal.SIGTERM, signal.SIGINT)
"""What ends the launcher: the kubelet, or Ctrl-C in a local run."""


class Signals:
    """While entered, SIGTERM, SIGINT and SIGCHLD make :attr:`descriptor` readable. Main thread only."""

    def __init__(self) -> None:
        self.stopped = False
        self.descriptor, self._write = os.pipe()
        for descriptor in (self.descriptor, self._write):
            os.set_blocking(descriptor, False)
        self._handlers: dict[int, Any] = {}
        self._wakeup = -1

    def __enter__(self) -> Signals:
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*STOP, signal.SIGCHLD):
            self._handlers[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.descriptor)
        os.close(self._write)

    def read(self) -> None:
        """Take what came; :attr:`stopped` stays set."""
        try:
            numbers = os.read(self.descriptor, 4096)
        except BlockingIOError:
            return
        self.stopped = self.stopped or any(number in STOP for number in numbers)
