"""Targets as a plan."""

from __future__ import annotations

from shapetrace_capture.declared import declared_plans, default_runner, unplanned

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


def test_what_targets_name_and_the_engine_does_not_plan_is_told_with_the_reason() -> None:
    targets = [{"unit": "tok", "sizes": [4, 8]}, {"runner": "Draft", "unit": "tok", "sizes": [2]}]
    planned = {"tok": {8, 16}}
    assert [(shape.tag, reason) for shape, reason in unplanned(targets, "Main", planned, is_first=True)] == [
        ("Main__tok_4", "Main plans 8, 16 (tok)")
    ]
    assert unplanned(targets, "Main", planned, is_first=False) == []
    assert [shape.tag for shape, _ in unplanned(targets, "Draft", {}, is_first=False)] == ["Draft__tok_2"]
