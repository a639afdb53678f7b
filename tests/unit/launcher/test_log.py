"""The engine's log stays within its bound and keeps the tail."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_launcher.log import BoundedLog


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(min_value=0, max_value=3000), max_size=60))
def test_the_file_is_bounded_ends_with_the_last_line_and_starts_with_a_whole_one(
    sizes: list[int], tmp_path_factory: object
) -> None:
    path: Path = tmp_path_factory.mktemp("log") / "engine.log"  # type: ignore[attr-defined]
    log, everything = BoundedLog(path, 8192), b""
    for number, size in enumerate(sizes):
        line = f"{number} ".encode() + b"x" * size + b"\n"
        everything += line
        log.write(line)
        assert path.stat().st_size <= 8192
    log.close()
    kept = path.read_bytes()
    assert everything.endswith(kept)
    before = everything[: len(everything) - len(kept)]
    assert not before or before.endswith(b"\n")
    assert kept or not everything


def test_one_write_larger_than_the_file_keeps_its_end(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "engine.log", 4096)
    log.write(b"a" * 10_000 + b"\n" + b"the end\n")
    log.close()
    kept = (tmp_path / "engine.log").read_bytes()
    assert kept.endswith(b"the end\n")
    assert len(kept) <= 4096


def test_a_log_in_the_spool_never_takes_more_than_its_share(tmp_path: Path) -> None:
    log = BoundedLog.in_spool(tmp_path / "engine.log")
    for _ in range(70):
        log.write(b"x" * (1 << 20))
    log.close()
    assert (tmp_path / "engine.log").stat().st_size <= 64 << 20
