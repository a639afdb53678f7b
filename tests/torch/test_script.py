"""``engine: command``: a user's own script, through the launcher."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from launched import folder, launch, lines, traces

SCRIPT = """
import sys, torch, shapetrace_capture
weight = torch.ones(4, 4)
for size in map(int, sys.argv[1].split(",")):
    for kind in ("relu", "gelu"):
        with shapetrace_capture.shape(size=size, unit="bs", kind=kind):
            getattr(torch.nn.functional, kind)(torch.mm(torch.ones(size, 4), weight))
"""


def command(*sizes: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-c", SCRIPT, *sizes]


def test_without_a_plan_what_was_captured_is_the_plan(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    ended = launch(spool, command("2,1"), name="command", targets=[])
    assert ended["reason"] == "UploadTimeout", ended["output"]
    (plan,) = lines(folder(spool) / "plan.jsonl")
    assert plan["shapes"] == [f"Script__bs_{size}__kind-{kind}" for size in (2, 1) for kind in ("relu", "gelu")]
    (done,) = lines(folder(spool) / "done.json")
    assert (done["records"], done["ok"]) == (4, True)
    (record,) = lines(folder(spool) / "rank.json")
    assert record["hooks"]["shapetrace_capture.shape"] == "applied"
    assert len(traces(spool)) == 4


def test_declared_targets_are_the_plan_and_name_the_runner(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    targets = [
        {"runner": "mine", "unit": "bs", "sizes": [1, 2, 4], "variants": [{"axis": "kind", "values": ["relu", "gelu"]}]}
    ]
    launch(spool, command("2,1"), name="command", targets=targets)
    (plan,) = lines(folder(spool) / "plan.jsonl")
    assert len(plan["shapes"]) == 6, "size 4 is planned, and will be missed"
    captured = [record["tag"] for record in lines(folder(spool) / "captures.jsonl")]
    assert captured == [tag for tag in plan["shapes"] if "bs_4" not in tag]


def test_a_script_may_start_a_process_per_shape_and_plan_itself(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    one = (
        "import shapetrace_capture, torch; "
        "shapetrace_capture.plan([dict(size={0}, kind='sin')]); "
        "c = shapetrace_capture.shape(size={0}, kind='sin'); c.__enter__(); torch.ones({0}).sin(); "
        "c.__exit__(None, None, None)"
    )
    lines_of_shell = " && ".join(f'{sys.executable} -W ignore -c "{one.format(size)}"' for size in (2, 1))
    ended = launch(spool, ["sh", "-c", lines_of_shell], name="command", targets=[])
    assert ended["reason"] == "UploadTimeout", ended["output"]
    assert [plan["shapes"] for plan in lines(folder(spool) / "plan.jsonl")] == [
        ["Script__bs_2__kind-sin"],
        ["Script__bs_1__kind-sin"],
    ]
    assert [record["seq"] for record in lines(folder(spool) / "captures.jsonl")] == [0, 1]
    assert [trace["shapetrace"]["tag"] for _, trace in traces(spool)] == [
        "Script__bs_2__kind-sin",
        "Script__bs_1__kind-sin",
    ]


def test_a_call_that_cannot_be_a_shape_is_noted_and_the_script_goes_on(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    script = """
import shapetrace_capture, torch
with shapetrace_capture.shape(size=0, Kind="x"):
    torch.ones(1).sin()
with shapetrace_capture.shape(size=1):
    torch.ones(1).sin()
"""
    ended = launch(spool, [sys.executable, "-W", "ignore", "-c", script], name="command", targets=[])
    assert ended["reason"] == "UploadTimeout", ended["output"]
    (done,) = lines(folder(spool) / "done.json")
    assert (done["records"], done["ok"]) == (1, False)
    assert "size=0" in done["reason"]


def test_two_processes_of_one_rank_never_label_each_others_traces(torch: Any, tmp_path: Path) -> None:
    """A script that starts workers without a RANK for each: what one recorded is never told as the other's."""
    spool = tmp_path / "spool"
    script = """
import multiprocessing, shapetrace_capture, torch
def work(first, barrier):
    for size in (first, first + 1, 9):
        barrier.wait()
        with shapetrace_capture.shape(size=size):
            torch.ones(size).sin()
            barrier.wait()
context = multiprocessing.get_context("fork")
barrier = context.Barrier(2)
workers = [context.Process(target=work, args=(first, barrier)) for first in (1, 5)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
"""
    launch(spool, [sys.executable, "-W", "ignore", "-c", script], name="command", targets=[])
    records = lines(folder(spool) / "captures.jsonl")
    assert sorted(record["seq"] for record in records) == list(range(6))
    labels = [(record["tag"], trace["shapetrace"]["tag"]) for record, trace in traces(spool)]
    assert all(ours == its for ours, its in labels)
    assert sorted(ours for ours, _ in labels) == [f"Script__bs_{size}" for size in (1, 2, 5, 6, 9)]
    (twice,) = [record for record in records if record["error"]]
    assert (twice["tag"], twice["file"]) == ("Script__bs_9", None)
    assert "RANK" in twice["error"]


def test_a_fault_in_a_child_that_leaves_without_cleaning_up_is_told(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    script = """
import multiprocessing, shapetrace_capture, torch
def work():
    with shapetrace_capture.shape(size=2.5):
        torch.ones(2).sin()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
    launch(spool, [sys.executable, "-W", "ignore", "-c", script], name="command", targets=[])
    (done,) = lines(folder(spool) / "done.json")
    assert (done["records"], done["ok"]) == (0, False)
    assert "size=2.5" in done["reason"]


def test_threads_that_begin_at_once_lose_nothing_unsaid(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    script = """
import sys, threading, torch, shapetrace_capture
from shapetrace_capture.session import Session
make, slow = Session.from_environment, threading.Event()
def late(environment):
    slow.wait(1)
    return make(environment)
Session.from_environment = late
def work(size):
    with shapetrace_capture.shape(size=size):
        torch.ones(size).sin()
threads = [threading.Thread(target=work, args=(size,)) for size in (1, 2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    launch(spool, [sys.executable, "-W", "ignore", "-c", script], name="command", targets=[])
    assert sorted(record["tag"] for record in lines(folder(spool) / "captures.jsonl")) == [
        "Script__bs_1",
        "Script__bs_2",
    ]
