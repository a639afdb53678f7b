"""``shapetrace index`` and ``shapetrace relabel`` as a person calls them."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.index_fields import BY_WINDOW, FIELDS

# the tests are no installed package: an absolute import would not find them
from ..traces import kineto  # noqa: TID252
from ..traces.kineto import DENSE_SPARSE, PerSize0518, graphs  # noqa: TID252
from .attempts import entry, files, stored_trace, trace_text, write
from .command import run

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


@pytest.fixture
def mislabelled(tmp_path: Path) -> Path:
    PerSize0518(tmp_path / "graph_capture_profile", SIZES).capture(graphs(SIZES, DENSE_SPARSE))
    return tmp_path / "graph_capture_profile"


def test_index_says_of_each_file_what_it_holds(mislabelled: Path, capsys: Any) -> None:
    assert run("index", mislabelled) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["FILE", "RANK", "LABEL", "HOLDS", "SUPPORT"]
    row = next(line for line in lines if line.startswith("DecodeCudaGraphRunner_bs_7_"))
    assert row.split() == [
        "DecodeCudaGraphRunner_bs_7_rank0.json.gz", "0", "bs", "7", "bs", "8", "attention=sparse", "proven/distinct",
        "WRONG",
    ]  # fmt: skip
    assert "Mislabelled: 8 of 8 captures (layout sglang-per-size)" in lines
    assert err == "", "a person who does not wait sees no progress"


def test_the_verdict_says_how_many_are_mislabelled(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES))
    one, two = (tmp_path / f"DecodeCudaGraphRunner_bs_{size}_rank0.json.gz" for size in (4, 8))
    bodies = one.read_bytes(), two.read_bytes()
    one.write_bytes(bodies[1])
    two.write_bytes(bodies[0])
    assert run("index", tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "Mislabelled: 2 of 8 captures (layout sglang-per-size)" in lines
    rows = [line.split()[2:] for line in lines[1:9]]
    assert [row[-1] for row in rows[:2]] == ["WRONG", "WRONG"], "they come first"
    assert rows[2] == ["bs", "1", "=", "proven"]


def test_the_words_of_support_are_explained_under_the_table(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES))
    assert run("index", tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[9:] == [
        "support of size; = is what the label says",
        "a size is proven by the rows of matrix products, or only consistent with them",
        "Complete: 8 captures (layout sglang-per-size)",
    ]


def test_why_a_variant_is_not_proven_is_said_once(tmp_path: Path, capsys: Any) -> None:
    for size, lora in itertools.product((1, 2, 4, 8), ("lora", "nolora")):
        shape = Shape(Runner("DecodeRunner"), "bs", size, {"lora": lora})
        stored_trace(tmp_path, shape, 0, trace_text(shape, 0))
    run("index", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "support of size / lora; = is what the label says" in lines
    assert any(line.endswith("distinct from its siblings, or unproven") for line in lines)
    assert [line for line in lines if " unproven (" in line] == [
        "lora unproven (4 captures): indistinct: the same operators as lora nolora",
        "lora unproven (4 captures): indistinct: the same operators as lora lora",
    ]


def test_index_as_json(mislabelled: Path, capsys: Any) -> None:
    assert run("index", mislabelled, "-o", "json") == 1
    value = json.loads(capsys.readouterr().out)
    assert (value["verdict"], len(value["captures"]), value["layouts"]) == ("Mislabelled", 8, ["sglang-per-size"])


@pytest.mark.parametrize(("name", "code"), [("complete", 0), ("eager", 0), ("half", 1), ("nameless", 1), ("none", 2)])
def test_exit_codes_of_index(tmp_path: Path, name: str, code: int, capsys: Any) -> None:
    if name == "eager":
        kineto.write_eager(tmp_path)
    elif name == "nameless":
        kineto.write_combined(tmp_path, graphs(SIZES, shapes=False))
    elif name != "none":
        kineto.write_tagged(tmp_path, graphs(SIZES))
    if name == "half":
        path = tmp_path / "DecodeCudaGraphRunner_bs_8_rank0.json.gz"
        path.write_bytes(path.read_bytes()[:500])
    assert run("index", tmp_path) == code
    out, err = capsys.readouterr()
    if name == "half":
        assert "DecodeCudaGraphRunner_bs_8_rank0.json.gz cannot be read: the gzip stream ends early" in out
    if name == "none":
        assert "holds no trace" in err
    ends = {
        "complete": "Complete: 8 captures (layout sglang-per-size)",
        "eager": "Eager: no capture",
        "half": "Partial: 1 of 8 traces has no shape (layout sglang-per-size)",
        "nameless": "NotIndexable: 8 of 8 traces have no shape (layout sglang-combined)",
    }
    assert name == "none" or ends[name] in out.splitlines()


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("Mislabelled", "Mislabelled, as the manifest says: 2 captures, none wrong by its events (layout shapetrace)"),
        ("Partial", "Partial: 2 captures, something else is missing (layout shapetrace)"),
    ],
)
def test_a_verdict_that_no_capture_has_is_not_told_of_all(tmp_path: Path, capsys: Any, verdict: str, said: str) -> None:
    write(tmp_path, [entry(tmp_path, 0, size) for size in (1, 2)], verdict=verdict)
    assert run("index", tmp_path) == 1
    assert said in capsys.readouterr().out.splitlines()


def test_index_of_one_file(mislabelled: Path, capsys: Any) -> None:
    assert run("index", mislabelled / "DecodeCudaGraphRunner_bs_8_rank0.json.gz") == 0
    assert "Complete: 1 capture" in capsys.readouterr().out


def test_index_reads_many_files_with_several_processes(mislabelled: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("shapetrace_cli.foreign._ALONE_BYTES", 0)
    monkeypatch.setattr("shapetrace_cli.report.TELL_AFTER_SECONDS", 0)
    assert run("index", mislabelled, "--parallel", "2") == 1
    out, err = capsys.readouterr()
    assert "Mislabelled: 8 of 8 captures" in out
    assert err.startswith("graph_capture_profile: reading 8 files")


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path, capsys: Any) -> None:
    path = kineto.write_combined(tmp_path, graphs((1, 2)))
    path.rename(tmp_path / "a\x1b[2Jb.json.gz")
    assert run("index", tmp_path) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_relabel_writes_copies_and_says_which(mislabelled: Path, tmp_path: Path, capsys: Any) -> None:
    before = files(mislabelled)
    assert run("relabel", mislabelled, tmp_path / "right", "--names", "upstream") == 0
    out, err = capsys.readouterr()
    row = next(line for line in out.splitlines() if line.startswith("DecodeCudaGraphRunner_bs_7_"))
    assert row.split()[1:] == ["DecodeCudaGraphRunner_bs_8_sparse_rank0.json.gz", "proven/distinct", "RENAMED"]
    assert err == f"8 traces are in {tmp_path / 'right'}: 8 renamed\n"
    assert files(mislabelled) == before
    assert run("index", tmp_path / "right") == 0


def test_relabel_splits_a_combined_file(tmp_path: Path, capsys: Any) -> None:
    path = kineto.write_combined(tmp_path / "in", graphs(SIZES))
    assert run("relabel", path, tmp_path / "out", "-o", "json") == 0
    out, err = capsys.readouterr()
    assert err == f"8 traces are in {tmp_path / 'out'}: 8 split from combined files\n"
    value = json.loads(out)
    assert [(copy["window"], copy["tag"]) for copy in value["copies"]] == [
        (8 - size, f"DecodeCudaGraphRunner__bs_{size}") for size in SIZES
    ]
    assert run("index", tmp_path / "out") == 0


def test_relabel_refuses_what_it_cannot_name_and_writes_the_rest_on_request(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path / "in", graphs(SIZES))
    path = tmp_path / "in/DecodeCudaGraphRunner_bs_8_rank0.json.gz"
    path.write_bytes(path.read_bytes()[:500])
    out = tmp_path / "out"
    assert run("relabel", tmp_path / "in", out) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[0] == f"{path.name}: cannot be read: the gzip stream ends early"
    assert "nothing was written: 1 of 8 traces cannot be named" in err
    assert not out.exists()
    assert run("relabel", tmp_path / "in", out, "--skip-unsure", "-o", "none") == 1
    assert len(files(out)) == 7


@pytest.mark.parametrize("out", ["in", "in/x", "full"])
def test_relabel_refuses_a_target_before_it_reads(tmp_path: Path, out: str, capsys: Any) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    before = files(tmp_path)
    assert run("relabel", tmp_path / "in", tmp_path / out) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert files(tmp_path) == before


@pytest.mark.timeout(60)
def test_index_waits_for_no_pipe_and_says_what_the_manifest_is(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    os.mkfifo(tmp_path / "manifest.json")
    assert run("index", tmp_path) == 1
    assert "manifest.json cannot be used: it is a named pipe, not a regular file" in capsys.readouterr().out
    os.mkfifo(tmp_path / "x.json.gz")
    assert run("index", tmp_path / "x.json.gz") == 2
    assert "is a named pipe, neither a folder nor a regular file" in capsys.readouterr().err


def test_index_and_relabel_name_a_file_that_claims_a_capture_and_holds_none(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((1, 2)))
    name = "DecodeCudaGraphRunner_bs_16_rank0.json.gz"
    (tmp_path / "in" / name).write_bytes(b"{}")
    assert run("index", tmp_path / "in") == 1
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith(name)).split()[1:] == [
        "-", "bs", "16", "no", "trace", "no", "capture",
    ]  # fmt: skip
    assert f"{name} is named as bs 16, and holds no capture: it is JSON, and no trace" in lines
    assert run("relabel", tmp_path / "in", tmp_path / "out") == 1
    assert capsys.readouterr().err.startswith(f"{name}: is named as bs 16")


def test_a_folder_that_cannot_be_listed_is_wrong_usage(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def refused(place: Path) -> list[str]:  # root may list every folder
        raise PermissionError(13, "Permission denied", str(place / "below"))

    monkeypatch.setattr("shapetrace_cli.foreign.list_files", refused)
    assert run("index", tmp_path) == 2
    assert f"{tmp_path / 'below'} cannot be listed: Permission denied" in capsys.readouterr().err


def full(monkeypatch: Any) -> None:
    """Standard output on a full disk."""

    def write(text: Any = None, **more: Any) -> None:
        if not more.get("err"):
            raise OSError(28, "No space left on device")
        sys.stderr.write(f"{text}\n")

    monkeypatch.setattr("click.echo", write)


def test_copies_that_could_not_be_told_are_there_and_that_is_said(
    mislabelled: Path, monkeypatch: Any, capsys: Any
) -> None:
    out = mislabelled.parent / "right"
    full(monkeypatch)
    assert run("relabel", mislabelled, out) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: standard output could not be written: No space left on device",
        f"8 traces are in {out}: 8 renamed",
    ]
    assert len(files(out)) == 8
    assert run("index", out) == 1
    assert "standard output could not be written: No space left on device" in capsys.readouterr().err


@pytest.fixture
def room() -> Iterator[None]:
    """Files of this process may have 500 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_copies_that_find_no_room_are_not_there_and_the_place_is_named(
    mislabelled: Path, tmp_path: Path, room: None, capsys: Any
) -> None:
    out = tmp_path / "new/deep/right"
    assert run("relabel", mislabelled, out) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: nothing was written: {out}/traces/rank-00000/DecodeCudaGraphRunner__bs_")
    assert first.endswith(".json.gz: File too large")
    assert "as much room as the traces" in second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph_capture_profile"]


