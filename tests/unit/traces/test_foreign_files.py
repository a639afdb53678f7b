"""What lies in a directory and is no whole capture: told by name, never opened where it would wait or never end."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shapetrace_traces.foreign import Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.own import OwnManifest, read_own
from shapetrace_traces.foreign.plan import make_plan
from shapetrace_traces.foreign.scan import base_of, read_details
from shapetrace_traces.regular import NotRegularError, TooLongFileError, open_regular, read_regular

from . import kineto
from .kineto import Events, Work, graphs

NAME = "DecodeCudaGraphRunner_bs_16_rank0.json.gz"
pytestmark = pytest.mark.timeout(60)


def look(place: Path, **more: Any) -> Report:
    paths = list_files(place)
    base = base_of(place)
    return make_report([read_file(base, path) for path in paths], read_details(base, paths), **more)


def eager() -> bytes:
    events = Events()
    events.eager(Work(16))
    return events.text()


def replay() -> bytes:
    events = Events()
    events.replay(12)
    return events.text()


def without_windows() -> bytes:
    events = Events()
    events.capture(Work(16), span="capture_16_DECODE")
    events.events = [event for event in events.events if "Capture" not in event["name"]]
    return events.text()


@pytest.mark.parametrize(
    ("text", "held"),
    [
        (b"{}", "it is JSON, and no trace"),
        (b"[]", "it is JSON, and no trace"),
        (b"[1, 2, 3]", "it is JSON, and no trace"),
        (b'{"schemaVersion": 1}', "it is JSON, and no trace"),
        (b'{"traceEvents": []}', "nothing"),
        (eager(), "work without graphs"),
        (without_windows(), "work without graphs"),
        (replay(), "launches of graphs"),
    ],
    ids=["object", "list", "numbers", "no events", "empty events", "eager", "no window", "replay"],
)
def test_a_file_named_as_a_capture_that_holds_none_is_told(tmp_path: Path, text: bytes, held: str) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2, 4, 8)))
    kineto.write(tmp_path / NAME, text)
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert report.lacking == {NAME: f"is named as bs 16, and holds no capture: {held}"}
    assert f"{NAME} {report.lacking[NAME]}" in report.reasons
    assert make_plan(report, "tag").refused == report.lacking


def test_names_of_captures_without_any_are_not_eager(tmp_path: Path) -> None:
    kineto.write(tmp_path / NAME, eager())
    assert look(tmp_path).verdict is Standing.PARTIAL


@pytest.mark.parametrize("name", ["graph_capture_rank_0.17.pt.trace.json.gz", "cuda_graph_capture-X-TP-0.json.gz"])
def test_a_name_without_a_shape_claims_captures_too(tmp_path: Path, name: str) -> None:
    kineto.write(tmp_path / name, eager())
    assert "is named as captures are" in look(tmp_path).lacking[name]


def test_our_own_replays_claim_no_capture(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path / "traces", graphs((1, 2)))
    text = json.loads(replay())
    text["shapetrace"] = {"v": 1, "tag": "DecodeRunner__bs_2", "rank": 0, "stage": "replay"}
    kineto.write(tmp_path / "replay/rank-00000/DecodeRunner__bs_2.json.gz", json.dumps(text).encode())
    report = look(tmp_path)
    assert (report.verdict, report.lacking) == (Standing.COMPLETE, {})


def test_a_trace_of_ours_from_a_gpu_without_its_stream_capture_is_no_capture_whatever_its_metadata_say(
    tmp_path: Path,
) -> None:
    tag = "DecodeRunner__bs_16"
    kineto.write_tagged(tmp_path / "traces", graphs((1, 2, 4, 8)))
    text = json.loads(without_windows())
    text["shapetrace"] = {"v": 1, "tag": tag, "rank": 0, "stage": "capture"}
    name = f"traces/rank-00000/{tag}.json.gz"
    kineto.write(tmp_path / name, json.dumps(text).encode())
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert report.lacking == {name: "is named as bs 16, and holds no capture: work without graphs"}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def itself(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # alone: a socket's path may have a hundred characters


ODD = [
    (fifo, "a named pipe"),
    (link_to_fifo, "a named pipe"),
    (endless, "a character device"),
    (dangling, "a link to nothing"),
    (itself, "a link to itself"),
    (folder, "a folder"),
    (a_socket, "a socket"),
]


@pytest.mark.parametrize(("make", "what"), ODD)
def test_what_lies_in_a_captures_place_is_named_and_not_opened(
    tmp_path: Path, make: Callable[[Path], None], what: str
) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    make(tmp_path / NAME)
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert report.damaged == {NAME: f"it is {what}"}


@pytest.mark.parametrize(("make", "what"), [pair for pair in ODD if pair[0] is not folder])
@pytest.mark.parametrize("name", ["manifest.json", "execution_details.json"])
def test_what_lies_in_the_place_of_a_sidecar_is_named_too(
    tmp_path: Path, make: Callable[[Path], None], what: str, name: str
) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    make(tmp_path / name)
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert report.damaged[name] == f"it is {what}"


@pytest.mark.parametrize(("make", "what"), ODD)
def test_a_regular_file_alone_is_opened(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match="x'") as caught:
        open_regular(tmp_path / "x")
    assert isinstance(caught.value, NotRegularError) is ("link to" not in what)
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(TooLongFileError):
        read_regular(tmp_path / "link", 4)


def test_what_is_no_directory_and_no_file_is_refused(tmp_path: Path) -> None:
    fifo(tmp_path / "x.json.gz")
    with pytest.raises(ValueError, match="a named pipe, neither a folder nor a regular file"):
        list_files(tmp_path / "x.json.gz")


@pytest.mark.parametrize(
    "name", ["trace.gz", "notes.bin", f"{NAME}.tmp", "DecodeCudaGraphRunner_bs_16_rank0.json.part"]
)
def test_a_trace_cut_in_half_is_named_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    body = gzip.compress(eager())
    (tmp_path / name).write_bytes(body[: len(body) // 2])
    report = look(tmp_path)
    assert (report.verdict, report.damaged) == (Standing.PARTIAL, {name: "the gzip stream ends early"})


def test_a_link_to_a_folder_and_a_hidden_capture_are_told_and_do_no_harm(tmp_path: Path) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    (tmp_path / "in/loop").symlink_to(".")
    (tmp_path / f"in/.{NAME}").write_bytes(b"x")
    report = look(tmp_path / "in")
    assert report.verdict is Standing.COMPLETE
    assert report.notes == (
        f".{NAME} is hidden, so it was not looked at",
        "loop is a link to a folder, which is not followed",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[" + b" " * 2_000_000 + b"]", "it has more than"),
        (b'{"file": 1}', "it is no list of files"),
        (b"[{", "Expecting"),
    ],
)
def test_a_list_of_sizes_that_cannot_be_used_is_told(tmp_path: Path, text: bytes, why: str) -> None:
    kineto.write_patched(tmp_path, (1, 2))
    (tmp_path / "capture_traces/execution_details.json").write_bytes(text)
    report = look(tmp_path)
    assert report.verdict is Standing.PARTIAL
    assert why in report.damaged["capture_traces/execution_details.json"]


# ---- our own manifest


def manifest(**more: Any) -> dict[str, Any]:
    run = {"namespace": "n", "name": "demo", "uid": "u", "attempt": 1}
    value = {"v": 1, "run": run, "verdict": "Complete", "digest": "", "engine": {"name": "torch"}, "traces": []}
    return {**value, **more}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (json.dumps(manifest(v=2)), "it is of version '2'"),
        (json.dumps(manifest(expected="many")), "expected: "),
        (json.dumps(manifest(traces=[{}])), "traces.0.key: "),
        ("[]", "it is no JSON object"),
        ("{", "it is no JSON"),
        ("", "it is no JSON"),
        (json.dumps(manifest()) + " " * 2000, "it has more than 1000 bytes"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_told(tmp_path: Path, body: str, why: str) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    (tmp_path / "manifest.json").write_text(body)
    own = read_own(tmp_path, limit_bytes=1000)
    assert own.fault.startswith(f"manifest.json cannot be used: {why}")
    paths = [path for path in list_files(tmp_path) if path != "manifest.json"]
    report = make_report([read_file(tmp_path, path) for path in paths], {}, own=own)
    assert (report.verdict, report.reasons) == (Standing.PARTIAL, (own.fault,))


@pytest.mark.parametrize(("make", "what"), ODD)
def test_a_manifest_that_is_no_file_is_told(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    make(tmp_path / "manifest.json")
    expected = "Too many levels of symbolic links" if make is itself else f"it is {what}"
    assert expected in read_own(tmp_path).fault


def test_no_manifest_and_somebody_elses_are_no_fault(tmp_path: Path) -> None:
    assert read_own(tmp_path) == OwnManifest()
    (tmp_path / "manifest.json").write_text('{"name": "an app"}')
    own = read_own(tmp_path)
    assert (own.manifest, own.fault) == (None, "")
    assert "none of a run of ours" in own.note


def test_our_own_manifest_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(manifest(verdict="Partial", reasons=["rank 1 died"])))
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    report = look(tmp_path, own=read_own(tmp_path))
    assert report.reasons == ("its manifest says Partial: rank 1 died",)


# ---- too large


def test_more_launches_than_are_held_are_not_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapetrace_traces.fold.graphs.MAX_LAUNCHES", 10)
    kineto.write_tagged(tmp_path, graphs((8,)))
    report = look(tmp_path)
    name = "DecodeCudaGraphRunner_bs_8_rank0.json.gz"
    assert report.verdict is Standing.PARTIAL
    assert "is too large to judge: " in report.lacking[name]
    assert list(make_plan(report, "tag").refused) == [name]


def test_what_is_large_and_captures_nothing_is_eager_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shapetrace_traces.fold.graphs.MAX_LAUNCHES", 10)
    monkeypatch.setattr("shapetrace_traces.fold.graphs.MAX_ACTIVITIES", 10)
    kineto.write_eager(tmp_path)
    assert look(tmp_path).verdict is Standing.EAGER


@pytest.mark.parametrize("bound", ["fold.calls.MAX_CALLS", "index.MAX_OPERATORS", "index.MAX_GEMMS"])
@pytest.mark.parametrize("combined", [True, False])
def test_a_capture_whose_evidence_is_cut_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, combined: bool
) -> None:
    monkeypatch.setattr(f"shapetrace_traces.{bound}", 1)
    if combined:
        kineto.write_combined(tmp_path, graphs((1, 2)))
    else:
        kineto.write_tagged(tmp_path, graphs((1, 2)))
    report = look(tmp_path)
    assert report.verdict in (Standing.PARTIAL, Standing.NOT_INDEXABLE)
    assert len([reason for reason in report.reasons if "is too large to judge: left out are" in reason]) == 2
    assert len(make_plan(report, "tag").refused) == 2
