from __future__ import annotations

import shutil
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from shapetrace_cli.errors import UsageError
from shapetrace_cli.local import places
from shapetrace_cli.local.layout import WORK, Layout
from shapetrace_contract.serving import PLUGIN
from shapetrace_contract.settings import RunId

from .attempts import files, make_attempt


def test_an_earlier_result_is_kept_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    make_attempt(tmp_path / "out")
    (tmp_path / "out/notes.txt").write_text("mine")
    before = files(tmp_path / "out")
    with pytest.raises(UsageError, match="holds the result of a run already"):
        places.prepare_out(tmp_path / "out", replace=False)
    assert files(tmp_path / "out") == before
    places.prepare_out(tmp_path / "out", replace=True)
    assert files(tmp_path / "out") == {"notes.txt": b"mine"}


@pytest.mark.parametrize("finished", [True, False])
def test_what_a_run_without_traces_left_is_no_result(finished: bool, tmp_path: Path) -> None:
    def nothing(manifest: dict[str, Any]) -> None:
        manifest.update(traces=[], verdict="Partial", captured=0, uploaded=0, bytes=0)

    make_attempt(tmp_path, nothing)
    shutil.rmtree(tmp_path / "traces")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "logs/preflight.log").write_text("")
    if not finished:
        (tmp_path / "manifest.json").unlink()
    places.prepare_out(tmp_path, replace=False)
    assert files(tmp_path) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("there", ["traces/rank-00000/x.json.gz", "replay/rank-00000/x.json.gz"])
def test_a_trace_without_a_manifest_is_a_result(there: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/preflight.log").write_text("")
    (tmp_path / there).parent.mkdir(parents=True)
    (tmp_path / there).write_text("")
    with pytest.raises(UsageError, match="holds the result of a run already") as error:
        places.prepare_out(tmp_path, replace=False)
    assert "--replace" in error.value.hint


def test_a_folder_of_logs_that_is_not_ours_is_kept(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/mine.log").write_text("mine")
    with pytest.raises(UsageError):
        places.prepare_out(tmp_path, replace=False)
    assert files(tmp_path) == {"logs/mine.log": b"mine"}


def test_a_foreign_folder_is_never_cleared(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/precious.json").write_text("{}")
    (tmp_path / "logs").mkdir()
    (tmp_path / "manifest.json").write_text('{"name": "a web page\'s manifest"}')
    with pytest.raises(UsageError, match="not clear that it is ours"):
        places.prepare_out(tmp_path, replace=True)
    assert (tmp_path / "traces/precious.json").exists()


def test_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / WORK / "store").mkdir(parents=True)
    places.prepare_out(tmp_path, replace=False)
    assert list(tmp_path.iterdir()) == []


def test_the_result_lies_in_the_attempts_layout_and_logs_are_joined(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "s", tmp_path / "p", RunId("profiling", "demo", "u", 1))
    make_attempt(layout.attempt)
    (layout.logs).mkdir()
    (layout.logs / "engine.log").write_text("x")
    expected = files(layout.attempt)
    places.deliver(layout)
    assert files(tmp_path / "out") == {**expected, "logs/engine.log": b"x"}


def test_a_spool_goes_to_shared_memory_only_where_it_fits(tmp_path: Path) -> None:
    small = places.make_temporary(1, tmp_path)
    large = places.make_temporary(2**60, tmp_path)
    nowhere = places.make_temporary(1, tmp_path / "absent")
    try:
        assert small.parent == tmp_path
        assert tmp_path not in (large.parent, nowhere.parent)
    finally:
        for folder in (small, large, nowhere):
            folder.rmdir()


def test_the_payload_is_what_the_engine_may_see(tmp_path: Path) -> None:
    places.make_payload(tmp_path / "payload")
    packages = {path.name for path in (tmp_path / "payload").iterdir() if path.suffix != ".dist-info"}
    assert packages == set(places.PAYLOAD)
    assert (tmp_path / "payload/shapetrace_launcher/__main__.py").is_file()


def test_a_serving_engine_finds_our_plugin_in_the_payload(tmp_path: Path) -> None:
    places.make_payload(tmp_path / "payload")
    (found,) = distributions(name=places.DISTRIBUTION, path=[str(tmp_path / "payload")])
    assert {entry.group for entry in found.entry_points if entry.name == PLUGIN} == {
        "sglang.srt.plugins",
        "vllm.general_plugins",
    }


def test_a_python_without_torch_is_refused_with_what_to_do(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    for answer, message in (
        ("True False", "has no torch"),
        ("False True", "older than Python 3.10"),
        ("", "no Python"),
    ):
        fake.write_text(f"#!/bin/sh\necho {answer}\n")
        fake.chmod(0o755)
        with pytest.raises(UsageError, match=message) as error:
            places.check_python(str(fake), needs_torch=True)
    places.check_python(sys.executable, needs_torch=False)
    with pytest.raises(UsageError, match="no Python"):
        places.check_python(str(tmp_path / "absent"), needs_torch=False)
    assert error.value.exit_code == 2
