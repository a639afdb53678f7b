"""What SGLang's own traces of each size do, on the same classes, without us: where they fail, and how."""

from __future__ import annotations

from conftest import Ran
from shapetrace_contract.tag import Runner, Shape, sglang_name
from support import reading
from test_capture import release

WALKS_OFF = ((0, 5, 18), (0, 5, 21))
"""The versions that name their traces by a cursor over the sizes."""


def _walks_off(version: str) -> bool:
    return WALKS_OFF[0] <= release(version) <= WALKS_OFF[1]


def _has_mode(version: str) -> bool:
    return release(version) >= WALKS_OFF[0]


def test_without_a_variant_it_writes_one_file_a_size(sglang: Ran) -> None:
    ran = sglang.returned("upstream_no_axis")
    assert (ran["raised"], ran["captures"]) == ("", 8)
    assert len(ran["files"]) == (8 if _has_mode(sglang.version) else 0)


def test_the_ninth_callback_ends_the_server_where_there_is_a_variant(sglang: Ran) -> None:
    for scenario in ("upstream_attention", "upstream_streams"):
        ran = sglang.returned(scenario)
        if _walks_off(sglang.version):
            assert (ran["raised"], ran["captures"], len(ran["files"])) == ("IndexError", 8, 8), scenario
        elif _has_mode(sglang.version):
            assert (ran["raised"], ran["captures"], len(ran["files"])) == ("", 16, 16), scenario
        else:
            assert (ran["raised"], ran["files"]) == ("", []), scenario


def test_the_second_capture_of_the_eagle_draft_overwrites_the_first_file(sglang: Ran) -> None:
    ran = sglang.returned("upstream_greedy")
    assert ran["raised"] == ""
    if release(sglang.version) >= (0, 5, 22):
        assert (ran["captures"], len(ran["files"])) == (16, 8)
    else:
        assert ran["captures"] == 8, "one capture a size in this version"


def test_its_files_have_the_names_that_we_tell_as_aliases(sglang: Ran) -> None:
    captured = {"draft": [Shape(Runner("DecodeCudaGraphRunner", draft=0), "bs", size) for size in range(1, 9)]}
    ours = {"no_axis": "no_axis", "attention": "attention", "streams": "two_streams", "greedy": "greedy"}
    for theirs, scenario in ours.items():
        captured[theirs] = [Shape.from_tag(record["tag"]) for record in reading.records(sglang.folder(scenario))]
    for scenario, shapes in captured.items():
        names = {f"{sglang_name(shape, 0)}.json.gz" for shape in shapes}
        if release(sglang.version) >= (0, 5, 22):
            assert set(sglang.returned(f"upstream_{scenario}")["files"]) == names, scenario
        elif _has_mode(sglang.version) and scenario == "no_axis":
            assert set(sglang.returned(f"upstream_{scenario}")["files"]) == names, "the plain ones are older"


def test_a_backend_that_does_not_step_its_profiler_ends_the_start_up(sglang: Ran) -> None:
    ran = sglang.returned("upstream_breakable")
    assert ran["files"] == []
    assert ran["captures"] == 8
    assert ran["raised"] == ("AssertionError" if _has_mode(sglang.version) else "")
