"""Terminals, folders and manifests that are not as one would wish: a sentence and an exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shapetrace_cli.errors import UsageError
from shapetrace_cli.listing import safe_key
from shapetrace_cli.local.run import _from_spool
from shapetrace_cli.location import parse_folder
from shapetrace_contract import spool
from shapetrace_contract.progress import RankProgress

from .attempts import RELATIVE, make_attempt


def run(*arguments: object, **more: str) -> tuple[int, str, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **more}
    command = [sys.executable, "-m", "shapetrace_cli", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode("ascii", "replace"), done.stderr.decode("utf-8", "replace")


def test_a_terminal_without_unicode_shows_question_marks(tmp_path: Path) -> None:
    root = tmp_path / RELATIVE
    make_attempt(root, lambda manifest: manifest.update(reasons=["größer…"], verdict="Partial"))
    code, out, err = run("show", root, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "gr??er?" in out


def test_a_place_that_takes_no_manifest_is_named(tmp_path: Path) -> None:
    root = tmp_path / "store" / RELATIVE
    make_attempt(root, lambda manifest: manifest.update(traces=[]))
    (tmp_path / "out" / ".shapetrace-part-manifest.json").mkdir(parents=True)
    code, _, err = run("fetch", root, tmp_path / "out")
    assert code == 1
    assert "Traceback" not in err
    assert ".shapetrace-part-manifest.json" in err


@pytest.mark.parametrize("path", ["~nobody-of-that-name/x", "/" + "d" * 300, "/x\0y"])
def test_a_path_that_cannot_be_is_wrong_usage(path: str) -> None:
    with pytest.raises(UsageError):
        parse_folder(path)


def test_more_cells_than_anybody_reads_are_not_drawn(tmp_path: Path) -> None:
    def many(manifest: dict[str, Any]) -> None:
        entry = manifest["traces"][0]
        manifest["traces"] = [
            {**entry, "key": f"traces/rank-{number}/x.json.gz", "rank": number, "tag": f"D__bs_{number + 1}"}
            for number in range(3000)
        ]

    root = tmp_path / RELATIVE
    make_attempt(root, many)
    code, out, _ = run("show", root)
    assert code == 0
    assert "3000 shapes x 3000 ranks" in out
    assert len(out) < 1000


def test_a_key_is_never_the_temporary_name_of_another() -> None:
    with pytest.raises(ValueError, match="odd characters"):
        safe_key("traces/rank-00000/.shapetrace-part-x.json.gz")


@pytest.mark.parametrize("text", ["[]\n", "{}\n", '{"bytes": "x"}\n', "[" * 100_000 + "\n"])
def test_what_a_script_wrote_in_the_collectors_place_does_not_end_a_local_run(tmp_path: Path, text: str) -> None:
    folder = spool.rank_folder(tmp_path, 0)
    folder.mkdir()
    (folder / spool.UPLOADED).write_text(text)
    entry = RankProgress(rank=0, uploaded=3)
    assert _from_spool(entry, tmp_path) == entry


@pytest.mark.parametrize("name", ["out", "my_out"])
@pytest.mark.parametrize("command", [("show",), ("verify",), ("fetch", "./to")], ids=lambda command: command[0])
def test_a_bare_name_is_a_runs_and_a_folder_of_it_is_pointed_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], name: str
) -> None:
    make_attempt(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    code, _, err = run(command[0], name, *command[1:], KUBECONFIG=str(tmp_path / "none"))
    assert code == 2
    assert err.startswith(f"error: {name} is taken for a run's name; for the folder here write ./{name} (")
    assert run(command[0], f"./{name}", *command[1:])[0] != 2  # what is in it is another question


@pytest.mark.parametrize("command", ["show", "verify"])
def test_copies_of_relabel_are_for_index(tmp_path: Path, command: str) -> None:
    code, _, err = run(command, tmp_path)
    assert code == 2
    assert f"Copies of relabel have no manifest: shapetrace index {tmp_path}" in err
