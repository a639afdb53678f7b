"""Records in the spool are whole or absent, whatever a dying writer left."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract import spool


def test_a_torn_last_line_is_ignored_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "captures.jsonl"
    spool.append_line(path, {"seq": 0})
    with path.open("ab") as stream:
        stream.write(b'{"seq": 1, "ta')
    assert [line["seq"] for line in spool.read_lines(path)] == [0]
    spool.append_line(path, {"seq": 1})
    assert [line["seq"] for line in spool.read_lines(path)] == [0, 1]


@given(torn=st.binary(max_size=9000).map(lambda raw: raw.replace(b"\n", b"")))
def test_any_torn_tail_is_cut_off(torn: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("spool") / "lines.jsonl"
    path.write_bytes(b'{"v": 1, "seq": 0}\n' + torn)
    spool.append_line(path, {"seq": 1})
    assert [line["seq"] for line in spool.read_lines(path)] == [0, 1]


def test_a_missing_file_has_no_lines_and_no_object(tmp_path: Path) -> None:
    assert list(spool.read_lines(tmp_path / "none")) == []
    assert spool.read_json(tmp_path / "none") is None


def test_a_whole_object_replaces_the_old_one_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    spool.write_json(tmp_path / "done.json", {"records": 1})
    spool.write_json(tmp_path / "done.json", {"records": 2})
    assert spool.read_json(tmp_path / "done.json") == {"v": 1, "records": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["done.json"]


def test_rank_folders_are_found_in_order_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("rank-00010", "rank-00002", "rank-2", "rank-00003x"):
        (tmp_path / name).mkdir()
    assert list(spool.rank_folders(tmp_path)) == [2, 10]
