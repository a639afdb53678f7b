"""Reading a spool that a hostile engine may have written."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_collector import files
from shapetrace_collector.files import Tail, Whole
from shapetrace_contract.reading import NotRegularError, open_regular, parse_object, read_object

objects = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@given(lines=st.lists(objects, max_size=8), data=st.data())
def test_a_file_that_grows_in_any_pieces_gives_each_line_once(lines, data, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("tail") / "lines"
    whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    tail, seen = Tail(path), []
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with path.open("ab") as stream:
            stream.write(whole[begin:end])
        seen += tail.read()
    assert seen == lines


def test_a_torn_line_that_a_writer_takes_back_is_never_seen(tmp_path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n{"b"')
    assert tail.read() == [{"a": 1}]
    path.write_text('{"a": 1}\n{"c": 3}\n')
    assert tail.read() == [{"c": 3}]


def test_an_endless_line_is_dropped_and_counted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MAX_RECORD_BYTES", 64)
    path = tmp_path / "lines"
    path.write_text("x" * 1000 + '\n{"a": 1}\n')
    tail = Tail(path)
    assert tail.read() == [None, {"a": 1}]
    with path.open("a") as stream:
        stream.write("y" * 1000)
    assert tail.read() == []
    with path.open("a") as stream:
        stream.write('\n{"b": 2}\n')
    assert tail.read() == [None, {"b": 2}]


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_none(text: bytes) -> None:
    value = parse_object(text)
    assert value is None or json.loads(json.dumps(value, allow_nan=False)) == value


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b"1",
        b"",
        b"{",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b"\xff",
        b'{"a":' * 40 + b"1" + b"}" * 40,
    ],
    ids=["list", "number", "empty", "torn", "NaN", "no number of JSON", "half a pair", "no UTF-8", "deep"],
)
def test_what_cannot_be_written_again_is_no_object(text: bytes) -> None:
    assert parse_object(text) is None


def test_the_deepest_stack_is_no_trouble() -> None:
    assert parse_object(b'{"a":' * 100_000) is None
    assert parse_object(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}") is None


def test_links_pipes_and_folders_are_refused(tmp_path) -> None:
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked folder").symlink_to(tmp_path / "folder")
    (tmp_path / "folder" / "inside").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    with open_regular(tmp_path / "folder" / "inside") as stream:
        assert stream.read() == b"{}"
    for name in ("link", "folder", "pipe", "linked folder/inside"):
        with pytest.raises(NotRegularError):
            open_regular(tmp_path / name)


def test_a_small_file_has_a_limit(tmp_path) -> None:
    (tmp_path / "x").write_text(json.dumps({"a": "b" * 100}))
    with pytest.raises(ValueError, match="larger than 50 bytes"):
        read_object(tmp_path / "x", 50)
    assert read_object(tmp_path / "absent") is None


def test_a_file_that_was_replaced_is_read_again(tmp_path) -> None:
    path = tmp_path / "done.json"
    whole = Whole(path)
    assert whole.read() is None
    for number in range(3):
        part = tmp_path / "part"
        part.write_text(json.dumps({"records": number}))
        part.replace(path)
        assert whole.read() == {"records": number}
        assert whole.read() == {"records": number}
