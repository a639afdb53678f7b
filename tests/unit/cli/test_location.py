from __future__ import annotations

from pathlib import Path

import pytest
from shapetrace_cli.errors import UsageError
from shapetrace_cli.location import looks_like_folder, parse_folder, parse_s3
from shapetrace_contract.settings import RunId


@pytest.mark.parametrize("end", ["", "/", "/manifest.json"])
@pytest.mark.parametrize("prefix", ["", "team", "team/a.b"])
def test_an_address_is_read_and_spelled_again(prefix: str, end: str) -> None:
    folder = "/".join(part for part in (prefix, "profiling/demo/0f3c/attempt-12") if part)
    location = parse_s3(f"s3://traces/{folder}{end}")
    assert (location.bucket, location.prefix) == ("traces", prefix)
    assert location.run == RunId("profiling", "demo", "0f3c", 12)
    assert location.uri == f"s3://traces/{folder}/"


@pytest.mark.parametrize(
    "text",
    [
        "s3://traces/profiling/demo/0f3c",
        "s3://traces/demo/0f3c/attempt-1",
        "s3:///profiling/demo/0f3c/attempt-1",
        "s3://traces/profiling/demo/0f3c/attempt-0",
        "s3://traces/../demo/0f3c/attempt-1",
        "s3://traces/a/../profiling/demo/0f3c/attempt-1",
        "s3://traces/profiling/%2e%2e/0f3c/attempt-1",
        "s3://user:secret@traces/profiling/demo/0f3c/attempt-1",
        "https://traces/profiling/demo/0f3c/attempt-1",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_s3(text)


def test_a_folder_needs_its_manifest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"manifest\.json"):
        parse_folder(str(tmp_path))
    (tmp_path / "manifest.json").write_text("{}")
    assert parse_folder(str(tmp_path)) == parse_folder(str(tmp_path / "manifest.json")) == tmp_path


@pytest.mark.parametrize(("text", "folder"), [("demo", False), ("./demo", True), (".", True), ("a/b", True)])
def test_a_name_is_no_folder(text: str, folder: bool) -> None:
    assert looks_like_folder(text) is folder