def test_a_folder_that_cannot_be_made_is_named(mislabelled: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert run("relabel", mislabelled, tmp_path / "file/out") == 1
    assert f"nothing was written: {tmp_path / 'file'}" in capsys.readouterr().err


def test_a_number_with_too_many_digits_is_told_without_advice_on_python(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "DecodeCudaGraphRunner_bs_8_rank0.json"
    path.write_text('{"traceEvents": [{"ph": "X", "ts": ' + "9" * 5000 + "}]}")
    assert run("index", tmp_path) == 1
    out = capsys.readouterr().out
    assert "a number has too many digits" in out
    assert "set_int_max_str_digits" not in out


def test_a_reader_that_was_ended_from_outside_is_told(mislabelled: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("shapetrace_cli.foreign._ALONE_BYTES", 0)

    class Broken(ThreadPoolExecutor):
        def __init__(self, workers: int, mp_context: Any) -> None:
            super().__init__(workers)

        def map(self, *_: Any, **__: Any) -> Any:
            raise BrokenProcessPool

    monkeypatch.setattr("shapetrace_cli.foreign.ProcessPoolExecutor", Broken)
    assert run("index", mislabelled, "--parallel", "2") == 1
    assert f"a process that read files of {mislabelled} was ended from outside" in capsys.readouterr().err


def test_why_sizes_are_not_proven_is_said_once(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path, graphs(SIZES, rows=lambda tokens: -(-tokens // 4) * 4))
    assert run("index", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("consistent (8 captures): ")]) == 1


def test_what_was_read_with_indulgence_is_said(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path, graphs((1, 2)))
    path = tmp_path / "DecodeCudaGraphRunner_bs_2_rank0.json.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()).replace(b"aten::topk", b"aten::\x01topk"))
    run("index", tmp_path)
    assert f"{path.name} is no strict JSON: raw control characters" in capsys.readouterr().out


def test_a_refused_relabel_gives_its_refusals_to_programs(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path / "in", graphs(SIZES))
    path = tmp_path / "in/DecodeCudaGraphRunner_bs_8_rank0.json.gz"
    path.write_bytes(path.read_bytes()[:500])
    assert run("relabel", tmp_path / "in", tmp_path / "out", "-o", "json") == 1
    out, err = capsys.readouterr()
    refused = {path.name: "cannot be read: the gzip stream ends early"}
    assert json.loads(out) == {"v": 1, "copies": [], "refused": refused}
    assert "nothing was written: 1 of 8 traces cannot be named" in err
    assert not (tmp_path / "out").exists()


def test_the_index_of_one_file_has_every_documented_field(mislabelled: Path, capsys: Any) -> None:
    assert run("index", mislabelled / "DecodeCudaGraphRunner_bs_8_rank0.json.gz", "-o", "json") == 0
    index = json.loads(capsys.readouterr().out)["index"]
    fields = {name for name in FIELDS if "[]" not in name} - {"unread"}
    assert set(index) == fields
    assert set(index["windows"][0]) == {
        name.removeprefix("windows[].") for name in FIELDS if name.startswith("windows[].")
    } | {*BY_WINDOW}
    assert run("index", mislabelled, "-o", "json") == 1
    assert "index" not in json.loads(capsys.readouterr().out)


def test_one_trace_is_one(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path / "in", graphs((8,)))
    assert run("relabel", tmp_path / "in", tmp_path / "out") == 0
    assert capsys.readouterr().err == f"1 trace is in {tmp_path / 'out'}: 1 renamed\n"


def test_what_kept_its_name_is_told_from_what_was_renamed(tmp_path: Path, capsys: Any) -> None:
    kineto.write_tagged(tmp_path / "in", graphs(SIZES))
    names = [f"DecodeCudaGraphRunner_bs_{size}_rank0.json.gz" for size in (4, 8, 1)]
    one, two, damaged = (tmp_path / "in" / name for name in names)
    bodies = one.read_bytes(), two.read_bytes()
    one.write_bytes(bodies[1])
    two.write_bytes(bodies[0])
    damaged.write_bytes(bodies[0][:500])
    assert run("relabel", tmp_path / "in", tmp_path / "out", "--names", "upstream", "--skip-unsure") == 1
    out, err = capsys.readouterr()
    said = "2 renamed, 5 kept their names, 1 more has no copy, named above"
    assert err.splitlines()[-1] == f"7 traces are in {tmp_path / 'out'}: {said}"
    rows = [line.split() for line in out.splitlines()[1:]]
    assert [(row[0], row[1]) for row in rows if row[-1] == "RENAMED"] == [(names[1], names[0]), (names[0], names[1])]
    assert [row[-1] for row in rows[:2]] == ["RENAMED", "RENAMED"]


def test_more_refusals_than_are_printed_are_counted(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("shapetrace_cli.foreign.MAX_REFUSALS", 2)
    for size in (1, 2, 4, 8, 16):
        kineto.write(tmp_path / f"in/DecodeCudaGraphRunner_bs_{size}_rank0.json", b"{}")
    assert run("relabel", tmp_path / "in", tmp_path / "out") == 1
    assert capsys.readouterr().err.splitlines()[2:4] == [
        "... and 3 more; -o json has them",
        "error: nothing was written: 5 of 5 traces cannot be named",
    ]
