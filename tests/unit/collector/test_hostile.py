"""A full spool, and records that would hide a loss."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shapetrace_contract import spool
from shapetrace_traces.judge import judge


def test_a_full_spool_does_not_make_a_stored_trace_a_lost_one(pod, run, writer, monkeypatch) -> None:
    """Nothing can be noted while the spool is full, and only taking the trace off it makes room."""
    limit = 2  # files of raw traces that fill it
    append = spool.append_line

    def full(path: Path, value) -> None:
        if path.name == spool.UPLOADED and len(list(path.parent.glob("[0-9]*.json"))) >= limit:
            raise OSError(28, "no space left for a record", str(path))
        append(path, value)

    monkeypatch.setattr(spool, "append_line", full)
    shapes = [writer.shape(size) for size in (1, 2)]
    rank = pod.ranks[0]
    rank.load()
    rank.plan(shapes)
    for shape in shapes:
        rank.capture(shape)
    rank.done()
    pod.stop()
    assert run(pod).join() is True
    assert [item["tag"] for item in pod.part(0)["traces"]] == [shape.tag for shape in shapes]
    assert list(rank.folder.glob("[0-9]*.json")) == []
    assert len(list(spool.read_lines(rank.folder / spool.UPLOADED))) == 2


@pytest.mark.parametrize("place", ["folder", "pipe"])
def test_drained_that_cannot_be_written_does_not_end_the_collector(pod, run, writer, place) -> None:
    path = pod.spool / spool.DRAINED
    path.mkdir() if place == "folder" else os.mkfifo(path)
    (path / "x").touch() if place == "folder" else None
    pod.stop()
    assert run(pod).join() is True
    assert len(pod.parts()) == 2


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON\n",
        b"[]\n",
        b'{"runner": "Decode", "shapes": "all"}\n',
        b'{"runner": "Decode", "shapes": [1, null]}\n',
    ],
    ids=["not JSON", "no object", "no list", "no tags"],
)
def test_a_plan_line_that_cannot_be_read_is_never_complete(pod, run, writer, line) -> None:
    """Nobody knows what it planned: that the rest is there says nothing."""
    rank = pod.ranks[0]
    rank.load()
    rank.plan([writer.shape(1)])
    with (rank.folder / spool.PLAN).open("ab") as stream:
        stream.write(line)
    rank.capture(writer.shape(1))
    rank.done()
    pod.stop()
    running = run(pod)
    running.join()
    verdict = judge([pod.part(0)], ranks=[0]).ranks[0]
    assert verdict.verdict == "Partial"
    assert any("plan" in text for text in verdict.reasons)
