from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import (
    ObjectExists,
    Store,
    StoreDenied,
    StoreMisconfigured,
    StoreUnreachable,
    open_store,
)

from .behaviour import StoreBehaviour


def open_folder(path: Path, attempt: int = 1) -> Store:
    run = RunId(namespace="team", name="run", uid="u-1", attempt=attempt)
    return open_store(StoreSettings(kind="folder", path=str(path), prefix="some/prefix"), run, {})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_folder(tmp_path / "objects")


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return open_folder(tmp_path / "objects", attempt=2)


class TestFolder(StoreBehaviour):
    pass


def test_a_person_finds_plain_files_at_the_keys(store: Store, tmp_path: Path) -> None:
    store.put("parts/00000.json", b"{}", metadata={"a": "b"})
    root = tmp_path / "objects/some/prefix/team/run/u-1/attempt-1"
    assert (root / "parts/00000.json").read_bytes() == b"{}"
    assert sorted(path.name for path in root.iterdir()) == [".shapetrace-meta", "parts"]
    assert [path.name for path in (root / "parts").iterdir()] == ["00000.json"]
    assert store.uri("parts/00000.json") == (root / "parts/00000.json").as_uri()


def test_a_copied_folder_keeps_hashes_and_metadata(store: Store, tmp_path: Path) -> None:
    stored = store.put("parts/00000.json", b"{}", metadata={"a": "b"})
    shutil.copytree(tmp_path / "objects", tmp_path / "copy")
    seen = open_folder(tmp_path / "copy").head("parts/00000.json")
    assert seen is not None
    assert (seen.sha256, dict(seen.metadata)) == (stored.sha256, {"a": "b"})


def test_a_killed_writer_leaves_nothing_that_counts(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        with pytest.raises(KeyboardInterrupt):
            store.put("parts/00000.json", b"one", metadata={"writer": "killed"})
    assert store.head("parts/00000.json") is None
    assert list(store.list()) == []
    # same length, so that only the content tells whose record is whose
    store.put("parts/00000.json", b"two", metadata={"writer": "second"})
    seen = store.head("parts/00000.json")
    assert seen is not None
    assert dict(seen.metadata) == {"writer": "second"}


def test_a_file_that_somebody_put_there_is_an_object_without_metadata(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "objects/some/prefix/team/run/u-1/attempt-1"
    root.mkdir(parents=True)
    (root / "note.txt").write_text("mine")
    seen = store.head("note.txt")
    assert seen is not None
    assert (seen.bytes, dict(seen.metadata)) == (4, {})
    with pytest.raises(ObjectExists):
        store.put("note.txt", b"ours")


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", "a/../../x", "", "a//b", ".shapetrace-meta/x", "a/\0"])
def test_no_key_leaves_the_folder(store: Store, key: str) -> None:
    with pytest.raises(StoreMisconfigured):
        store.put(key, b"")


def test_content_that_is_not_what_was_announced_is_refused(store: Store) -> None:
    with pytest.raises(StoreUnreachable, match="not what was announced"):
        store.put("parts/00000.json", b"{}", sha256="00" * 32)
    assert store.head("parts/00000.json") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreMisconfigured, match="a part of the path is a file") as fault:
        open_folder(tmp_path / "file").put("parts/00000.json", b"")
    assert str(tmp_path / "file") in str(fault.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_missing_right_is_denied(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(StoreDenied, match="owner of the folder"):
        open_folder(tmp_path / "closed").put("parts/00000.json", b"")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "folder"}, "path"),
        ({"kind": "ftp"}, "'ftp'"),
        ({"kind": "folder", "path": "/x", "prefix": "../up"}, "prefix"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(StoreMisconfigured, match=named):
        open_store(StoreSettings(**settings), RunId(namespace="team", name="run", uid="u"), {})
