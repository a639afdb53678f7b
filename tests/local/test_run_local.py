"""`shapetrace run-local` end to end: real engine, capture, collector and finish as processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.mark.torch

TINY = ["--layers", "2", "--hidden", "64", "--heads", "4", "--vocabulary", "256", "--context", "64", "--topk", "8"]
STORAGE = {"s3": {"bucket": "not-used"}}


def tiny(**changes: Any) -> dict[str, Any]:
    """Two ranks x two sizes x lora x attention: 16 traces in a few seconds."""
    variants = [{"axis": "lora", "values": ["lora", "nolora"]}, {"axis": "attention", "values": ["dense", "sparse"]}]
    spec: dict[str, Any] = {
        "engine": {"name": "torch", "args": TINY},
        "parallelism": {"tensor": 2},
        "capture": {"targets": [{"runner": "decode", "sizes": [1, 2], "variants": variants}]},
        "accelerator": {"vendor": "none"},
        "storage": STORAGE,
    }
    return {**spec, **changes}


def command(*args: str) -> dict[str, Any]:
    engine = {"name": "command", "image": "not-used", "args": list(args)}
    return {"engine": engine, "accelerator": {"vendor": "none"}, "storage": STORAGE}


def manifest(out: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return value


@torch
def test_a_tiny_model_ends_complete_with_all_traces_although_its_collector_was_killed(
    run_local: Callable[..., Any], differences: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    made = run_local(tiny())
    made.until("Preparing")
    os.kill(made.child("shapetrace_collector"), signal.SIGKILL)
    made.until("starting it again")
    code, out, err = made.end()
    assert code == 0, err
    found = manifest(tmp_path / "out")
    assert (found["verdict"], found["expected"], found["uploaded"]) == ("Complete", 16, 16)
    assert {trace["support"]["size"] for trace in found["traces"]} == {"proven"}
    assert {word for trace in found["traces"] for word in trace["support"]["variants"].values()} <= {
        "proven",
        "distinct",
    }
    assert differences(tmp_path / "out") == []
    assert "here/local attempt 1: Complete, 16/16 traces, 2 ranks" in out
    assert err.splitlines()[-1].startswith("next: shapetrace show ")
    assert {path.name for path in (tmp_path / "out/logs").iterdir()} == {
        "preflight.log",
        "collector.log",
        "engine.log",
        "finish.log",
        "pod-0",
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "claims",
        "environment.json",
        "logs",
        "manifest.json",
        "parts",
        "traces",
    }


@torch
def test_ctrl_c_keeps_what_was_captured_and_leaves_nothing_running(
    run_local: Callable[..., Any], tmp_path: Path
) -> None:
    spec = tiny()
    spec["capture"]["targets"][0]["sizes"] = list(range(1, 201))
    made = run_local(spec)
    made.until("Capturing: [1-9]")  # the first line that counts a trace
    os.kill(made.process.pid, signal.SIGINT)
    code, out, err = made.end()
    assert code == 130, err
    found = manifest(tmp_path / "out")
    assert found["verdict"] == "Partial"
    assert 0 < found["uploaded"] < 1600
    stored = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out/traces").rglob("*.gz")}
    assert stored == {trace["key"] for trace in found["traces"]}
    assert "error: interrupted" in err
    assert "Partial" in out


@torch
def test_a_users_own_script_yields_its_traces(run_local: Callable[..., Any], tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples/user_script.py"
    code, _, err = run_local(command("python3", str(script)), "-o", "json").end()
    assert code == 0, err
    found = manifest(tmp_path / "out")
    assert found["verdict"] == "Complete"
    assert sorted(trace["tag"] for trace in found["traces"]) == sorted(
        f"UserScript__bs_{size}__activation-{activation}" for size in (1, 2, 4, 8) for activation in ("gelu", "relu")
    )


def test_an_engine_that_fails_is_partial_and_its_last_words_are_told(
    run_local: Callable[..., Any], tmp_path: Path
) -> None:
    code, _, err = run_local(command("sh", "-c", "echo 'no such model: x' >&2; exit 3")).end()
    assert code == 1
    assert "EngineFailed" in err
    assert "no such model: x" in err
    assert "nothing was captured" in err
    assert "traces and manifest.json are in" not in err
    assert manifest(tmp_path / "out")["verdict"] == "Partial"
    code, _, err = run_local(command("sh", "-c", "exit 4")).end()
    assert code == 1, "a folder without traces is taken again"
    assert "exit code 4" in err


def test_a_script_whose_python_has_no_torch_says_how_to_get_it(run_local: Callable[..., Any], tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples/user_script.py"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    code, _, err = run_local(command("python3", str(script)), "--python", str(tmp_path / "bare/bin/python")).end()
    assert code == 1
    assert "No module named 'torch'" in err
    assert "`make venv-torch` in the checkout" in err
    assert "--python" in err


def test_a_relative_script_is_looked_for_in_the_current_folder(run_local: Callable[..., Any]) -> None:
    code, _, err = run_local(command("python3", "no/such/script.py")).end()
    assert code == 1
    assert f"the current folder, {Path.cwd()}" in err


def test_a_program_that_is_not_there_is_named(run_local: Callable[..., Any]) -> None:
    code, _, err = run_local(command("no-such-program")).end()
    assert code == 1
    assert "no-such-program" in err
    assert "Traceback" not in err
