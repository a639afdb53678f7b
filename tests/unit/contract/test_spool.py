"""Records in the spool are whole or absent, whatever a dying writer left."""

from __future__ import annotations

import contextlib
import subprocess
import sys
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


def test_what_is_written_is_utf_8_whatever_the_text_and_never_through_a_link(tmp_path: Path) -> None:
    for write, read in (
        (spool.write_json, spool.read_json),
        (spool.append_line, lambda path: next(spool.read_lines(path))),
    ):
        path = tmp_path / write.__name__
        write(path, {"message": "… and \udcff"})
        assert read(path) == {"v": 1, "message": "… and ?"}
        foreign = tmp_path / f"foreign-{write.__name__}"
        foreign.write_text("kept")
        path.unlink()
        for link in (path, spool.temporary(path)):
            link.symlink_to(foreign)
        with contextlib.suppress(OSError):
            write(path, {"a": 1})
        assert foreign.read_text() == "kept"


def test_records_do_not_depend_on_the_locale(tmp_path: Path) -> None:
    code = """
import pathlib, sys
from shapetrace_contract import spool
spool.write_json(pathlib.Path(sys.argv[1]), {"m": chr(0x2026)})
"""
    environment = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], env=environment, check=True)
    assert spool.read_json(tmp_path / "x") == {"v": 1, "m": "…"}


@pytest.mark.parametrize("line", [b"[1]\n", b"{\n", b'{"a": NaN}\n', b"[" * 100_000 + b"\n", b"\xff\n"])
def test_a_line_that_is_no_object_is_a_value_error(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b'{"seq": 0}\n' + line)
    with pytest.raises(ValueError, match="no JSON object"):
        list(spool.read_lines(tmp_path / "lines"))
