from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.manifest import digest_of_json

from .attempts import entry, trace_text, write
from .command import run


def wrong_line(count: int, total: int) -> str:
    """The last line of what is not right: its result, and that the run's own verdict is another thing."""
    are = "1 of {} traces is" if count == 1 else f"{count} of {{}} traces are"
    return f"WRONG: {are.format(total)} not what the manifest says (the run's verdict was Complete)"


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    root = tmp_path / "attempt-1"
    write(root, [entry(root, rank, size) for rank in (0, 1) for size in (1, 2)])
    return root


def test_what_is_as_the_manifest_says_is_verified(attempt: Path, capsys: Any) -> None:
    assert run("verify", attempt) == 0
    assert capsys.readouterr().out == "profiling/demo attempt 1: Complete, 4 of 4 traces verified\n"


def test_nothing_is_written(attempt: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in attempt.rglob("*")}
    assert run("verify", attempt, "-o", "none") == 0
    assert {path: path.stat().st_mtime_ns for path in attempt.rglob("*")} == before


def cut(root: Path, key: str) -> None:
    (root / key).write_bytes((root / key).read_bytes()[:-20])


def grow(root: Path, key: str) -> None:
    (root / key).write_bytes((root / key).read_bytes() + b"x" * 100)


def grow_far(root: Path, key: str) -> None:
    """By more than is read of it."""
    value = json.loads(gzip.decompress((root / key).read_bytes()))
    (root / key).write_bytes(gzip.compress(json.dumps({**value, "more": os.urandom(2**21).hex()}).encode()))


def flip(root: Path, key: str) -> None:
    body = bytearray((root / key).read_bytes())
    body[len(body) // 2] ^= 1
    (root / key).write_bytes(bytes(body))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "bytes are stored, the manifest says"),
        (grow, "bytes are stored, the manifest says"),
        (grow_far, "more than"),
        (flip, "SHA-256: stored is"),
        (lambda root, key: (root / key).unlink(), "missing: the manifest lists it"),
    ],
    ids=["cut", "grow", "grow far", "flip", "gone"],
)
def test_an_object_that_is_not_what_was_stored_is_named(
    attempt: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path, str], Any], said: str
) -> None:
    monkeypatch.setattr("shapetrace_traces.verify._BEYOND_BYTES", 2**20)
    key = "traces/rank-00001/DecodeRunner__bs_2__lora-lora.json.gz"
    damage(attempt, key)
    assert run("verify", attempt) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{key}: ")
    assert said in first
    assert last == wrong_line(1, 4)


