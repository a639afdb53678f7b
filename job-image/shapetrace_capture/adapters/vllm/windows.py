"""What stands in for objects of vLLM around one capture. Of what fails here, vLLM notices nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from shapetrace_capture.adapters.vllm.facts import (
    Graphs,
    Seen,
    graph_wrappers,
    graphs_in_pieces,
    is_captured,
    rows_of_closure,
)
from shapetrace_capture.adapters.vllm.keys import Keys, verbatim
from shapetrace_capture.capture import Capture, NoCapture
from shapetrace_capture.session import Session

OWN_FRAMES = frozenset(
    {("hooks.py", name) for name in ("hooked", "around", "__call__")}
    | {("adapter.py", name) for name in ("_warm_up", "_capture_model", "_capture_v1", "_capture_v2")}
    | {("windows.py", name) for name in ("__call__", "__enter__", "__exit__", "run", "_whole", "close", "<lambda>")}
    | {("facts.py", name) for name in ("rows", "rows_of")}
)
"""(file, function) of ours that may stand in a trace of vLLM's, beside :data:`shapetrace_capture.window.OWN_FRAMES`:
the hooks below which vLLM captures, and the watched forward."""

Fault = Callable[[str, BaseException], None]


class Watched:
    """Stands in for a callable during one capture; in all else it is the original."""

    def __init__(self, original: Any, call: Callable[..., Any]) -> None:
        self._original = original
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # isinstance() asks here
        return type(self._original)


class ProfilerV1:
    """The profiler that V1 enters for the capture: its own first, then ours. ``model`` says where the forward is."""

    def __init__(
        self, theirs: Any, ours: Capture | NoCapture, model: tuple[Any, str] | None, seen: Seen, fault: Fault
    ) -> None:
        self._theirs = theirs
        self._ours = ours
        self._model = model
        self._seen = seen
        self._fault = fault
        self._original: Any = None

    def __enter__(self) -> Any:
        entered = self._theirs.__enter__()
        try:
            if self._model is not None:
                owner, name = self._model
                self._original = getattr(owner, name)
                setattr(owner, name, Watched(self._original, self._ours.watch(self._original, self._seen.rows)))
        except Exception as error:
            self._fault("the witness of a forward", error)
        self._ours.__enter__()
        return entered

    def __exit__(self, *raised: Any) -> Any:
        self._ours.__exit__(*raised)
        try:
            if self._model is not None and self._original is not None:
                setattr(*self._model, self._original)
        except Exception as error:
            self._fault("the end of a witness", error)
        return self._theirs.__exit__(*raised)


class Manager(Protocol):
    """Of V2's managers, what is asked here."""

    graphs: Any


class FactoryV2:
    """Stands in for the factory of one ``CudaGraphManager.capture``.

    A whole graph is captured after the factory returned its forward for it: the window is open until vLLM asks for
    the next one. Pieces are captured inside a forward.
    """

    def __init__(
        self,
        session: Session,
        manager: Manager,
        runner: Any,
        keys: Keys,
        factory: Callable[..., Any],
    ) -> None:
        self._session = session
        self._manager = manager
        self._runner = runner
        self._keys = keys
        self._factory = factory
        self._open: Capture | NoCapture | None = None

    def __call__(self, desc: Any, *args: Any, **kwargs: Any) -> Any:
        self.close(None, None, None)
        forward = self._factory(desc, *args, **kwargs)
        try:
            is_warmup = bool(kwargs["warmup"] if "warmup" in kwargs else args[0])
            if desc.cg_mode.name == "PIECEWISE":
                return self._in_pieces(desc, forward)
            return forward if is_warmup else self._whole(desc, forward)
        except Exception as error:
            self._session.fault(f"the window of {desc}", error)
            return forward

    def close(self, *raised: Any) -> None:
        """End the window of a whole graph."""
        capture, self._open = self._open, None
        if capture is not None:
            capture.__exit__(*raised)

    def _whole(self, desc: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        capture = self._capture(desc, lambda: desc in self._manager.graphs, self._whole_graphs, expects_stream=True)
        watched = self._watch(capture, forward)
        self._open = capture
        capture.__enter__()
        return watched

    def _in_pieces(self, desc: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The same forward warms up (mode NONE) and captures (mode PIECEWISE)."""

        def run(cg_mode: Any, *args: Any, **kwargs: Any) -> Any:
            capture, watched = self._pieces_window(desc, cg_mode, forward)
            with capture:
                return watched(cg_mode, *args, **kwargs)

        return run

    def _pieces_window(
        self, desc: Any, cg_mode: Any, forward: Callable[..., Any]
    ) -> tuple[Capture | NoCapture, Callable[..., Any]]:
        try:
            if cg_mode.name != "NONE":
                has_table = any(graph_wrappers("PIECEWISE"))
                known = (lambda: is_captured(desc, "PIECEWISE")) if has_table else None
                capture = self._capture(desc, known, graphs_in_pieces, expects_stream=False)
                return capture, self._watch(capture, forward)
        except Exception as error:
            self._session.fault(f"the window of {desc}", error)
        return NoCapture(), forward

    def _whole_graphs(self) -> Graphs:
        return {(0, key): id(graph) for key, graph in list(self._manager.graphs.items())}

    def _capture(
        self, desc: Any, known: Callable[[], bool] | None, graphs: Callable[[], Graphs], *, expects_stream: bool
    ) -> Capture | NoCapture:
        return self._session.capture(
            self._keys.shape(desc),
            expects_graph=True,
            expects_stream=expects_stream,
            mode=desc.cg_mode.name,
            known=known,
            state=Seen(self._runner, desc, graphs).state,
            more={"key": verbatim(desc)},
        )

    @staticmethod
    def _watch(capture: Capture | NoCapture, forward: Callable[..., Any]) -> Callable[..., Any]:
        rows = rows_of_closure(forward)
        return capture.watch(forward, lambda *_, **__: rows)


@contextlib.contextmanager
def measuring(session: Session) -> Iterator[None]:
    """While vLLM captures graphs only to measure their memory."""
    before, session.graphs.measuring = session.graphs.measuring, True
    try:
        yield
    finally:
        session.graphs.measuring = before
