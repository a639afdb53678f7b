"""Stacks cost a trace at most once: whatever happens to torch's Python tracer, later captures are whole."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launched import events, folder, lines, operators
from shapetrace_capture import decoy
from shapetrace_capture.ranks import RankId
from shapetrace_capture.session import Session
from shapetrace_capture.tracer import is_fragile
from shapetrace_capture.window import Options, Window
from shapetrace_contract.settings import CaptureSettings
from shapetrace_contract.tag import Runner, Shape

SHAPES = [Shape(Runner("Runner"), "bs", size) for size in (4, 2, 1)]
LOST = '!stack.empty() INTERNAL ASSERT FAILED at "profiler_python.cpp": Python replay stack is empty.'


@pytest.fixture
def make(torch: Any, tmp_path: Path) -> Callable[..., Session]:
    def made(**settings: Any) -> Session:
        session = Session(tmp_path, RankId(0), CaptureSettings(**{"roomWaitSeconds": 0, **settings}))
        session.start({"test": "applied"})
        return session

    return made


@pytest.fixture
def let_a_stop_fail(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and the next stop ends as it does where the tracer fails: profiler off, result gone, torch raises."""
    real = torch.autograd.profiler._disable_profiler
    left: list[str] = []

    def disable() -> Any:
        result = real()
        if left:
            raise RuntimeError(left.pop())
        return result

    monkeypatch.setattr(torch.autograd.profiler, "_disable_profiler", disable)
    return lambda: left.append(LOST)


def capture_all(session: Session, torch: Any) -> None:
    for shape in SHAPES:
        with session.capture(shape) as capture:
            capture.watch(torch.neg)(torch.ones(shape.size, 4))


def read(root: Path, record: dict[str, Any]) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads((folder(root) / record["file"]).read_text())
    return trace


def test_a_stop_that_fails_costs_one_trace_and_the_stacks_of_the_later_ones(
    make: Callable[..., Session], torch: Any, tmp_path: Path, let_a_stop_fail: Callable[[], None]
) -> None:
    session = make()
    let_a_stop_fail()
    capture_all(session, torch)
    session.done()
    lost, *later = lines(folder(tmp_path) / "captures.jsonl")
    assert (lost["file"], lost["witnesses"]["stacks"]) == (None, True)
    assert lost["error"] == f"the profiler did not stop: RuntimeError: {LOST}"
    reason = f"with stacks, {lost['tag']} was lost"
    for record in later:
        assert (record["error"], record["dirty"]) == (None, [])
        assert (record["witnesses"]["stacks"], record["witnesses"]["stacksRefused"]) == (False, reason)
        trace = read(tmp_path, record)
        assert operators(trace).count("aten::neg") == 1, "nothing of the window that was lost is in it"
        assert trace["shapetrace"]["tag"] == record["tag"]
        assert not events(trace, "python_function")
    (rank,) = lines(folder(tmp_path) / "rank.json")
    (process,) = lines(next(tmp_path.glob("process-*.json")))
    assert rank["stacks"] == process["stacks"] == f"none any more: {reason}"
    (done,) = lines(folder(tmp_path) / "done.json")
    assert done["ok"] is True, "a recorded loss is a record"


def test_a_stop_that_fails_without_stacks_costs_one_trace(
    make: Callable[..., Session], torch: Any, tmp_path: Path, let_a_stop_fail: Callable[[], None]
) -> None:
    session = make(stacks="None")
    let_a_stop_fail()
    capture_all(session, torch)
    assert [bool(record["file"]) for record in lines(folder(tmp_path) / "captures.jsonl")] == [False, True, True]
    assert lines(folder(tmp_path) / "rank.json")[0]["stacks"] == "none"


def test_after_a_stop_that_fails_the_engines_own_profiler_works(
    make: Callable[..., Session], torch: Any, let_a_stop_fail: Callable[[], None]
) -> None:
    session = make()
    let_a_stop_fail()
    with session.capture(SHAPES[0]):
        torch.ones(2)
    with torch.profiler.profile() as own:
        torch.neg(torch.ones(2))
    assert "aten::neg" in {event.key for event in own.key_averages()}


def test_a_workaround_whose_stop_fails_costs_no_trace(
    make: Callable[..., Session],
    torch: Any,
    tmp_path: Path,
    let_a_stop_fail: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoy, "is_needed", lambda *_: True)  # whatever torch this is
    let_a_stop_fail()
    capture_all(make(), torch)
    records = lines(folder(tmp_path) / "captures.jsonl")
    assert [record["error"] for record in records] == [None, None, None]
    assert lines(folder(tmp_path) / "rank.json")[0]["stacks"].startswith("none any more: the workaround for this torch")


def test_a_thread_that_waits_from_one_capture_into_the_next_costs_no_trace(
    make: Callable[..., Session], torch: Any, tmp_path: Path
) -> None:
    """torch before 2.8 loses the second trace with stacks: a C call ends in it that it did not see begin."""
    session = make()
    locked, begin, waiting, passed = threading.Lock(), threading.Event(), threading.Event(), threading.Event()
    locked.acquire()

    def wait() -> None:
        begin.wait()
        waiting.set()
        locked.acquire()
        passed.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    with session.capture(SHAPES[0]):
        begin.set()
        assert waiting.wait(60)
        torch.neg(torch.ones(4))
    with session.capture(SHAPES[1]):
        locked.release()
        assert passed.wait(60)
        torch.neg(torch.ones(2))
    thread.join(60)
    with session.capture(SHAPES[2]):
        torch.neg(torch.ones(1))
    records = lines(folder(tmp_path) / "captures.jsonl")
    assert [record["error"] for record in records] == [None, None, None]
    assert [record["witnesses"]["stacks"] for record in records] == [True, not is_fragile(torch.__version__), True]


def test_a_profile_function_of_the_engines_is_still_set_after_a_capture(
    make: Callable[..., Session], torch: Any, tmp_path: Path
) -> None:
    session = make()

    def own(*_: Any) -> None:
        return None

    sys.setprofile(own)
    try:
        with session.capture(SHAPES[0]):
            torch.ones(2)
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)
    (record,) = lines(folder(tmp_path) / "captures.jsonl")
    assert record["file"]
    assert "profile function" in record["witnesses"]["stacksRefused"]


def test_the_wait_for_a_quiet_moment_is_over_before_the_recording_starts(torch: Any, tmp_path: Path) -> None:
    enabled: list[bool] = []

    def settle() -> None:
        enabled.append(torch.autograd._profiler_enabled())

    for stacks in (True, False):
        window = Window(torch, Options(stacks=stacks), settle)
        window.open(["span"], "{}")
        torch.neg(torch.ones(2))
        window.close()
        window.save(tmp_path / f"{stacks}.json")
    assert enabled == [False], "and without stacks nothing waits"
    frames = [event["name"] for event in events(json.loads((tmp_path / "True.json").read_text()), "python_function")]
    assert frames
    assert not any("settle" in name for name in frames)