def spoiled(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A trace whose content disagrees with its label, though every hash is right."""
    shape = Shape(Runner("DecodeRunner"), "bs", 4, {"lora": "lora"})
    value = json.loads(trace_text(shape, 0))
    change(value)
    write(root, [entry(root, 0, 1), entry(root, 0, 4, json.dumps(value).encode())])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value["shapetrace"].update(tag="DecodeRunner__bs_8__lora-lora"), "DecodeRunner__bs_8"),
        (
            lambda value: value["shapetrace"]["shape"].update(size=8),
            "its metadata's shape is DecodeRunner__bs_8__lora-lora",
        ),
        (lambda value: value["shapetrace"].update(shape=[1]), "its metadata's shape cannot be read"),
        (lambda value: value["shapetrace"].update(rank=3), "rank 3"),
        (lambda value: value.pop("shapetrace"), "its metadata names no shape"),
        (lambda value: value["traceEvents"][0].update(name="other"), "no span in it is named"),
        (lambda value: value["traceEvents"][0].update(name="DecodeRunner__bs_8__lora-lora"), "its span"),
    ],
)
def test_a_trace_that_says_it_is_another_is_named(
    tmp_path: Path, capsys: Any, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    spoiled(tmp_path / "a", change)
    assert run("verify", tmp_path / "a") == 1
    out = capsys.readouterr().out
    assert said in out
    assert out.splitlines()[-1] == wrong_line(1, 2)


def test_gzip_that_is_not_whole_is_a_fault_even_where_its_hash_is_right(tmp_path: Path, capsys: Any) -> None:
    root = tmp_path / "a"
    one = entry(root, 0, 1)
    body = (root / one["key"]).read_bytes()[:-4]
    (root / one["key"]).write_bytes(body)
    write(root, [{**one, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}])
    assert run("verify", root) == 1
    assert "the gzip stream ends early" in capsys.readouterr().out


def test_a_trace_under_anothers_key_is_named(tmp_path: Path, capsys: Any) -> None:
    root = tmp_path / "a"
    one, two = entry(root, 0, 1), entry(root, 0, 2)
    paths = root / one["key"], root / two["key"]
    bodies = [path.read_bytes() for path in paths]
    for path, body in zip(paths, reversed(bodies), strict=True):
        path.write_bytes(body)
    swapped = [{**one, **{name: two[name] for name in ("sha256", "bytes", "rawSha256", "rawBytes")}}]
    swapped += [{**two, **{name: one[name] for name in ("sha256", "bytes", "rawSha256", "rawBytes")}}]
    write(root, swapped)
    assert run("verify", root, "-o", "json") == 1
    assert len(json.loads(capsys.readouterr().out)["wrong"]) == 2


def test_two_traces_that_changed_places_are_told_as_what_they_are(tmp_path: Path, capsys: Any) -> None:
    shapes = [Shape(Runner("DecodeRunner"), "bs", size, {"lora": "lora"}) for size in (1, 64)]
    traces = [entry(tmp_path, 0, shape.size) for shape in shapes]
    paths = [tmp_path / trace["key"] for trace in traces]
    bodies = [path.read_bytes() for path in paths]
    assert len(bodies[0]) != len(bodies[1])
    write(tmp_path, traces)
    for path, body in zip(paths, reversed(bodies), strict=True):
        path.write_bytes(body)
    assert run("verify", tmp_path) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{traces[this]['key']}: it holds {shapes[other].tag} (its metadata, its span); "
        f"size: {len(bodies[other])} bytes are stored, the manifest says {len(bodies[this])}"
        for this, other in ((0, 1), (1, 0))
    ] + [wrong_line(2, 2)]


def test_a_trace_that_was_not_read_to_its_end_is_not_called_cut(
    attempt: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapetrace_traces.verify._BEYOND_BYTES", 2**20)
    grow_far(attempt, KEY)
    assert run("verify", attempt) == 1
    first, last = capsys.readouterr().out.splitlines()
    stored_bytes = json.loads((attempt / "manifest.json").read_text())["traces"][3]["bytes"]
    more = "more than 1 MiB beyond them is stored and was not read"
    assert first == f"{KEY}: size: the manifest says {stored_bytes} bytes, {more}"
    assert last == wrong_line(1, 4)


def test_a_digest_is_right_in_any_order_and_with_fields_of_a_newer_writer(tmp_path: Path) -> None:
    root = tmp_path / "a"
    traces = [{**entry(root, 0, size), "newer": {"x": 1}} for size in (1, 2, 3)]
    write(root, traces[::-1], digest=digest_of_json(traces))
    assert run("verify", root) == 0


def test_a_digest_that_is_not_that_of_the_traces_is_told(tmp_path: Path, capsys: Any) -> None:
    root = tmp_path / "a"
    traces = [entry(root, 0, size) for size in (1, 2)]
    write(root, traces[:1], digest=digest_of_json(traces))
    assert run("verify", root) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("manifest.json: its digest is")
    assert last == "WRONG: the manifest disagrees with itself (the run's verdict was Complete)"


def test_faults_of_manifest_and_traces_are_both_in_the_last_line(attempt: Path, capsys: Any) -> None:
    (attempt / KEY).unlink()
    value = json.loads((attempt / "manifest.json").read_text())
    (attempt / "manifest.json").write_text(json.dumps({**value, "digest": "0" * 64}))
    assert run("verify", attempt) == 1
    assert capsys.readouterr().out.splitlines()[-1] == wrong_line(1, 4).replace(
        " (", ", and the manifest disagrees with itself ("
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"captured": 2, "uploaded": 2}, ["it says captured 2, and lists 4 captures", "it says uploaded 2, and"]),
        ({"captured": 5, "uploaded": 4}, ["it says captured 5, and lists 4 captures"]),
        ({"captured": 4, "uploaded": 4, "expected": 6}, ["it says expected 6 and Complete, and lists 4 captures"]),
        (
            {"ranks": [{"rank": 0, "verdict": "Complete", "captured": 2, "uploaded": 3}]},
            [
                "its rank 0 says uploaded 3, and lists 2 captures",
                "it lists 2 captures of rank 1, which it does not know",
            ],
        ),
    ],
)
def test_counters_that_disagree_with_what_is_listed_are_told(
    tmp_path: Path, capsys: Any, more: dict[str, Any], said: list[str]
) -> None:
    traces = [entry(tmp_path, rank, size) for rank in (0, 1) for size in (1, 2)]
    write(tmp_path, traces, **more)
    assert run("verify", tmp_path) == 1
    faults = [line for line in capsys.readouterr().out.splitlines() if line.startswith("manifest.json: ")]
    assert len(faults) == len(said)
    assert all(text in fault for text, fault in zip(said, faults, strict=True))


def test_an_empty_list_of_a_run_that_captured_is_no_verified_run(tmp_path: Path, capsys: Any) -> None:
    tmp_path.joinpath("a").mkdir()
    write(tmp_path / "a", [], captured=2, uploaded=2)
    assert run("verify", tmp_path / "a") == 1
    assert "it says captured 2, and lists 0 captures" in capsys.readouterr().out


def test_a_partial_run_may_have_captured_more_than_it_lists(tmp_path: Path) -> None:
    traces = [{**entry(tmp_path, 0, size), "stage": "capture"} for size in (1, 2)]
    write(tmp_path, traces, verdict="Partial", captured=4, uploaded=3, expected=4)
    assert run("verify", tmp_path) == 0


def test_late_objects_are_named_and_do_no_harm(attempt: Path, capsys: Any) -> None:
    entry(attempt, 1, 64)
    assert run("verify", attempt) == 0
    assert "bs_64__lora-lora.json.gz: late: no part of the manifest" in capsys.readouterr().out


def test_more_late_objects_than_are_listed_are_told(
    attempt: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapetrace_traces.verify.MAX_LATE", 1)
    monkeypatch.setattr("shapetrace_cli.verify.MAX_LATE", 1)
    entry(attempt, 1, 64)
    assert run("verify", attempt) == 0
    assert "1 objects or more came late" in capsys.readouterr().out


def test_the_manifests_own_hash_is_checked(attempt: Path) -> None:
    right = hashlib.sha256((attempt / "manifest.json").read_bytes()).hexdigest()
    assert run("verify", attempt, "--sha256", right) == 0
    assert run("verify", attempt, "--sha256", "0" * 64) == 1


@pytest.mark.parametrize("place", ["./nowhere", "s3://b/x"])
def test_a_wrong_place_is_wrong_usage(place: str) -> None:
    assert run("verify", place) == 2


def test_programs_get_json(attempt: Path, capsys: Any) -> None:
    assert run("verify", attempt, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "v": 1,
        "ok": True,
        "run": "profiling/demo attempt 1",
        "verdict": "Complete",
        "traces": 4,
        "verified": 4,
        "manifestFaults": [],
        "wrong": [],
        "late": [],
        "notes": [],
    }


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def no_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_folder(path: Path) -> None:
    path.mkdir()


ODD = [
    (a_pipe, "it is a named pipe"),
    (no_end, "it is a character device"),
    (nowhere, "missing: "),
    (to_itself, "symbolic links"),
    (a_folder, "missing: "),
]
KEY = "traces/rank-00001/DecodeRunner__bs_2__lora-lora.json.gz"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("make", "said"), ODD)
def test_what_lies_in_an_objects_place_is_named_and_the_others_are_verified(
    attempt: Path, capsys: Any, make: Callable[[Path], None], said: str
) -> None:
    (attempt / KEY).unlink()
    make(attempt / KEY)
    make(attempt / "traces/rank-00001/late.json.gz")
    assert run("verify", attempt) == 1
    out, err = capsys.readouterr()
    first, *_, last = out.splitlines()
    assert first.startswith(f"{KEY}: ")
    assert said in first
    assert last == wrong_line(1, 4)
    assert "AWS" not in out + err


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["verify", "show", "fetch"])
@pytest.mark.parametrize(
    ("make", "said"),
    [(a_pipe, "is a named pipe"), (no_end, "is a character device"), (nowhere, "is a link to nothing")],
)
def test_a_manifest_that_is_no_file_is_named(
    attempt: Path, tmp_path: Path, capsys: Any, command: str, make: Callable[[Path], None], said: str
) -> None:
    (attempt / "manifest.json").unlink()
    make(attempt / "manifest.json")
    assert run(command, attempt, *([tmp_path / "out"] if command == "fetch" else [])) == 2
    assert f"manifest.json in {attempt} {said}" in capsys.readouterr().err


def unreadable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As a file without the right to read it; root may read every one."""
    from shapetrace_traces import regular

    opened = regular.open_regular

    def refused(path: Path) -> Any:
        if path.name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr("shapetrace_traces.store.folder.open_regular", refused)


def test_an_object_that_may_not_be_read_is_named_and_the_others_are_verified(
    attempt: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable(monkeypatch, "DecodeRunner__bs_2__lora-lora.json.gz")
    assert run("verify", attempt) == 1
    out, err = capsys.readouterr()
    assert len([line for line in out.splitlines() if "cannot be read: " in line and "no right to do so" in line]) == 2
    assert out.splitlines()[-1] == wrong_line(2, 4)
    assert "AWS" not in out + err


@pytest.mark.parametrize("command", ["verify", "show"])
def test_a_manifest_that_may_not_be_read_is_no_matter_of_credentials(
    attempt: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    unreadable(monkeypatch, "manifest.json")
    assert run(command, attempt) == 1
    err = capsys.readouterr().err
    assert str(attempt) in err
    assert "no right to do so" in err
    assert "AWS" not in err
