"""Inside one process: nothing that goes wrong with recording reaches the engine, and all of it is in the record."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launched import events, folder, lines, operators
from shapetrace_capture.ranks import RankId
from shapetrace_capture.session import Session
from shapetrace_capture.window import Options, Window, WindowError
from shapetrace_contract.settings import CaptureSettings
from shapetrace_contract.tag import Runner, Shape

RUNNER = Runner("Runner")


def shape(size: int, **variants: str) -> Shape:
    return Shape(RUNNER, "bs", size, variants)


@pytest.fixture
def step(torch: Any) -> Callable[[Any], Any]:
    weight = torch.ones(4, 4)
    return lambda rows: torch.mm(rows, weight)


@pytest.fixture
def make(torch: Any, tmp_path: Path) -> Callable[..., Session]:
    def made(root: Path = tmp_path, rank: int = 0, **settings: Any) -> Session:
        session = Session(root, RankId(rank), CaptureSettings(**{"roomWaitSeconds": 0, **settings}))
        session.start({"test": "applied"})
        return session

    return made


def records(root: Path) -> list[dict[str, Any]]:
    return lines(folder(root) / "captures.jsonl")


def test_the_same_key_again_is_the_next_epoch(
    torch: Any, make: Callable[..., Session], step: Any, tmp_path: Path
) -> None:
    session = make()
    for _ in range(2):
        session.plan(RUNNER, "bs", [shape(2)])
        with session.capture(shape(2)) as capture:
            capture.watch(step)(torch.ones(2, 4))
    assert [plan["shapes"] for plan in lines(folder(tmp_path) / "plan.jsonl")] == [
        ["Runner__bs_2"],
        ["Runner__bs_2__epoch-2"],
    ]
    assert [(record["tag"], record["epoch"]) for record in records(tmp_path)] == [
        ("Runner__bs_2", 1),
        ("Runner__bs_2__epoch-2", 2),
    ]
    trace = json.loads((folder(tmp_path) / "000001.json").read_text())
    assert trace["shapetrace"]["tag"] == "Runner__bs_2__epoch-2"
    assert trace["shapetrace"]["epoch"] == 2


def test_a_later_process_of_the_rank_goes_on_where_the_first_ended(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    for _ in range(2):
        with make().capture(shape(1)):
            step(torch.ones(1, 4))
    assert [(record["seq"], record["tag"], record["file"]) for record in records(tmp_path)] == [
        (0, "Runner__bs_1", "000000.json"),
        (1, "Runner__bs_1__epoch-2", "000001.json"),
    ]


def test_what_the_engine_raises_is_the_engines_and_the_key_is_not_captured(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    session = make()
    with pytest.raises(ZeroDivisionError), session.capture(shape(1)):
        _ = 1 / 0
    with session.capture(shape(1)):
        step(torch.ones(1, 4))
    first, second = records(tmp_path)
    assert (first["file"], first["error"]) == (None, "the engine raised ZeroDivisionError: division by zero")
    assert (second["file"], second["epoch"], second["error"]) == ("000001.json", 1, None)


@pytest.mark.parametrize(("runs", "advice"), [(0, ": what watch() returned has to be called"), (2, "")])
def test_a_forward_that_does_not_run_exactly_once_makes_the_trace_dirty(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path, runs: int, advice: str
) -> None:
    with make().capture(shape(2)) as capture:
        watched = capture.watch(step)
        for _ in range(runs):
            watched(torch.ones(2, 4))
    (record,) = records(tmp_path)
    assert record["dirty"] == [f"the forward ran {runs} times{advice}"]
    assert record["witnesses"]["rows"] == (2 if runs else None)
    assert record["file"], "kept, and marked"


def test_a_shape_that_the_engine_does_not_know_afterwards_is_dirty(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    with make().capture(shape(2), expects_graph=True, known=lambda: False):
        step(torch.ones(2, 4))
    (record,) = records(tmp_path)
    assert record["dirty"] == ["no graph capture began", "the engine does not know the shape afterwards"]


def test_a_witness_that_fails_costs_nothing_and_is_said(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    session = make()
    with session.capture(shape(1), state=lambda: {}["lora"]) as capture:
        capture.watch(step, rows=lambda *_: 1 // 0)(torch.ones(1, 4))
    session.done()
    (record,) = records(tmp_path)
    assert record["file"]
    assert record["witnesses"]["engine"] is None
    (done,) = lines(folder(tmp_path) / "done.json")
    assert done["ok"] is False
    assert "ZeroDivisionError" in done["reason"]


def test_beside_another_profiler_nothing_is_recorded_and_the_other_goes_on(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    session = make()
    with torch.profiler.profile() as other, session.capture(shape(1)):
        step(torch.ones(1, 4))
    other.export_chrome_trace(str(tmp_path / "other.json"))
    (record,) = records(tmp_path)
    assert record["file"] is None
    assert record["error"].startswith("profilerBusy")
    assert "aten::mm" in operators(json.loads((tmp_path / "other.json").read_text()))


def test_a_capture_inside_a_capture_is_refused_and_the_outer_one_is_whole(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    session = make()
    with session.capture(shape(2)):
        with session.capture(shape(1)):
            step(torch.ones(1, 4))
        step(torch.ones(2, 4))
    inner, outer = records(tmp_path)
    assert (inner["tag"], inner["file"], inner["error"].split(":")[0]) == ("Runner__bs_1", None, "profilerBusy")
    assert (outer["tag"], outer["error"]) == ("Runner__bs_2", None)
    trace = json.loads((folder(tmp_path) / outer["file"]).read_text())
    assert [event["name"] for event in events(trace, "user_annotation")].count("Runner__bs_2") == 1


def test_a_spool_that_cannot_be_written_never_raises(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    session = make(tmp_path / "file" / "spool")
    assert session.plan(RUNNER, "bs", [shape(1)]) == [shape(1)]
    with session.capture(shape(1)) as capture:
        assert capture.watch(step)(torch.ones(1, 4)).shape == (1, 4)
    session.done()
    assert "shapetrace: rank 0: the start: NotRegularError" in capsys.readouterr().err


@contextlib.contextmanager
def small_file_system(path: Path, size: str) -> Iterator[Path]:
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "shapetrace-test", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_spool_without_room_loses_the_trace_and_keeps_the_record(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    with small_file_system(tmp_path / "spool", "80m") as root:
        session = make(root)
        with session.capture(shape(1)):
            step(torch.ones(1, 4))
        (root / "ballast").write_bytes(bytes(20 << 20))
        with session.capture(shape(2)):
            step(torch.ones(2, 4))
        (root / "ballast").unlink()
        with session.capture(shape(4)):
            step(torch.ones(4, 4))
        session.done()
        found = records(root)
        (done,) = lines(folder(root) / "done.json")
    assert [bool(record["file"]) for record in found] == [True, False, True]
    assert found[1]["error"].startswith("spool full: 5")
    assert (done["records"], done["ok"]) == (3, True), "a recorded loss is a record"


def test_a_trace_that_does_not_fit_is_no_trace(torch: Any, step: Any, tmp_path: Path) -> None:
    with small_file_system(tmp_path / "spool", "64k") as root:
        window = Window(torch, Options(stacks=True))
        window.open(["span"], "{}")
        for _ in range(300):
            step(torch.ones(2, 4))
        window.close()
        with pytest.raises(WindowError, match="could not be written"):
            window.save(root / "000000.json")
        assert list(root.iterdir()) == [], "no half of it is left"


def test_the_collector_of_garbage_rests_inside_a_window_only(
    make: Callable[..., Session], step: Any, torch: Any
) -> None:
    session = make()
    with session.capture(shape(1)):
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with session.capture(shape(1)):
            pass
        assert not gc.isenabled(), "an engine that froze it finds it frozen"
    finally:
        gc.enable()


def test_what_is_recorded_is_what_was_asked_for(
    make: Callable[..., Session], step: Any, torch: Any, tmp_path: Path
) -> None:
    session = make(stacks="None", recordShapes=False)
    with session.capture(shape(1)):
        step(torch.ones(1, 4))
    trace = json.loads((folder(tmp_path) / "000000.json").read_text())
    assert not events(trace, "python_function")
    assert all("Input Dims" not in event.get("args", {}) for event in events(trace, "cpu_op"))


def test_a_name_that_no_tag_can_hold_costs_the_engine_nothing(make: Callable[..., Session], tmp_path: Path) -> None:
    session = make()
    long = Shape(Runner("R" * 193), "bs", 1)
    for _ in range(2):  # the second would need an epoch, and be too long
        with session.capture(long):
            pass
    session.done()
    assert len(records(tmp_path)) == 1
    assert "a further epoch" in lines(folder(tmp_path) / "done.json")[0]["reason"]


def test_graphs_are_captured_and_counted_on_an_accelerator(
    make: Callable[..., Session], torch: Any, tmp_path: Path
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no accelerator here: graph capture itself is not tried")
    session = make()
    rows, weight = torch.ones(2, 64, device="cuda"), torch.ones(64, 64, device="cuda")
    torch.mm(rows, weight)
    graph = torch.cuda.CUDAGraph()
    with session.capture(shape(2), expects_graph=True) as capture:
        forward = capture.watch(lambda rows: torch.mm(rows, weight))
        with torch.cuda.graph(graph):
            forward(rows)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.mm(rows, weight)
    session.done()
    (record,) = records(tmp_path)
    assert record["dirty"] == []
    assert record["witnesses"] | {"graph": True, "graphs": 1, "streamCapture": True} == record["witnesses"]
    (done,) = lines(folder(tmp_path) / "done.json")
    assert (done["captureBegin"]["all"], done["captureBegin"]["tagged"]) == (2, 1)
    assert "test_session.py" in done["captureBegin"]["untagged"][0]
