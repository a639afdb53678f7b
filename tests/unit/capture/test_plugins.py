"""The engines' entry points: inert without a spool, silent towards the engine, and never without a record."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest
from shapetrace_capture import plugins
from shapetrace_capture.process import MAX_FAULTS, Process
from shapetrace_capture.ranks import RankId
from shapetrace_capture.session import Session
from shapetrace_contract import names, spool


def _adapter(monkeypatch: pytest.MonkeyPatch, register: object) -> None:
    module = ModuleType("shapetrace_capture.adapters.sglang")
    module.register = register  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def _record(folder: Path) -> dict[str, object]:
    record = spool.read_json(spool.process_file(folder, os.getpid()))
    assert record is not None
    return record


@pytest.mark.parametrize("group", ["sglang.srt.plugins", "vllm.general_plugins"])
def test_each_engine_finds_its_entry_point(group: str) -> None:
    (found,) = [point for point in entry_points(group=group) if point.name == "shapetrace"]
    assert found.load().__module__ == "shapetrace_capture.plugins"


def test_without_a_spool_no_adapter_is_even_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(process: Process) -> None:
        raise AssertionError("called")

    _adapter(monkeypatch, fail)
    monkeypatch.delenv(names.ENV_SPOOL, raising=False)
    plugins.register_sglang()


def test_an_adapter_that_raises_reaches_the_record_and_not_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(process: Process) -> None:
        process.version = "0.5.99"
        process.hooks["some.Class.method"] = "applied"
        raise RuntimeError("this release is unknown")

    _adapter(monkeypatch, fail)
    monkeypatch.setenv(names.ENV_SPOOL, str(tmp_path))
    plugins.register_sglang()
    record = _record(tmp_path)
    assert record["errors"] == ["the plugin for sglang: RuntimeError: this release is unknown"]
    assert record["engine"] == {"name": "sglang", "version": "0.5.99", "configuration": {}}
    assert record["hooks"] == {"some.Class.method": "applied"}
    assert record["rank"] is None


def test_a_spool_that_cannot_be_written_does_not_stop_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    _adapter(monkeypatch, lambda process: None)
    monkeypatch.setenv(names.ENV_SPOOL, str(tmp_path / "file"))
    plugins.register_sglang()
    assert "the process record" in capsys.readouterr().err


def test_the_same_fault_is_noted_once_and_faults_are_bounded(tmp_path: Path) -> None:
    process = Process(tmp_path, {})
    for number in range(2 * MAX_FAULTS):
        process.fault("a hook", str(number // 2))
    process.fault("a hook", "0")
    process.fault("a hook", "x" * 5000)
    assert len(process.faults) == MAX_FAULTS
    assert process.faults[:2] == ["a hook: 0", "a hook: 1"]


def test_a_fault_is_in_the_record_as_soon_as_it_is_known(tmp_path: Path) -> None:
    process = Process(tmp_path, {})
    process.fault("the plan", "of nothing")
    assert _record(tmp_path)["errors"] == ["the plan: of nothing"]
    Session.of_process(process, RankId(3, tp=3))
    process.fault("a hook", "raised")
    record = _record(tmp_path)
    assert (record["rank"], record["errors"]) == (3, ["the plan: of nothing", "a hook: raised"])


class UnspeakableError(Exception):
    """Fails when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_be_spelled_is_noted_by_its_class(tmp_path: Path) -> None:
    process = Process(tmp_path, {}, "vllm")
    process.fault("a hook", UnspeakableError())
    assert process.faults == ["a hook: UnspeakableError: (its text cannot be had: RuntimeError)"]
