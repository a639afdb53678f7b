from __future__ import annotations

import io
from typing import Any

import pytest
from shapetrace_cli.errors import CliError
from shapetrace_cli.ranks import RanksView, counters
from shapetrace_cli.watch import ended, now, watch
from shapetrace_contract.progress import RankProgress


class Runs:
    """Stands where the API server does: the statuses of a run, one a question."""

    namespace = "profiling"

    def __init__(self, *statuses: dict[str, Any]) -> None:
        self._statuses = list(statuses)

    def profile_run(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "status": self._statuses.pop(0)}


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def condition(kind: str, status: str, reason: str = "R", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def rank(number: int, uploaded: int, state: str = "Capturing", expected: int | None = 4) -> dict[str, Any]:
    entry = {"rank": number, "state": state, "uploaded": uploaded}
    return entry if expected is None else {**entry, "expected": expected}


def test_counters_wait_for_every_ranks_plan() -> None:
    ranks = [RankProgress.from_json(rank(0, 3)), RankProgress.from_json(rank(1, 1, expected=None))]
    assert counters(ranks) == "4/? traces stored, 0/2 ranks done"
    ranks[1] = RankProgress.from_json({**rank(1, 3, "Done"), "failed": 1})
    assert counters(ranks) == "6/8 traces stored, 1 lost, 1/2 ranks done"
    assert counters([]) == "0/? traces stored, 0/? ranks done"


def test_a_run_is_shown_until_it_ends_and_its_end_is_told() -> None:
    clock, stream = Clock(), io.StringIO()
    finished = {
        "phase": "Succeeded",
        "verdict": "Complete",
        "progress": {"summary": "8/8", "ranksSummary": "2/2"},
        "conditions": [condition("Finished", "True"), condition("Succeeded", "True")],
    }
    runs = Runs(
        {},
        {"phase": "Pending", "conditions": [condition("Scheduled", "False", "Unschedulable", "no \x1b[1mnode")]},
        {"phase": "Capturing", "ranks": [rank(0, 1), {"rank": "x\x1b"}, rank(1, 0)]},
        finished,
    )
    end = watch(runs, "demo", RanksView(stream, clock=clock), timeout_seconds=60, clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]
    assert (end.succeeded, end.summary) == (True, "Succeeded  Complete  8/8  2/2")
    lines = [line.split(" s ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == [
        "waiting for the operator: 0/? traces stored, 0/? ranks done",
        "Pending (Unschedulable: no node): 0/? traces stored, 0/? ranks done",
        "Capturing: 1/8 traces stored, 0/2 ranks done (rank 0 Capturing 1/4, rank 1 Capturing 0/4)",
    ]


def test_a_failure_says_why() -> None:
    status = {
        "phase": "Failed",
        "verdict": "Partial",
        "failure": {"reason": "EngineFailed", "message": "rank 1 was killed by SIGKILL"},
        "conditions": [condition("Finished", "True"), condition("Succeeded", "False", "EngineFailed")],
    }
    end = ended({"status": status})
    assert end is not None
    assert not end.succeeded
    assert end.summary == "Failed  Partial  (EngineFailed: rank 1 was killed by SIGKILL)"


def test_a_run_that_does_not_end_is_left_after_the_timeout() -> None:
    clock = Clock()
    runs = Runs(*[{"phase": "Pending"}] * 20)
    with pytest.raises(CliError, match="not finished after 5 s"):
        watch(runs, "demo", RanksView(io.StringIO()), timeout_seconds=5, clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]


def line_texts(stream: io.StringIO) -> list[str]:
    return [line.split(" s ", 1)[1] for line in stream.getvalue().splitlines()]


def leave(*statuses: dict[str, Any], timeout_seconds: float = 30) -> tuple[list[str], CliError]:
    """The lines and the end of a watch that gives up; the last status stays."""
    clock, stream = Clock(), io.StringIO()
    runs = Runs(*statuses, *[statuses[-1]] * 60)
    with pytest.raises(CliError) as error:
        watch(
            runs,  # type: ignore[arg-type]
            "demo",
            RanksView(stream, clock=clock),
            timeout_seconds=timeout_seconds,
            clock=clock,
            sleep=clock.sleep,
        )
    return line_texts(stream), error.value


def test_a_run_that_no_operator_serves_is_told_once_and_is_not_said_to_go_on() -> None:
    lines, error = leave({})
    unseen = [line for line in lines if line.startswith("no operator has looked at this run yet")]
    assert unseen == [
        "no operator has looked at this run yet: is shapetrace installed, and does it serve namespace profiling "
        "(the chart's `namespaces`)?"
    ]
    assert "goes on" not in error.hint
    assert "no operator has looked" in error.hint
    lines, error = leave(*[{}] * 5, {"phase": "Pending"})
    assert not [line for line in lines if "no operator" in line], "it came within the time that one takes"
    assert error.hint.startswith("It goes on: kubectl describe prun demo -n profiling")


def test_a_run_that_waits_is_left_with_its_cause() -> None:
    message = "suspended by spec.suspend; set it to false to start attempt 2"
    suspended = {
        "phase": "Suspended",
        "conditions": [condition("Succeeded", "Unknown", "Suspended", message), condition("Finished", "False")],
    }
    lines, error = leave(suspended)
    assert lines == [f"Suspended (Suspended: {message}): 0/? traces stored, 0/? ranks done"]
    assert error.hint.startswith(f"It is Suspended: Suspended: {message}. kubectl describe")
    assert "goes on" not in leave({"phase": "Suspended"})[1].hint


def test_the_cause_is_shown_beside_ranks_the_false_ones_first() -> None:
    status = {
        "phase": "Preparing",
        "ranks": [rank(0, 0, "Waiting", None)],
        "conditions": [
            condition("Accepted", "True", "Accepted", "yes"),
            condition("Captured", "Unknown", "ProgressUnreachable", "no way"),
            condition("StorageReady", "False", "ImagePullFailed", "no such image x:1"),
            condition("Uploaded", "Unknown", "Waiting"),
            condition("Finished", "False", "InProgress", "not yet"),
        ],
    }
    assert now({"status": status})[0] == ("Preparing (ImagePullFailed: no such image x:1; ProgressUnreachable: no way)")


def test_without_a_terminal_lines_are_few() -> None:
    clock, stream = Clock(), io.StringIO()
    view = RanksView(stream, clock=clock)
    for uploaded in range(100):
        view.update("Capturing", [RankProgress(0, "Capturing", 100, uploaded, uploaded)])
        clock.sleep(0.1)
    assert 5 <= len(stream.getvalue().splitlines()) <= 6
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_ranks_are_shown() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with RanksView(stream) as view:
        view.update("Capturing", [RankProgress(0, "Capturing", 4, 1, 1, lastShape="Decode\x1b[2J__bs_4")])
    assert "Decode__bs_4" in stream.getvalue()


def test_what_status_holds_is_read_with_care() -> None:
    assert now({}) == ("waiting for the operator", [])
    assert now({"status": {"ranks": [{}, None, rank(3, -1)], "conditions": ["x"]}})[1] == []
