"""One capture: what the engine holds open while one graph is recorded. Nothing here raises into the engine."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from shapetrace_contract.tag import Shape

from shapetrace_capture import device
from shapetrace_capture.process import described
from shapetrace_capture.window import Window, metadata

if TYPE_CHECKING:
    from shapetrace_capture.session import Session

F = TypeVar("F", bound=Callable[..., Any])

STAGE = "capture"
RAISED = "the engine raised"
"""How the error of a record begins where not we but the engine failed: such a key was not captured."""
UNCALLED = "what watch() returned has to be called"


class Capture(AbstractContextManager["Capture"]):
    """Records what runs inside its ``with`` block under a fresh profiler, with independent witnesses.

    ``expects_graph``: a graph capture must begin inside; ``expects_stream``: the watched forward must find its stream
    being captured (by default where a graph is expected). ``mode`` is the word in the span ``capture_<size>_<mode>``.

    ``known`` is asked afterwards whether the engine's own table of graphs holds the shape; ``state`` for the engine's
    own words on its variants (``{"lora": "nolora"}``). Both may be left out: then the record says nothing of them.
    ``more`` adds witnesses of the engine's adapter. ``refused`` says why nothing is to be recorded but this reason.

    An adapter that cannot tell a warm-up from the capture may :meth:`discard` a window and open another.
    """

    def __init__(
        self,
        session: Session,
        shape: Shape,
        *,
        expects_graph: bool = False,
        expects_stream: bool | None = None,
        capture_span: bool = True,
        mode: str = "FULL",
        known: Callable[[], bool] | None = None,
        state: Callable[[], Mapping[str, str]] | None = None,
        more: Mapping[str, Any] | None = None,
        refused: str | None = None,
    ) -> None:
        self._session = session
        self._shape = shape
        self._expects_graph = expects_graph
        self._expects_stream = expects_graph if expects_stream is None else expects_stream
        self._capture_span = capture_span
        self._mode = mode
        self._more = dict(more or {})
        self._refused = refused
        self._known = known
        self._state = state
        self.was_entered = False
        self._torch: Any = None
        self._window: Window | None = None
        self._stopped: Window | None = None
        self._has_stacks = False
        self._stacks_refused: str | None = None
        self._error: str | None = None
        self._forwards = 0
        self._watched = False
        self._rows: list[int | None] = []
        self._in_stream_capture: list[bool] = []
        self._graphs_before = 0
        self._gc_was_enabled = False
        self._times: dict[str, float] = {}
        self._mark = 0.0

    def watch(self, forward: F, rows: Callable[..., int | None] | None = None) -> F:
        """``forward``, counted: how often it runs inside the window, with how many rows, in a stream capture or not.

        ``rows`` is called with the arguments of ``forward`` (None: it cannot tell); without it the leading dimension of
        the first argument with a ``shape`` counts.
        """
        if not callable(forward):
            self._session.fault("", f"watch() needs a module or function, got {type(forward).__name__}")
            return forward
        self._watched = True

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._note(rows, args, kwargs)
            return forward(*args, **kwargs)

        return watched  # type: ignore[return-value]

    def _note(self, rows: Callable[..., int | None] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self._forwards += 1
            if rows is not None:
                self._rows.append(rows(*args, **kwargs))
            else:
                for value in (*args, *kwargs.values()):
                    if hasattr(value, "shape"):
                        self._rows.append(int(value.shape[0]) if len(value.shape) else None)
                        break
            self._in_stream_capture.append(device.is_capturing(self._torch))
        except Exception as error:
            self._session.fault("a witness", error)

    def __enter__(self) -> Capture:
        self.was_entered = True
        try:
            self._open()
        except Exception as error:
            self._error = self._error or f"the profiler did not start: {described(error)}"
            self._window = None
            self._resume_gc()
        return self

    @property
    def has_captured(self) -> bool:
        """Whether the watched forward has met a stream capture, or a graph capture has begun since the start."""
        return any(self._in_stream_capture) or self._session.graphs.all > self._graphs_before

    def stop(self) -> None:
        """End the recording now; the record is written when the ``with`` block ends."""
        try:
            self._stop()
        except Exception as fault:
            self._session.fault(f"the end of {self._shape.tag}", fault)

    def discard(self) -> None:
        """End the recording and forget it: no file, no line."""
        self.stop()
        window, self._stopped = self._stopped, None
        try:
            if window is not None:
                window.free()
        except Exception as fault:
            self._session.fault(f"the discarded window of {self._shape.tag}", fault)
        finally:
            self._session.release(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._close(error)
        except Exception as fault:
            self._session.fault(f"the record of {self._shape.tag}", fault)
        finally:
            self._session.release(self)

    def _lap(self, name: str) -> None:
        now = self._session.clock()
        self._times[name] = round(now - self._mark, 6)
        self._mark = now

    def _open(self) -> None:
        session = self._session
        self._mark = session.clock()
        torch = self._torch = session.torch
        self._graphs_before = session.graphs.all
        self._error = self._refused or session.begin(self)
        self._lap("room")
        if self._error:
            return
        device.synchronise(torch)
        stacks = session.stacks
        self._stacks_refused = session.stacks_refusal()
        self._has_stacks = stacks.asked and self._stacks_refused is None
        window = Window(torch, session.options(stacks=self._has_stacks), stacks.settle)
        if self._has_stacks:
            stacks.opening()
        # a collection inside the window would free what earlier captures left, inside this one's trace
        self._gc_was_enabled = gc.isenabled()
        gc.disable()
        spans = [self._shape.tag]
        if self._capture_span:
            spans.append(f"capture_{self._shape.size}_{self._mode}")
        value = metadata(self._shape.to_json(), self._shape.tag, session.rank.rank, STAGE, self._shape.epoch)
        window.open(spans, value)
        self._window = window
        # not by _lap: every call from here on is in the trace
        opened = session.clock()
        self._times["start"], self._mark = round(opened - self._mark, 6), opened

    def _stop(self) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        self._stopped = window
        closing = self._session.clock()
        self._times["window"], self._mark = round(closing - self._mark, 6), closing
        try:
            window.close()
        except Exception as fault:
            self._error = f"the profiler did not stop: {described(fault)}"
        self._lap("stop")
        if self._has_stacks:
            self._session.stacks_recorded(self._shape, window, self._error)
        self._resume_gc()

    def _close(self, error: BaseException | None) -> None:
        self._stop()
        window, self._stopped = self._stopped, None
        witnesses = self._witnesses(window is not None)
        if error is not None:
            self._error = f"{RAISED} {described(error)}"
        self._session.end(
            self._shape,
            window=window,
            witnesses=witnesses,
            dirty=self._dirty(witnesses),
            error=self._error,
            raised=error is not None,
            times=self._times,
        )

    def _resume_gc(self) -> None:
        if self._gc_was_enabled:
            gc.enable()
            self._gc_was_enabled = False

    def _witnesses(self, recorded: bool) -> dict[str, Any]:
        session = self._session
        graphs = session.graphs.all - self._graphs_before if recorded else 0
        found: dict[str, Any] = {"graph": graphs > 0, "graphs": graphs, "device": device.kind(session.torch)}
        found["forwards"] = self._forwards if self._watched else None
        found["rows"] = self._rows[0] if len(set(self._rows)) == 1 else None
        found["streamCapture"] = all(self._in_stream_capture) if self._in_stream_capture else None
        found["keyKnown"] = self._ask("keyKnown", self._known, bool)
        found["engine"] = self._ask("engine", self._state, dict)
        found.update(self._more)
        found["stacks"] = self._has_stacks
        if self._stacks_refused is not None:
            found["stacksRefused"] = self._stacks_refused
        return found

    def _ask(self, name: str, question: Callable[[], Any] | None, form: Callable[[Any], Any]) -> Any:
        try:
            return None if question is None else form(question())
        except Exception as error:
            self._session.fault(f"the witness {name}", error)
            return None

    def _dirty(self, witnesses: Mapping[str, Any]) -> list[str]:
        """Why the trace is not what it should be, although it was recorded."""
        found = []
        if self._watched and self._forwards != 1:
            # an engine's adapter calls it; a script may go on with what it had before
            advice = "" if self._forwards or self._session.process.engine else f": {UNCALLED}"
            found.append(f"the forward ran {self._forwards} times{advice}")
        if self._expects_graph and not witnesses["graph"]:
            found.append("no graph capture began")
        if self._expects_stream and witnesses["streamCapture"] is False:
            found.append("the forward ran outside a stream capture")
        if witnesses["keyKnown"] is False:
            found.append("the engine does not know the shape afterwards")
        return found


class NoCapture(AbstractContextManager["NoCapture"]):
    """Stands in where nothing is recorded: without a spool, and on a rank that is not asked for."""

    has_captured = False

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, forward: F, rows: Callable[..., int | None] | None = None) -> F:
        """``forward`` itself."""
        return forward

    def stop(self) -> None:
        """Nothing."""

    def discard(self) -> None:
        """Nothing."""
