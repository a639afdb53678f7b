"""What a person sees while waiting: bars on a terminal, a plain line now and then anywhere else. All on stderr."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shapetrace_cli.text import plain, size_text

TELL_AFTER_SECONDS = 2.0
"""What takes less nobody waits for."""
_LINE_EVERY_SECONDS = 5.0
"""Between two lines where there is no terminal: enough to see life in a log, not enough to fill it."""


class Reporter:
    """Objects and bytes of one download."""

    def __init__(
        self,
        title: str,
        objects: int,
        total_bytes: int,
        stream: IO[str],
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._objects = plain(title), objects
        self._stream, self._quiet, self._clock = stream, quiet, clock
        self._done = self._done_bytes = 0
        self._last_line = clock()
        console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._bar: Progress | None = None
        self._timer: threading.Timer | None = None
        self._task = TaskID(0)
        if console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[objects]}", markup=False),
                DownloadColumn(binary_units=True),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=total_bytes or None, objects=f"0/{objects}")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()  # or its line might come after the result
        if self._bar is not None:
            self._bar.stop()

    def begin(self, text: str, after_seconds: float | None = None) -> None:
        """What is to be done, where no bar shows it: a log must not stay empty until the end.

        Told once it has taken so long (:data:`TELL_AFTER_SECONDS`), also while one large object is under way.
        """
        if self._bar is not None or self._quiet:
            return
        text, delay_seconds = f"{self._title}: {text}", TELL_AFTER_SECONDS if after_seconds is None else after_seconds
        if not delay_seconds:
            self.line(text)
            return
        self._timer = threading.Timer(delay_seconds, self.line, (text,))
        self._timer.daemon = True
        self._timer.start()

    def step(self, size_bytes: int) -> None:
        """One object is done, with ``size_bytes`` of its own."""
        self._done += 1
        self._done_bytes += size_bytes
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done_bytes, objects=f"{self._done}/{self._objects}")
        elif not self._quiet and self._clock() - self._last_line >= _LINE_EVERY_SECONDS:
            self._last_line = self._clock()
            self.line(f"{self._title}: {self._done}/{self._objects} objects, {size_text(self._done_bytes)}")

    def line(self, text: str) -> None:
        """One line above the bar."""
        if self._bar is not None:
            self._bar.console.print(plain(text), soft_wrap=True)
        else:
            print(plain(text), file=self._stream, flush=True)
