"""When the window opens: after the last warm-up, whatever the engine's version makes of the number of warm-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shapetrace_capture.warmups import NOT_OPENED, NOT_RUN, Warmups


class FakeEngine:
    """A backend: ``warmups`` forwards with the hook after each, then the capture, and the hook again if it does so."""

    def __init__(self, warmups: int, *, stream: bool = True, hooks: bool = True, last_hook: bool = False) -> None:
        self.capturing = False
        self.graphs = 0
        self.log: list[str] = []
        self._warmups, self._stream, self._hooks, self._last_hook = warmups, stream, hooks, last_hook

    def hook(self) -> None:
        self.log.append("hook")

    def capture_one(self, forward: Callable[[], Any], hook: Callable[[], Any] | None) -> None:
        for _ in range(self._warmups):
            forward()
            if hook is not None and self._hooks:
                hook()
        self.capturing = self._stream
        self.graphs += self._stream
        forward()
        self.capturing = False
        if hook is not None and self._last_hook:
            hook()


class FakeCapture:
    """What :class:`Warmups` needs of a capture; ``log`` is the engine's, so that the order is seen."""

    def __init__(self, engine: FakeEngine, refused: str | None) -> None:
        self._engine, self._refused = engine, refused
        self._before = 0
        self.forwards = 0

    def __enter__(self) -> FakeCapture:
        self._before = self._engine.graphs
        self._engine.log.append(f"lost: {self._refused}" if self._refused else "open")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._engine.log.append("record" if kind is None else "record raised")

    @property
    def has_captured(self) -> bool:
        return self._engine.graphs > self._before or self._engine.capturing

    def watch(self, forward: Callable[[], Any], rows: object) -> Callable[[], Any]:
        self.forwards += 1
        self._engine.log.append("watched")
        return forward

    def stop(self) -> None:
        self._engine.log.append("stop")

    def discard(self) -> None:
        self._engine.log.append("discard")


def run(engine: FakeEngine, expected: int = 2, *, ends_with_hook: bool = False, hook: bool = True) -> Warmups:
    def fault(what: str, error: BaseException) -> None:
        raise AssertionError(what) from error

    warmups = Warmups(
        expected,
        lambda refused: FakeCapture(engine, refused),
        lambda: engine.capturing,
        fault,
        ends_with_hook=ends_with_hook,
    )
    engine.capture_one(
        warmups.forward(lambda: engine.log.append("forward"), lambda: 8),
        warmups.after_warmup(engine.hook if hook else None),
    )
    warmups.end(None)
    return warmups


def test_the_window_opens_after_the_engines_hook_of_the_last_warm_up() -> None:
    engine = FakeEngine(2)
    assert run(engine).learned == 2
    assert engine.log == ["forward", "hook", "forward", "hook", "open", "watched", "forward", "record"]


def test_an_engine_without_a_hook_of_its_own_is_recorded_alike() -> None:
    engine = FakeEngine(2)
    run(engine, hook=False)
    assert engine.log == ["forward", "forward", "open", "watched", "forward", "record"]


def test_a_capture_that_ends_with_the_hook_is_stopped_before_it() -> None:
    engine = FakeEngine(1, stream=False, last_hook=True)
    assert run(engine, 1, ends_with_hook=True).learned == 1
    assert engine.log == ["forward", "hook", "open", "watched", "forward", "stop", "hook", "record"]


def test_one_more_warm_up_costs_a_window_and_no_trace() -> None:
    engine = FakeEngine(3)
    assert run(engine, 2).learned == 3
    assert engine.log[-8:] == ["watched", "forward", "discard", "hook", "open", "watched", "forward", "record"]
    assert engine.log.count("record") == 1


def test_one_more_warm_up_of_a_capture_in_pieces_is_noticed_at_the_next_forward() -> None:
    engine = FakeEngine(2, stream=False, last_hook=True)
    assert run(engine, 1, ends_with_hook=True).learned == 2
    assert engine.log.count("discard") == 1
    assert engine.log[-6:] == ["open", "watched", "forward", "stop", "hook", "record"]


def test_where_the_hook_is_never_called_the_window_opens_before_the_forward() -> None:
    engine = FakeEngine(2, hooks=False, stream=False)
    run(engine)
    assert engine.log == ["forward", "forward", "open", "watched", "forward", "record"]


def test_where_warm_ups_are_fewer_the_loss_is_recorded_and_the_number_is_learned() -> None:
    engine = FakeEngine(1)
    learned = run(engine, 2).learned
    assert engine.log == ["forward", "hook", f"lost: {NOT_OPENED}", "watched", "forward", "record"]
    assert learned == 1
    assert "open" in (again := FakeEngine(1)).log or run(again, learned).learned == 1
    assert again.log == ["forward", "hook", "open", "watched", "forward", "record"]


def test_a_capture_without_a_stream_capture_and_with_fewer_forwards_is_a_recorded_loss() -> None:
    engine = FakeEngine(0, stream=False)
    assert run(engine, 2).learned is None
    assert engine.log == ["forward", f"lost: {NOT_RUN}", "record"]


def test_a_window_in_which_no_forward_ran_is_not_kept() -> None:
    engine = FakeEngine(1, stream=False, last_hook=True)
    run(engine, 2)
    assert engine.log[-3:] == ["discard", f"lost: {NOT_RUN}", "record"]


def test_what_the_engine_raises_in_its_capture_is_recorded_as_the_engines() -> None:
    engine = FakeEngine(2)
    warmups = Warmups(
        2,
        lambda refused: FakeCapture(engine, refused),
        lambda: engine.capturing,
        lambda what, error: None,
    )

    def forward() -> None:
        if engine.capturing:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory") as raised:
        engine.capture_one(warmups.forward(forward, lambda: None), warmups.after_warmup(None))
    warmups.end(raised.value)
    assert engine.log == ["open", "watched", "record raised"]


def test_a_fault_of_ours_never_reaches_the_engine() -> None:
    engine = FakeEngine(2)
    faults: list[str] = []

    def make(refused: str | None) -> Any:
        raise OSError("no spool")

    warmups = Warmups(2, make, lambda: engine.capturing, lambda what, error: faults.append(f"{what}: {error}"))
    engine.capture_one(
        warmups.forward(lambda: engine.log.append("forward"), lambda: 8), warmups.after_warmup(engine.hook)
    )
    assert engine.log == ["forward", "hook", "forward", "hook", "forward"]
    assert faults == ["after the engine's hook: no spool", "a watched forward: no spool"]
