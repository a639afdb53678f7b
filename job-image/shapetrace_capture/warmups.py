"""Which of an engine's calls is the capture: the forward runs some times to warm up, then once to be captured.

The window opens after the expected number of warm-ups, outside of any stream capture, because a profiler cannot be
started inside one. The number is an expectation only: a window that turns out to hold a warm-up is discarded, and one
that was not opened in time costs one trace, is recorded as lost, and the number is known from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shapetrace_capture.capture import Capture, NoCapture

NOT_OPENED = "fewer warm-ups than expected, so that the forward was captured before the profiler was started"
NOT_RUN = "the forward did not run after its last warm-up"


class Warmups:
    """One call of the engine that warms up and captures one shape.

    ``make(refusal)`` is the capture of the shape; with a refusal it records only that. ``ends_with_hook``: the engine
    calls its hook after the capture too.
    """

    def __init__(
        self,
        expected: int,
        make: Callable[[str | None], Capture | NoCapture],
        is_capturing: Callable[[], bool],
        fault: Callable[[str, BaseException], None],
        *,
        ends_with_hook: bool = False,
    ) -> None:
        self._expected = expected
        self._make = make
        self._is_capturing = is_capturing
        self._fault = fault
        self._ends_with_hook = ends_with_hook
        self._capture: Capture | NoCapture | None = None
        self._inside = 0
        self._calls = 0
        self.learned: int | None = None
        """How many warm-ups there really were; None until the forward was captured."""

    def forward(self, forward: Callable[..., Any], rows: Callable[[], int | None]) -> Callable[..., Any]:
        """``forward``, watched."""

        def watched_forward(*args: Any, **kwargs: Any) -> Any:
            call = forward
            try:
                call = self._before_forward(forward, rows)
            except Exception as error:
                self._fault("a watched forward", error)
            return call(*args, **kwargs)

        return watched_forward

    def after_warmup(self, hook: Callable[[], Any] | None) -> Callable[[], Any]:
        """The engine's ``hook`` after each warm-up, if it has one; then the window may open."""

        def chained_hook() -> Any:
            try:
                self._before_hook()
            except Exception as error:
                self._fault("before the engine's hook", error)
            result = None if hook is None else hook()
            try:
                if self._capture is None and self._calls >= self._expected:
                    self._open()
            except Exception as error:
                self._fault("after the engine's hook", error)
            return result

        return chained_hook

    def end(self, error: BaseException | None) -> None:
        """The engine's call is over."""
        capture, self._capture = self._capture, None
        if capture is None:
            if error is None:
                self._lose(NOT_RUN)
        elif error is None and not self._inside:
            capture.discard()
            self._lose(NOT_RUN)
        else:
            capture.__exit__(None if error is None else type(error), error, None)

    def _open(self) -> None:
        self._inside = 0
        capture = self._make(None)
        capture.__enter__()
        self._capture = capture

    def _lose(self, reason: str) -> None:
        with self._make(reason):
            pass

    def _before_forward(self, forward: Callable[..., Any], rows: Callable[[], int | None]) -> Callable[..., Any]:
        is_capturing = self._is_capturing()
        if self._capture is not None and self._inside and not self._capture.has_captured:
            self._discard()  # what was taken for the capture was one more warm-up
        if self._capture is None and is_capturing:
            self._capture = self._make(NOT_OPENED)
            self._capture.__enter__()
            self._inside = 0
        elif self._capture is None and self._calls >= self._expected:
            self._open()
        self._calls += 1
        if self._capture is None:
            return forward
        if not self._inside:
            self.learned = self._calls - 1
        self._inside += 1
        return self._capture.watch(forward, rows)

    def _before_hook(self) -> None:
        """What the engine's hook does belongs into no trace."""
        if self._capture is None:
            return
        if self._inside and (self._ends_with_hook or self._capture.has_captured):
            self._capture.stop()
        else:
            self._discard()

    def _discard(self) -> None:
        capture, self._capture, self._inside = self._capture, None, 0
        if capture is not None:
            capture.discard()
