from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from shapetrace_cli.output import next_step
from shapetrace_cli.text import size_text

from .attempts import files, make_attempt
from .command import run


def test_everything_listed_arrives_in_the_attempts_layout(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert run("fetch", attempt, out) == 0
    expected = {name: body for name, body in files(attempt).items() if not name.startswith("parts/")}
    assert files(out) == expected
    shown = capsys.readouterr()
    assert "8 of 8 traces" in shown.err
    assert shown.err.splitlines()[-1] == (
        f"next: shapetrace show {out}; shapetrace verify {out}; open a file of {out}/traces in Perfetto"
    )
    assert "proven/distinct" in shown.out


def test_parts_come_on_request_and_logs_can_stay(attempt: Path, tmp_path: Path) -> None:
    assert run("fetch", attempt, tmp_path / "out", "--parts", "--no-logs", "-o", "none") == 0
    there = {name.split("/")[0] for name in files(tmp_path / "out")}
    assert there == {"traces", "parts", "environment.json", "manifest.json"}


def test_a_second_fetch_reads_nothing_again_and_repairs_what_is_damaged(
    attempt: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out"
    assert run("fetch", attempt, out) == 0
    traces = sorted((out / "traces").rglob("*.gz"))
    before = {path: path.stat().st_ino for path in traces}
    traces[0].write_bytes(b"x" * traces[0].stat().st_size)
    traces[1].unlink()
    (out / ".shapetrace-part-manifest.json").write_text("left over")
    capsys.readouterr()
    assert run("fetch", attempt, out) == 0
    err = capsys.readouterr().err
    size_bytes = sum(path.stat().st_size for path in traces[1:2])
    assert err.splitlines()[0] == f"demo: fetching 1 trace, {size_text(size_bytes)}; checking 7 that are there"
    assert "(6 were there)" in err
    assert {path: path.stat().st_ino for path in traces[2:]} == {path: before[path] for path in traces[2:]}
    assert traces[0].read_bytes() == (attempt / traces[0].relative_to(out)).read_bytes()
    assert not list(out.rglob(".shapetrace-part-*"))


def test_a_run_without_traces_is_no_success(tmp_path: Path, capsys: Any) -> None:
    def nothing(manifest: dict[str, Any]) -> None:
        manifest.update(traces=[], verdict="Partial", captured=0, uploaded=0, bytes=0)

    make_attempt(tmp_path / "a", nothing)
    assert run("fetch", tmp_path / "a", tmp_path / "out") == 1
    shown = capsys.readouterr()
    assert "nothing was captured" in shown.err
    assert "0 of 0" not in shown.err
    assert (tmp_path / "out/logs/pod-0/engine.log.gz").exists(), "its logs may tell why"


def test_without_a_terminal_the_begin_is_told(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    size_bytes = sum(path.stat().st_size for path in (attempt / "traces").rglob("*.gz"))
    assert run("fetch", attempt, tmp_path / "out") == 0
    assert capsys.readouterr().err.splitlines()[0] == f"demo: fetching 8 traces, {size_text(size_bytes)}"
    assert run("fetch", attempt, tmp_path / "out") == 0
    assert capsys.readouterr().err.splitlines()[0] == "demo: checking 8 traces that are there"
    assert run("fetch", attempt, tmp_path / "out", "--quiet") == 0
    err = capsys.readouterr().err
    assert "checking" not in err
    assert "next: " not in err


@pytest.mark.parametrize(("name", "place"), [("out", "./out"), ("my out", "'./my out'"), ("a/b", "a/b")])
def test_the_next_step_is_spelled_as_a_folder(name: str, place: str) -> None:
    assert next_step(Path(name)).startswith(f"next: shapetrace show {place}; shapetrace verify {place}; ")


@pytest.mark.parametrize("damage", ["other bytes", "longer", "shorter", "gone"])
def test_a_damaged_object_is_named_and_not_kept(damage: str, attempt: Path, tmp_path: Path, capsys: Any) -> None:
    victim = sorted((attempt / "traces/rank-00001").iterdir())[0]
    body = victim.read_bytes()
    victim.write_bytes(
        {"other bytes": b"x" * len(body), "longer": body + b"x", "shorter": body[:-1], "gone": b""}[damage]
    )
    if damage == "gone":
        victim.unlink()
    out = tmp_path / "out"
    assert run("fetch", attempt, out) == 1
    shown = capsys.readouterr()
    assert victim.relative_to(attempt).as_posix() in shown.err
    assert "7 of 8 traces" in shown.err
    assert "next: " not in shown.err
    assert not (out / victim.relative_to(attempt)).exists()
    assert not (out / "manifest.json").exists(), "the manifest commits a whole fetch"
    assert len(list((out / "traces").rglob("*"))) == 2 + 7


def test_json_names_the_faults(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    victim = sorted((attempt / "traces/rank-00000").iterdir())[0]
    victim.unlink()
    assert run("fetch", attempt, tmp_path / "out", "-o", "json", "-q") == 1
    value = json.loads(capsys.readouterr().out)
    assert [fault["key"] for fault in value["faults"]] == [victim.relative_to(attempt).as_posix()]
    assert value["verdict"] == "Complete"
    assert len(value["traces"]) == 8


@pytest.mark.parametrize("key", ["../../escaped", "traces/../../escaped", "/tmp/shapetrace-escaped"])
def test_a_hostile_manifest_writes_nothing_anywhere(key: str, tmp_path: Path, capsys: Any) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["traces"][0]["key"] = key

    make_attempt(tmp_path / "store/a", change)
    before = set(files(tmp_path))
    assert run("fetch", tmp_path / "store/a", tmp_path / "deep/out") == 1
    assert set(files(tmp_path)) == before
    assert not Path("/tmp/shapetrace-escaped").exists()
    assert "may lead out of the folder" in capsys.readouterr().err


def test_a_link_inside_the_folder_is_not_followed_out_of_it(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (out / "traces").symlink_to(outside)
    assert run("fetch", attempt, out) == 1
    assert files(outside) == {}
    assert "leads out of" in capsys.readouterr().err


def test_a_linked_file_is_replaced_not_written_through(attempt: Path, tmp_path: Path) -> None:
    out, target = tmp_path / "out", tmp_path / "precious"
    target.write_text("precious")
    first = sorted((attempt / "traces/rank-00000").iterdir())[0].relative_to(attempt)
    (out / first).parent.mkdir(parents=True)
    (out / first).symlink_to(target)
    (out / first.parent / f".shapetrace-part-{first.name}").symlink_to(target)
    assert run("fetch", attempt, out) == 0
    assert target.read_text() == "precious"
    assert not (out / first).is_symlink()


def test_another_runs_folder_is_left_alone(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    def other(manifest: dict[str, Any]) -> None:
        manifest["run"]["attempt"] = 2

    make_attempt(tmp_path / "other", other)
    before = files(tmp_path / "other")
    assert run("fetch", attempt, tmp_path / "other") == 2
    assert files(tmp_path / "other") == before
    assert "another run" in capsys.readouterr().err


def test_a_manifest_that_is_not_the_one_vouched_for_is_refused(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    right = hashlib.sha256((attempt / "manifest.json").read_bytes()).hexdigest()
    assert run("fetch", attempt, tmp_path / "out", "--sha256", "0" * 64) == 1
    assert not (tmp_path / "out").exists()
    shown = capsys.readouterr().err
    assert f"has the SHA-256 {right}, --sha256 says {'0' * 64}" in shown
    assert "omebody" not in shown, "a wrong hash on a command line is nobody's deed"
    assert run("fetch", attempt, tmp_path / "out", "--sha256", right.upper()) == 0


@pytest.mark.parametrize("text", ["00", "g" * 64, "0" * 65, " "])
def test_what_is_no_hash_is_wrong_usage(text: str, attempt: Path, capsys: Any) -> None:
    assert run("show", attempt, "--sha256", text) == 2
    assert "64 hexadecimal digits" in capsys.readouterr().err


def test_two_fetches_into_one_folder_do_not_mix(attempt: Path, tmp_path: Path, capsys: Any) -> None:
    import fcntl

    out = tmp_path / "out"
    out.mkdir()
    holder = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert run("fetch", attempt, out) == 2
    finally:
        os.close(holder)
    assert "another shapetrace command" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("fetch",),
        ("fetch", "demo"),
        ("fetch", "demo", "out", "--parallel", "0"),
        ("fetch", "s3://bucket/short", "out"),
        ("fetch", "./nowhere", "out"),
        ("fetch", "s3://bucket/a/b/c/attempt-1", "out", "--attempt", "2"),
        ("fetch", "s3://bucket/a/b/c/attempt-1", "out", "--endpoint", "ftp://x"),
        ("fetch", "s3://bucket/a/b/c/attempt-1", "out", "--ca-bundle", "/no/such/file"),
        ("fetch", "s3://bucket/a/b/c/attempt-1", "out", "--use-run-credentials"),
        ("fetch", "demo", "out", "--kubeconfig", "/no/such/file"),
        ("nonsense",),
    ],
)
def test_wrong_usage_is_2_and_shows_no_traceback(
    arguments: tuple[str, ...], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert len(shown.err) > 10
    assert list(tmp_path.iterdir()) == []


def test_show_prints_the_table_of_a_folder(attempt: Path, capsys: Any) -> None:
    assert run("show", attempt) == 0
    assert "Complete, 8/8 traces, 2 ranks" in capsys.readouterr().out
    assert run("show", attempt / "manifest.json", "-o", "json") == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["run"]["name"], value["run"]["attempt"]) == ("demo", 1)


def test_a_damaged_manifest_is_a_sentence_not_a_traceback(attempt: Path, capsys: Any) -> None:
    (attempt / "manifest.json").write_text("\x1b[31m{")
    assert run("show", attempt) == 1
    shown = capsys.readouterr().err
    assert "the manifest cannot be used" in shown
    assert "\x1b" not in shown
