"""The launcher around real processes: what it notes, whom it ends, how it exits."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from shapetrace_contract import spool
from stand_in import Launched, is_gone, wait_for


def test_all_ranks_done_and_drained_is_exit_0(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); done()", ranks=2) as run:
        run.drain()
        code, message = run.end()
        assert (code, message["reason"], message["drained"]) == (0, "Done", True)
        assert run.stopped() == {
            "v": 1,
            "reason": "Done",
            "rank": None,
            "exitCode": None,
            "signal": None,
            "message": "2 of 2 ranks are done",
            "models": [],
        }


def test_an_engine_that_serves_on_is_stopped_once_every_rank_is_done(tmp_path: Path) -> None:
    script = "record(); say(f'pid-{RANK}', os.getpid()); done(); hang()"
    with Launched(tmp_path, script, ranks=2, disruptionGraceSeconds=1) as run:
        run.drain()
        run.process.send_signal(signal.SIGTERM)  # else it may take its 30 s to end by itself
        code, _ = run.end()
        assert code == 0, "done and drained before the kubelet asked"
        for rank in (0, 1):
            assert is_gone(int((run.spool / f"pid-{rank}").read_text()))


def test_the_first_dead_rank_is_noted_although_the_others_die_too(tmp_path: Path) -> None:
    script = """
record()
say(f"pid-{RANK}", os.getpid())
hang()
"""
    with Launched(tmp_path, script, ranks=3) as run:
        wait_for("all pids", lambda: all(run.has(f"pid-{rank}")() for rank in range(3)))
        os.kill(int((run.spool / "pid-1").read_text()), signal.SIGKILL)
        stopped = run.stopped()
        assert (stopped["reason"], stopped["rank"], stopped["signal"]) == ("EngineFailed", 1, signal.SIGKILL)
        run.drain()
        code, message = run.end()
        assert (code, message["reason"], message["rank"], message["drained"]) == (50, "EngineFailed", 1, True)
        assert "SIGKILL" in message["message"]
        assert all(is_gone(int((run.spool / f"pid-{rank}").read_text())) for rank in range(3))


def test_a_failed_engine_is_exit_50_with_its_last_words_even_if_the_drain_times_out(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); raise RuntimeError('no such weights')", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"], message["exitCode"], message["drained"]) == (50, "EngineFailed", 1, False)
    assert message["message"].endswith("RuntimeError: no such weights")


def test_bad_arguments_of_the_engine_are_bad_configuration(tmp_path: Path) -> None:
    with Launched(tmp_path, "print('--heads 3 is not divisible'); sys.exit(44)", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"]) == (44, "BadConfiguration")
    assert "--heads 3 is not divisible" in message["message"]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "nonsense"])
def test_an_engine_that_this_version_does_not_start_is_named(tmp_path: Path, engine: str) -> None:
    with Launched(tmp_path, "", engine=engine, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
        assert run.stopped()["reason"] == "BadConfiguration", "always written, so that the collector can end"
    assert code == 44
    assert engine in message["message"]


def refused_command(folder: Path, *arguments: str) -> dict[str, Any]:
    """What a launcher notes of a program of the user's that cannot be started; its message is in ``folder``."""
    environment = {
        "PATH": os.environ["PATH"],
        "SHAPETRACE_SPOOL": str(folder / "spool"),
        "SHAPETRACE_ENGINE": json.dumps({"name": "command", "args": arguments}),
        "SHAPETRACE_LIMITS": '{"uploadTimeoutSeconds": 0}',
        "SHAPETRACE_TERMINATION_LOG": str(folder / "message"),
    }
    code = os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-m", "shapetrace_launcher"], environment)
    assert code == 44
    stopped = spool.read_json(folder / "spool" / spool.STOPPED)
    assert stopped is not None
    assert stopped["reason"] == "BadConfiguration"
    return stopped


def test_a_program_that_does_not_exist_is_bad_configuration(tmp_path: Path) -> None:
    refused_command(tmp_path, "no-such-program")
    assert "no-such-program" in (tmp_path / "message").read_text()


def test_a_command_line_given_as_one_word_is_told_how_it_is_written(tmp_path: Path) -> None:
    stopped = refused_command(tmp_path, "python3 mine.py", "--size")
    assert stopped["message"].endswith('; one word for each list entry: ["python3", "mine.py", "--size"]')


@pytest.mark.parametrize("argument", ["a\0b", "half \ud800"], ids=["NUL", "half a surrogate"])
def test_an_argument_that_no_program_can_be_given_is_bad_configuration(tmp_path: Path, argument: str) -> None:
    refused_command(tmp_path, "echo", argument)
    assert "engine.args" in (tmp_path / "message").read_text()


def test_an_engine_without_our_hooks_is_exit_51(tmp_path: Path) -> None:
    with Launched(tmp_path, "pass", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"], message["rank"]) == (51, "HooksNotApplied", 0)


def test_hooks_that_were_all_missing_are_exit_51_although_the_rank_is_done(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(runner='missing'); done()", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"]) == (51, "HooksNotApplied")
    assert "runner" in message["message"]


