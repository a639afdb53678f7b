"""Targets as a plan."""

from __future__ import annotations

from shapetrace_capture.declared import declared_plans, default_runner, product, unplanned_shapes
from shapetrace_contract.tag import Runner

TARGET = {
    "runner": "decode",
    "unit": "bs",
    "sizes": [1, 4, 2],
    "variants": [{"axis": "lora", "values": ["lora", "nolora"]}, {"axis": "attention", "values": ["dense", "sparse"]}],
}


def test_the_largest_size_comes_first_with_every_combination() -> None:
    ((runner, unit, shapes),) = declared_plans([TARGET])
    assert (str(runner), unit, len(shapes)) == ("decode", "bs", 12)
    assert [shape.size for shape in shapes] == [4] * 4 + [2] * 4 + [1] * 4
    assert [tuple(shape.variants.items()) for shape in shapes[:2]] == [
        (("attention", "dense"), ("lora", "lora")),
        (("attention", "sparse"), ("lora", "lora")),
    ]


def test_targets_without_sizes_plan_nothing() -> None:
    assert declared_plans([{"runner": "decode"}, {"sizes": []}]) == []


def test_the_runner_is_the_one_that_all_targets_name() -> None:
    assert default_runner([]) == "Script"
    assert default_runner([TARGET, {"sizes": [1], "runner": "decode"}]) == "decode"
    assert default_runner([TARGET, {"sizes": [1], "runner": "prefill"}]) == "Script"
    assert default_runner([{"sizes": [1]}]) == "Script"


def test_what_a_runner_does_not_plan_is_told_with_the_reason() -> None:
    runner = Runner("DecodeRunner")
    lora = [{"axis": "lora", "values": ["lora", "nolora"]}]
    planned = product(runner, "bs", [4, 8], [{"axis": "lora", "values": ["lora"]}])
    targets = [{"runner": "decode", "sizes": [8, 2], "variants": lora}, {"runner": "prefill", "sizes": [1]}]
    found = unplanned_shapes(targets, runner, "bs", planned, {"decode"})
    assert {shape.tag: reason for shape, reason in found} == {
        "DecodeRunner__bs_8__lora-nolora": "DecodeRunner plans at this size: lora lora",
        "DecodeRunner__bs_2__lora-lora": "DecodeRunner plans the sizes 4, 8 (bs)",
        "DecodeRunner__bs_2__lora-nolora": "DecodeRunner plans the sizes 4, 8 (bs)",
    }
    assert unplanned_shapes(targets, runner, "tok", planned, {"other"}) == []
