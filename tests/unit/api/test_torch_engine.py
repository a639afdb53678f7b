"""What the operator accepts for the engine torch is what the engine itself accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_api import torch_engine
from shapetrace_api.accept import refusals
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_engine import configuration


def run(tensor: int = 1, args: list[str] | None = None, **target: Any) -> ProfileRunSpec:
    return ProfileRunSpec.model_validate(
        {
            "engine": {"name": "torch", "args": args or []},
            "accelerator": {"vendor": "none"},
            "storage": {"s3": {"bucket": "traces"}},
            "parallelism": {"tensor": tensor},
            "capture": {"targets": [{"runner": "decode", "sizes": [1, 2], **target}]},
        }
    )


def engine_takes(spec: ProfileRunSpec) -> bool:
    """Ask the engine, with the arguments that the launcher makes."""
    target = spec.capture.targets[0]
    made = ["--sizes", ",".join(map(str, target.sizes)), "--unit", target.unit.value]
    for variant in target.variants:
        made += ["--axis", f"{variant.axis}={','.join(variant.values)}"]
    try:
        configuration.parse([*made, *spec.engine.args], {"RANK": "0", "WORLD_SIZE": str(spec.parallelism.tensor)})
    except configuration.ConfigurationError:
        return False
    return True


def test_the_defaults_are_the_engines() -> None:
    default = configuration.Configuration()
    assert {name: getattr(default, name) for name in torch_engine.DIVIDED} == torch_engine.DIVIDED
    assert configuration.BUILT_IN_AXES == torch_engine.AXES
    assert configuration.MAX_SIZE == torch_engine.MAX_SIZE


NUMBERS = st.sampled_from([1, 2, 3, 4, 8, 12, 16, 96, 100, 768, 1024])
ARGS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["--heads", "--hidden", "--vocabulary"]), NUMBERS).map(
            lambda pair: [pair[0], str(pair[1])]
        ),
        st.tuples(st.sampled_from(["--heads", "--hidden"]), NUMBERS).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
        st.sampled_from(
            [["--layers", "2"], ["--model", "a.b:make"], ["--eager"], ["--heads", "x"], ["--heads=0"], ["--heads"]]
        ),
    ),
    max_size=4,
).map(lambda groups: [word for group in groups for word in group])
AXES = st.dictionaries(
    st.sampled_from(["lora", "attention", "greedy"]),
    st.lists(st.sampled_from(["lora", "nolora", "dense", "sparse"]), min_size=1, max_size=3, unique=True),
    max_size=2,
).map(lambda axes: [{"axis": axis, "values": values} for axis, values in axes.items()])


@given(
    st.sampled_from([1, 2, 3, 4, 5, 8]),
    ARGS,
    AXES,
    st.lists(st.sampled_from([1, 7, 65_536, 65_537]), min_size=1, unique=True),
)
def test_operator_and_engine_agree(
    tensor: int, args: list[str], variants: list[dict[str, Any]], sizes: list[int]
) -> None:
    spec = run(tensor, args, variants=variants, sizes=sizes)
    found = refusals(spec)
    assert (found == []) == engine_takes(spec), found


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (run(5), "parallelism.tensor: 5 does not divide --heads 12"),
        (run(2, ["--heads", "7", "--hidden", "14"]), "parallelism.tensor: 2 does not divide --heads 7"),
        (run(1, ["--hidden=100"]), "engine.args: --hidden 100 is not divisible by --heads 12"),
        (run(1, ["--heads"]), "engine.args: --heads ''"),
        (run(1, ["--sizes=4"]), "engine.args: --sizes is made from capture.targets"),
        (run(runner="prefill"), "capture.targets[prefill]: the engine torch has one runner"),
        (run(sizes=[65_537]), "capture.targets[decode].sizes: 65537"),
        (run(variants=[{"axis": "greedy", "values": ["on"]}]), "has no axis greedy"),
        (run(variants=[{"axis": "lora", "values": ["lora", "maybe"]}]), "lora has no value maybe"),
    ],
)
def test_a_refusal_names_field_and_fix(spec: ProfileRunSpec, expected: str) -> None:
    assert any(expected in text for text in refusals(spec)), refusals(spec)


def test_a_module_of_the_users_is_left_to_the_engine() -> None:
    assert refusals(run(5, ["--model", "mine:make"], variants=[{"axis": "greedy", "values": ["on"]}])) == []
