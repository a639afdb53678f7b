"""Two tensor parallel ranks, sizes x lora x attention: what each trace holds is what it says it holds."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from launched import SMALL, VARIANTS, events, folder, launch, lines, operators, traces

SIZES = [1, 2]
RUNNER = "DecodeGraphRunner"


@pytest.fixture(scope="module")
def run(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    spool = tmp_path_factory.mktemp("run") / "spool"
    return spool, launch(spool, tensor=2, sizes=SIZES, variants=VARIANTS)


def both(spool: Path) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
    return [(rank, record, trace) for rank in (0, 1) for record, trace in traces(spool, rank)]


def test_every_rank_is_done_with_a_trace_for_each_planned_shape(run: tuple[Path, dict[str, Any]]) -> None:
    spool, ended = run
    assert ended["reason"] == "UploadTimeout", ended["output"]  # nobody collects here; the engine was done
    expected = [
        f"{RUNNER}__bs_{size}__attention-{attention}__lora-{lora}"
        for size, lora, attention in itertools.product([2, 1], ["lora", "nolora"], ["dense", "sparse"])
    ]
    for rank in (0, 1):
        (plan,) = lines(folder(spool, rank) / "plan.jsonl")
        records = lines(folder(spool, rank) / "captures.jsonl")
        (done,) = lines(folder(spool, rank) / "done.json")
        assert plan["shapes"] == [record["tag"] for record in records] == expected
        assert [record["seq"] for record in records] == list(range(8))
        assert all(record["file"] and not record["error"] and not record["dirty"] for record in records)
        assert (done["records"], done["ok"], done["eager"]) == (8, True, None)


def test_tag_metadata_and_span_agree(run: tuple[Path, dict[str, Any]]) -> None:
    for rank, record, trace in both(run[0]):
        written = trace["shapetrace"]
        assert (written["tag"], written["rank"], written["stage"]) == (record["tag"], rank, "capture")
        assert written["shape"] == record["shape"]
        spans = [event["name"] for event in events(trace, "user_annotation")]
        assert spans.count(record["tag"]) == 1
        assert spans.count(f"capture_{record['shape']['size']}_FULL") == 1


def test_the_matrix_products_have_as_many_rows_as_the_label_says(run: tuple[Path, dict[str, Any]]) -> None:
    for _, record, trace in both(run[0]):
        products = [event for event in events(trace, "cpu_op") if event["name"] == "aten::mm"]
        assert len(products) >= 2 * 7, "seven linear layers in each of two layers"
        assert {event["args"]["Input Dims"][0][0] for event in products} == {record["shape"]["size"]}


def test_each_variant_runs_operators_of_its_own(run: tuple[Path, dict[str, Any]]) -> None:
    for _, record, trace in both(run[0]):
        found, variants = set(operators(trace)), record["shape"]["variants"]
        assert ("aten::topk" in found) == (variants["attention"] == "sparse")
        assert ("aten::index_select" in found) == (variants["lora"] == "lora")
        assert "aten::softmax" in found
    for rank in (0, 1):
        sequences = {tuple(operators(trace)) for record, trace in traces(run[0], rank) if record["shape"]["size"] == 2}
        assert len(sequences) == 4, "no two variants run the same operators"


def test_the_ranks_add_up_their_parts(run: tuple[Path, dict[str, Any]]) -> None:
    for _, _, trace in both(run[0]):
        assert sum("allreduce" in name or "all_reduce" in name for name in operators(trace)) >= 2 * 2


def test_independent_witnesses_are_recorded(run: tuple[Path, dict[str, Any]]) -> None:
    for rank, record, _ in both(run[0]):
        seen = record["witnesses"]
        assert (seen["rows"], seen["forwards"], seen["keyKnown"]) == (record["shape"]["size"], 1, True)
        assert seen["engine"] == record["shape"]["variants"]
        assert (seen["graph"], seen["device"]) == (False, "cpu"), "a CPU has no graphs, and the record says so"
        assert seen["stacks"] is (rank == 0)
        assert set(record["timesSeconds"]) == {"room", "start", "window", "stop", "save"}


def test_nothing_of_ours_is_in_a_trace_but_the_listed_frames(run: tuple[Path, dict[str, Any]]) -> None:
    from shapetrace_capture.window import OWN_FRAMES

    seen = set()
    for record, trace in traces(run[0], 0):
        frames = [event["name"] for event in events(trace, "python_function")]
        assert any("shapetrace_engine/decoder.py" in name for name in frames), "stacks are on"
        for name in frames:
            found = re.search(r"shapetrace_(?:capture|launcher|contract)/(\w+\.py)\(\d+\): (\S+)", name)
            if found:
                seen.add((found[1], found[2]))
        threads = {event["tid"] for event in events(trace, "python_function")}
        assert len(threads) == 1, f"{record['tag']}: Python threads beside the one that captures"
    assert ("capture.py", "watched") in seen, "the pattern finds frames of ours"
    assert seen <= OWN_FRAMES


def test_only_the_first_rank_has_stacks(run: tuple[Path, dict[str, Any]]) -> None:
    assert all(not events(trace, "python_function") for _, trace in traces(run[0], 1))


def test_a_rank_that_is_not_asked_for_records_nothing_and_says_so(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    launch(spool, tensor=2, sizes=[1], ranks="First")
    assert len(traces(spool, 0)) == 1
    (record,) = lines(folder(spool, 1) / "rank.json")
    (done,) = lines(folder(spool, 1) / "done.json")
    assert record["asked"] is False
    assert (done["ok"], done["records"]) == (True, 0)
    assert "not asked for" in done["reason"]
    assert sorted(path.name for path in folder(spool, 1).iterdir()) == ["done.json", "rank.json"]


def test_eager_is_said_and_nothing_is_planned(torch: Any, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    launch(spool, [*SMALL, "--eager"], sizes=[1, 2])
    (plan,) = lines(folder(spool) / "plan.jsonl")
    (done,) = lines(folder(spool) / "done.json")
    assert done["eager"] == "--eager was given"
    assert (done["ok"], plan["shapes"], len(plan["notPlanned"])) == (True, [], 2)


@pytest.mark.parametrize(
    ("args", "tensor", "word"),
    [
        (["--heads", "5"], 1, "--hidden 64 is not divisible by --heads 5"),
        (["--heads", "2"], 4, "--heads 2 is not divisible by parallelism.tensor 4"),
        (["--layers", "none"], 1, "--layers"),
        (["--model", "no_such_module:make"], 1, "no_such_module"),
    ],
)
def test_arguments_that_do_not_fit_are_bad_configuration(
    torch: Any, tmp_path: Path, args: list[str], tensor: int, word: str
) -> None:
    ended = launch(tmp_path / "spool", [*SMALL, *args], tensor=tensor)
    assert (ended["code"], ended["reason"]) == (44, "BadConfiguration")
    assert word in ended["message"]


def test_a_model_of_the_users_is_captured_in_its_place(torch: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        """
import torch
class Model:
    def __init__(self, made):
        self.weight = torch.ones(4, int(made.options["width"]))
        self.rows = torch.ones(max(made.sizes), 4)
    def inputs(self, size):
        return (self.rows[:size],)
    def forward(self, rows, *, variants):
        return getattr(torch, variants["kind"])(torch.mm(rows, self.weight))
"""
    )
    spool = tmp_path / "spool"
    args = ["--model", "mine:Model", "--option", "width=3"]
    launch(spool, args, sizes=[1, 3], variants=[{"axis": "kind", "values": ["sin", "cos"]}], path=tmp_path)
    found = traces(spool)
    assert len(found) == 4
    for record, trace in found:
        assert f"aten::{record['shape']['variants']['kind']}" in operators(trace)
        (product,) = [event for event in events(trace, "cpu_op") if event["name"] == "aten::mm"]
        assert product["args"]["Input Dims"] == [[record["shape"]["size"], 4], [4, 3]]
        assert record["witnesses"]["engine"] is None
