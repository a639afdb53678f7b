"""The launcher around a stand-in for an engine that serves for ever: real processes, no engine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from shapetrace_contract import spool
from stand_in import Launched, is_gone, wait_for

MODELS = {"models": [{"role": "target", "path": "/models/a"}]}


CHILD = """
PROGRAM = '''
import os, pathlib, signal
told = pathlib.Path(os.environ["SHAPETRACE_SPOOL"], "child-told")
signal.signal(signal.SIGTERM, lambda *_: told.touch())
print("up", flush=True)
while True: signal.pause()
'''
import subprocess
child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
child.stdout.readline()
"""
"""A process below the head that tells of a SIGTERM of its own."""


def sglang(root: Path, script: str, **options: Any) -> Launched:
    given: dict[str, Any] = {"engine": "sglang", "version": "0.5.23", "settings": MODELS, **options}
    return Launched(root, script, **given)


def test_the_head_alone_is_told_to_stop_once_every_rank_is_done(tmp_path: Path) -> None:
    script = (
        CHILD
        + """
def stop(*_):
    say("told"); child.kill(); sys.exit(3)
signal.signal(signal.SIGTERM, stop)
record(0); record(1); done(0); say("pid", str(os.getpid())); time.sleep(0.5)
(ROOT / spool.STOPPED).exists() and say("too-early")
done(1); serve()
"""
    )
    with sglang(tmp_path, script, ranks=2) as run:
        run.drain()
        code, message = run.end()
        assert (code, message["reason"], message["drained"]) == (0, "Done", True), "its own exit code 3 does not matter"
        assert run.has("told")()
        assert not run.has("child-told")()
        assert not run.has("too-early")()
        assert is_gone(int((run.spool / "pid").read_text()))


def test_a_head_that_loses_the_first_signal_is_told_again(tmp_path: Path) -> None:
    """vLLM 0.32 that is told while it warms its chat templates up catches what its handler raises, and serves on."""
    script = """
told = []
def stop(*_):
    told.append(1)
    if len(told) == 2:
        time.sleep(1)  # enough for the child to tell of a signal of its own
        child.kill(); say("told-twice"); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
record(); done(); serve()
"""
    # of the time that the head has to end, fifteen seconds are left to a busy machine
    with sglang(tmp_path, CHILD + script, fast=2) as run:
        run.drain()
        assert run.end()[0] == 0
        assert run.has("told-twice")()
        assert not run.has("child-told")()


def test_a_head_that_does_not_stop_is_killed_with_all_below_it(tmp_path: Path) -> None:
    script = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
signal.signal(signal.SIGTERM, lambda *_: None)
record(); say("pids", f"{os.getpid()} {child.pid}"); done(); serve()
"""
    with sglang(tmp_path, script, fast=60) as run:
        run.drain()
        assert run.end()[0] == 0
        for pid in (run.spool / "pids").read_text().split():
            wait_for(f"{pid} is gone", lambda pid=pid: is_gone(int(pid)))


def test_sigterm_ends_the_whole_group_of_a_serving_engine(tmp_path: Path) -> None:
    script = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
signal.signal(signal.SIGTERM, lambda *_: None)
record(); say("pids", f"{os.getpid()} {child.pid}"); serve()
"""
    with sglang(tmp_path, script, disruptionGraceSeconds=1) as run:
        wait_for("the pids", run.has("pids"))
        run.process.send_signal(signal.SIGTERM)
        assert run.end()[0] == 143
        for pid in (run.spool / "pids").read_text().split():
            wait_for(f"{pid} is gone", lambda pid=pid: is_gone(int(pid)))


@pytest.mark.parametrize(("engine", "version", "title"), [("sglang", "0.5.23", "SGLang"), ("vllm", "0.32.0", "vLLM")])
def test_an_engine_that_serves_without_our_plugin_is_exit_51(
    tmp_path: Path, engine: str, version: str, title: str
) -> None:
    with sglang(tmp_path, "serve()", engine=engine, version=version, fast=60, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"], message["rank"]) == (51, "HooksNotApplied", 0)
    assert f"{title} {version}" in message["message"]
    assert "was loaded in none of its processes" in message["message"]


def test_a_plugin_that_failed_in_one_rank_is_exit_51_with_its_error(tmp_path: Path) -> None:
    script = "process('sglang adapter: AttributeError: no capture_one'); record(0); done(0); serve()"
    with sglang(tmp_path, script, ranks=2, fast=60, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["rank"]) == (51, 1)
    assert "AttributeError: no capture_one" in message["message"]


def test_a_rank_that_serves_and_never_ends_its_graph_work_is_exit_51(tmp_path: Path) -> None:
    with sglang(tmp_path, "process(); record(); serve()", fast=60, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["rank"]) == (51, 0)
    assert "never said that its graph work is over" in message["message"]


def test_an_engine_that_does_not_serve_yet_is_waited_for(tmp_path: Path) -> None:
    """Loading may take as long as the run's deadline allows: only an engine that serves is missed something of."""
    script = "time.sleep(2.5); record(); done(); serve()"
    with sglang(tmp_path, script, fast=60) as run:
        run.drain()
        assert run.end()[0] == 0


def test_an_engine_that_kills_itself_tells_the_error_of_the_part_that_died(tmp_path: Path) -> None:
    script = """
print("[TP1] Scheduler hit an exception: Traceback (most recent call last):")
print("  File x")
print("ValueError: no such quantization")
print()
print("Received sigquit from a child process. It usually means the child failed.", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with sglang(tmp_path, script, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"]) == (50, "EngineFailed")
    assert message["message"].endswith("SIGKILL: ValueError: no such quantization")


def test_plugin_lists_are_extended_and_sglangs_own_traces_are_off(tmp_path: Path) -> None:
    script = "import json; say('environment', json.dumps(dict(os.environ))); record(); done()"
    given = {"SGLANG_PLUGINS": "theirs", "SGLANG_GRAPH_BATCH_CAPTURE": "1"}
    with sglang(tmp_path, script, variables=given) as run:
        run.drain()
        assert run.end()[0] == 0
        seen = (run.spool / "environment").read_text()
        log = (run.spool / spool.ENGINE_LOG).read_text()
    assert '"SGLANG_PLUGINS": "theirs,shapetrace"' in seen
    assert "SGLANG_GRAPH_BATCH_CAPTURE" not in seen
    assert "SGLANG_GRAPH_BATCH_CAPTURE is taken out of the environment" in log


def test_an_image_without_the_engine_is_bad_configuration(tmp_path: Path) -> None:
    with Launched(tmp_path, "", engine="sglang", settings=MODELS, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"]) == (44, "BadConfiguration")
    assert "engine.image" in message["message"]
    assert "has no package sglang" in message["message"]
