from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_cli.errors import CliError
from shapetrace_cli.listing import ManifestError, read_listing, safe_key
from shapetrace_contract import keys
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.manifest import Manifest

from .attempts import make_attempt


@given(st.integers(0, keys.MAX_RANK), st.text(min_size=1, max_size=20), st.integers(1, 4096))
def test_every_key_of_ours_is_safe(rank: int, name: str, size: int) -> None:
    key = keys.trace_key(rank, Shape(Runner(name), "bs", size).tag) if len(name.encode()) < 50 else "x"
    assert safe_key(key) == key


@given(st.text())
def test_a_safe_key_stays_in_its_folder(key: str) -> None:
    try:
        safe_key(key)
    except ValueError:
        return
    root = Path("/root/folder")
    assert not {".", ".."} & set(key.split("/"))
    assert (root / key).is_relative_to(root)
    assert key.isascii()


HOSTILE = [
    "../outside",
    "traces/../../outside",
    "/etc/passwd",
    "traces//x",
    "traces/./x",
    "traces/rank-00000/..",
    "traces\\x",
    "C:/x",
    "traces/a\x00b",
    "traces/a\nb",
    "traces/\x1b[31m",
    "",
    "traces/" + "x" * 300,
    None,
    7,
]


@pytest.mark.parametrize("key", HOSTILE)
def test_a_hostile_key_is_refused(key: object, tmp_path: Path) -> None:
    manifest = make_attempt(tmp_path / "a")
    manifest["traces"][3]["key"] = key
    with pytest.raises(ManifestError):
        read_listing(json.dumps(manifest).encode())


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    *parents, last = path.split(".")

    def change(manifest: dict[str, Any]) -> None:
        target: Any = manifest
        for name in parents:
            target = target[int(name)] if name.isdigit() else target[name]
        target[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("v", 2),
        _set("traces", {}),
        _set("traces.0.sha256", "00"),
        _set("traces.0.bytes", -1),
        _set("traces.0.bytes", True),
        _set("traces.0.bytes", 1e300),
        _set("traces.0.rank", "0"),
        _set("traces.0.tag", "../x"),
        _set("traces.0.key", "logs/pod-0/engine.log.gz"),
        _set("traces.0.key", "manifest.json"),
        _set("ranks.0.rank", None),
    ],
)
def test_a_damaged_manifest_is_refused_with_the_place(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    make_attempt(tmp_path / "a", change)
    with pytest.raises(ManifestError, match="the manifest cannot be used"):
        read_listing((tmp_path / "a/manifest.json").read_bytes())


def test_a_key_listed_twice_is_refused(tmp_path: Path) -> None:
    manifest = make_attempt(tmp_path / "a")
    manifest["traces"].append(manifest["traces"][0])
    with pytest.raises(ManifestError, match="twice"):
        read_listing(json.dumps(manifest).encode())


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["v", "run", "traces", "ranks", "lost", "verdict", "failure", "reasons", "key", "support"]
                ),
                x,
            )
        ),
    )
)
def test_no_json_makes_it_fail_otherwise(value: Any) -> None:
    for body in (value, {"v": 1, "traces": [], "x": value}, {"v": 1, "traces": value, "ranks": value, "run": value}):
        try:
            read_listing(json.dumps(body).encode())
        except CliError:
            continue


@given(st.binary())
def test_no_bytes_make_it_fail_otherwise(body: bytes) -> None:
    with pytest.raises(ManifestError):
        read_listing(body)


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["verdict"] = "\x1b[2JComplete"
        manifest["reasons"] = ["\x1b]0;x\x07why"]
        manifest["failure"] = {"rank": 1, "reason": "EngineFailed", "message": "\x1b[31mdied\x1b[0m"}
        manifest["lost"] = [{"rank": 0, "tag": "x\x1b[1m", "error": "\x9b31mfull"}]
        manifest["traces"][0]["support"] = {"size": "\x1b[5mproven", "variants": {"\x1b[1mlora": "distinct"}}

    make_attempt(tmp_path / "a", change)
    listing = read_listing((tmp_path / "a/manifest.json").read_bytes())
    shown = [listing.verdict, *listing.reasons, listing.failure, listing.lost[0].error, listing.traces[0].size_support]
    assert shown == ["Complete", "why", "EngineFailed, rank 1: died", "full", "proven"]


def test_what_the_finish_writes_is_read(tmp_path: Path) -> None:
    manifest = make_attempt(tmp_path / "a")
    engine = {"name": "torch", "device": "cpu"}
    traces = [{**entry, "alias": "x"} for entry in manifest["traces"]]
    lost = [{"rank": 1, "tag": "DecodeRunner__bs_4", "error": "spool full"}]
    failure = {"reason": "EngineFailed", "message": "died", "rank": 1}
    value = {**manifest, "engine": engine, "digest": "", "traces": traces, "lost": lost, "failure": failure}
    made = Manifest.model_validate({**value, "verdict": "Partial", "reasons": ["rank 1: spool full"]})
    listing = read_listing(made.to_bytes())
    assert (listing.verdict, listing.uploaded, listing.ranks, len(listing.traces)) == ("Partial", 8, (0, 1), 8)
    assert (listing.failure, listing.lost[0].error) == ("EngineFailed, rank 1: died", "spool full")
    assert {trace.size_support for trace in listing.traces} == {"proven"}
    assert listing.traces[0].variant_support == {"lora": "distinct"}


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ({"reason": "EngineFailed", "rank": 0, "message": "rank 0 ended badly"}, "EngineFailed, rank 0 ended badly"),
        ({"reason": "EngineFailed", "rank": 1, "message": "rank 10 is away"}, "EngineFailed, rank 1: rank 10 is away"),
        ({"reason": "Partial", "message": "too few"}, "Partial, too few"),
        ({"reason": "Stopped", "rank": 2}, "Stopped, rank 2"),
        ({"message": "why"}, "why"),
        ({}, ""),
    ],
)
def test_a_first_cause_names_its_rank_once(failure: dict[str, Any], text: str) -> None:
    body = json.dumps({"v": 1, "failure": failure}).encode()
    assert read_listing(body).failure == text