def test_a_rank_that_ends_well_before_it_is_done_ends_the_run(tmp_path: Path) -> None:
    script = "record(); RANK or sys.exit(0); hang()"
    with Launched(tmp_path, script, ranks=2, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["rank"], message["exitCode"]) == (50, 0, 0)


def test_a_bad_end_after_every_rank_was_done_changes_nothing(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); done(); sys.exit(7)") as run:
        run.drain()
        assert run.end()[0] == 0


def test_a_drain_that_takes_too_long_is_exit_52(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); done()", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"], message["drained"]) == (52, "UploadTimeout", False)


def test_what_could_not_be_stored_is_exit_52_and_the_collector_is_over(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); done()") as run:
        run.drain(ok=False, missing=3)
        code, message = run.end()
    assert (code, message["reason"], message["drained"]) == (52, "UploadTimeout", True)
    assert "3 records" in message["message"]


def test_sigterm_ends_the_whole_group_within_a_quarter_of_the_grace(tmp_path: Path) -> None:
    script = """
import subprocess
record()
STUBBORN = "import signal; signal.signal(15, lambda *_: 0); print('up', flush=True)\\nwhile 1: signal.pause()"
signal.signal(signal.SIGTERM, lambda *_: None)
child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
child.stdout.readline()
say("pids", f"{os.getpid()} {child.pid}")
hang()
"""
    with Launched(tmp_path, script, disruptionGraceSeconds=1) as run:
        wait_for("the pids", run.has("pids"))
        run.process.send_signal(signal.SIGTERM)
        stopped = run.stopped()
        assert (stopped["reason"], stopped["signal"]) == ("Stopped", signal.SIGTERM)
        for pid in (run.spool / "pids").read_text().split():
            wait_for(f"{pid} is gone", lambda pid=pid: is_gone(int(pid)))
        code, message = run.end()
        assert (code, message["reason"], message["drained"]) == (143, "Stopped", False)


def test_after_sigterm_a_drain_is_waited_for_within_the_grace(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); hang()", disruptionGraceSeconds=60) as run:
        wait_for("the rank's record", run.has(spool.RANK, 0))
        run.process.send_signal(signal.SIGTERM)
        run.drain()
        code, message = run.end()
        assert (code, message["drained"]) == (143, True), "stopped before it was done is never 0"


def test_output_is_passed_on_and_kept_with_the_rank_that_said_it(tmp_path: Path) -> None:
    with Launched(tmp_path, "print(f'I am {RANK}'); record(); done()", ranks=2) as run:
        run.drain()
        run.end()
        assert run.process.stdout is not None
        shown = run.process.stdout.read()
        kept = (run.spool / spool.ENGINE_LOG).read_text()
        for text in (shown, kept):
            assert "[rank 0] I am 0\n" in text
            assert "[rank 1] I am 1\n" in text


def test_a_spool_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); done()") as run:
        run.drain()
        run.end()
        environment = {
            "PATH": os.environ["PATH"],
            "SHAPETRACE_SPOOL": str(run.spool),
            "SHAPETRACE_ENGINE": '{"name": "torch"}',
        }
        code = os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-m", "shapetrace_launcher"], environment)
    assert code == 44


def test_without_a_spool_the_variable_is_named(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "SHAPETRACE_TERMINATION_LOG": str(tmp_path / "message")}
    code = os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-m", "shapetrace_launcher"], environment)
    assert code == 44
    assert "SHAPETRACE_SPOOL" in (tmp_path / "message").read_text()


def test_a_script_gets_its_plan_and_end_written_after_exit_0(tmp_path: Path) -> None:
    script = """
record()
for number, size in enumerate((1, 2)):
    spool.append_line(FOLDER / spool.CAPTURES, {"seq": number, "tag": f"Script__bs_{size}", "file": None})
begun = {"all": 3, "tagged": 2, "untagged": ["a:1 f"]}
spool.write_json(spool.process_file(ROOT, 1), {"rank": 0, "captureBegin": begun})
"""
    with Launched(tmp_path, script, engine="command") as run:
        run.drain()
        assert run.end()[0] == 0
        (line,) = spool.read_lines(run.folder() / spool.PLAN)
        assert (line["runner"], line["shapes"]) == ("Script", ["Script__bs_1", "Script__bs_2"])
        done = spool.read_json(run.folder() / spool.DONE) or {}
        assert (done["records"], done["ok"]) == (2, True)
        assert done["captureBegin"] == {"all": 3, "tagged": 2, "measured": 0, "untagged": ["a:1 f"]}


def test_a_script_that_fails_gets_no_end(tmp_path: Path) -> None:
    with Launched(tmp_path, "record(); sys.exit(3)", engine="command", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
        assert not run.has(spool.DONE, 0)()
    assert (code, message["exitCode"]) == (50, 3)


def test_a_script_that_never_calls_us_is_exit_51(tmp_path: Path) -> None:
    with Launched(tmp_path, "pass", engine="command", uploadTimeoutSeconds=0) as run:
        assert run.end()[0] == 51
