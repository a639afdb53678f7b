"""vLLM's descriptors as shapes. The classes here are of this test; tests/vllm has the real ones."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, make_dataclass
from enum import Enum
from typing import NamedTuple

import pytest
from shapetrace_capture.adapters.vllm.keys import Keys, agree, axes, spelled, state_of, verbatim
from shapetrace_contract.tag import Runner


class Mode(Enum):
    """As vLLM's, an enumeration."""

    PIECEWISE = 1
    FULL = 2


@dataclass(frozen=True)
class First:
    """The fields of V1's descriptor."""

    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False
    has_lora: bool = False
    num_active_loras: int = 0


class Second(NamedTuple):
    """The fields of V2's, as a named tuple."""

    cg_mode: Mode
    num_tokens: int
    num_reqs: int | None
    uniform_token_count: int | None = None
    num_ubatches: int = 1


RUNNER = Runner("GPUModelRunner")


def tags(keys: Keys) -> list[str]:
    return [shape.tag for shape in keys.shapes]


def test_defaults_are_left_out_and_requests_that_follow_from_the_rest() -> None:
    keys = Keys(RUNNER, "tok", [(First(8, 8, True), "FULL"), (First(4, 4, True), "FULL"), (First(8), "PIECEWISE")])
    assert tags(keys) == [
        "GPUModelRunner__tok_8__mode-FULL__uniform-true",
        "GPUModelRunner__tok_4__mode-FULL__uniform-true",
        "GPUModelRunner__tok_8__mode-PIECEWISE",
    ]


def test_requests_stay_where_nothing_else_tells_two_keys_apart() -> None:
    keys = Keys(RUNNER, "tok", [(First(8, 2), "FULL"), (First(8, 8), "FULL"), (First(4, 4), "FULL")])
    assert tags(keys) == [
        f"GPUModelRunner__tok_{size}__mode-FULL__reqs-{requests}" for size, requests in ((8, 2), (8, 8), (4, 4))
    ]
    assert keys.alike == []


def test_a_named_tuple_and_its_own_mode() -> None:
    keys = Keys(Runner("M"), "tok", [(Second(Mode.FULL, 8, 8, 1, 2), ""), (Second(Mode.PIECEWISE, 8, None), "")])
    assert tags(keys) == ["M__tok_8__mode-FULL__ubatches-2__uniformtokencount-1", "M__tok_8__mode-PIECEWISE"]


def test_no_two_keys_get_the_same_tag() -> None:
    every = itertools.product((1, 8), (None, 1, 8), (False, True), (False, True), (0, 1, 2))
    keys = Keys(RUNNER, "tok", [(First(*values), mode) for values in every for mode in ("FULL", "PIECEWISE")])
    assert len(set(tags(keys))) == len(keys.shapes) == 2 * 3 * 2 * 2 * 3 * 2


def test_a_field_of_a_later_version_is_an_axis_without_a_change_here() -> None:
    later = make_dataclass("Later", [("num_tokens", int), ("num_kv_splits", int, 1), ("depth", int, 0)], frozen=True)
    assert tags(Keys(RUNNER, "tok", [(later(8), "FULL"), (later(8, 4, 3), "FULL")])) == [
        "GPUModelRunner__tok_8__mode-FULL",
        "GPUModelRunner__tok_8__depth-3__kvsplits-4__mode-FULL",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["num_reqs", "has_lora"], {"num_reqs": "reqs", "has_lora": "lora"}),
        (["num_lora", "has_lora"], {"num_lora": "xnumlora", "has_lora": "xhaslora"}),
        (["num", "epoch", "_2nd"], {"num": "xnum", "epoch": "xepoch", "_2nd": "x2nd"}),
    ],
)
def test_axes_are_valid_and_distinct(names: list[str], expected: dict[str, str]) -> None:
    assert axes(names) == expected


def test_keys_that_are_spelled_alike_are_told() -> None:
    @dataclass(frozen=True)
    class Alike:
        num_tokens: int
        kind: object

    keys = Keys(RUNNER, "tok", [(Alike(8, 1), "FULL"), (Alike(8, "1"), "FULL")])
    assert keys.alike == ["GPUModelRunner__tok_8__kind-1__mode-FULL"]


def test_the_engines_own_key_has_no_text_for_what_a_tag_leaves_out() -> None:
    said = state_of(First(8, 8, uniform=True), "FULL")
    assert said == {"mode": "FULL", "reqs": "8", "uniform": "true", "lora": "", "activeloras": ""}
    assert spelled(First(8, 8, uniform=True), "FULL") == {axis: text for axis, text in said.items() if text}


def test_a_key_is_told_verbatim_with_its_defaults() -> None:
    fields = {"num_tokens": 8, "num_reqs": None, "uniform": False, "has_lora": False, "num_active_loras": 0}
    assert verbatim(First(8), "FULL") == {"cudagraph_runtime_mode": "FULL", **fields}
    assert verbatim(Second(Mode.PIECEWISE, 8, None))["cg_mode"] == "PIECEWISE"


def test_descriptors_of_two_classes_agree_where_both_speak() -> None:
    assert agree(First(8), Second(Mode.PIECEWISE, 8, None))
    assert agree(First(8, None), Second(Mode.FULL, 8, 4))
    assert not agree(First(8, 8), Second(Mode.FULL, 8, 4))
    assert not agree(First(4), Second(Mode.PIECEWISE, 8, None))


def test_a_key_without_a_tag_costs_no_other_key() -> None:
    long = make_dataclass("Descriptor", [("num_tokens", int), ("kind", str)], frozen=True)
    keys = Keys(RUNNER, "tok", [(long(8, "x" * 300), ""), (long(4, "plain"), "")])
    assert tags(keys) == ["GPUModelRunner__tok_4__kind-plain"]
    (refused,) = keys.refused
    assert "200 are allowed" in str(refused)
