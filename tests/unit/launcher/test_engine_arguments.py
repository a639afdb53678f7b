"""The torch engine's command line: read before torch is imported, refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from shapetrace_contract.tag import Runner
from shapetrace_engine.configuration import ConfigurationError, parse

RUNNER = Runner("DecodeGraphRunner")


def test_the_largest_size_comes_first_with_every_combination_of_variants() -> None:
    made = parse(["--sizes", "1,8,2", "--axis", "lora=lora,nolora", "--axis", "attention=dense,sparse"], {})
    tags = [shape.tag for shape in made.shapes(RUNNER)]
    assert len(tags) == 12
    assert tags[:3] == [
        "DecodeGraphRunner__bs_8__attention-dense__lora-lora",
        "DecodeGraphRunner__bs_8__attention-sparse__lora-lora",
        "DecodeGraphRunner__bs_8__attention-dense__lora-nolora",
    ]


def test_the_rank_is_taken_from_the_environment_and_options_go_to_the_users_model() -> None:
    made = parse(["--model", "pkg.mine:make", "--option", "a=b=c"], {"RANK": "3", "WORLD_SIZE": "8"})
    assert (made.rank, made.tensor, dict(made.options)) == (3, 8, {"a": "b=c"})


@pytest.mark.parametrize(
    ("arguments", "world", "words"),
    [
        (["--sizes", "1,2,2"], 1, "--sizes: '1,2,2' names a size twice"),
        (["--sizes", "0"], 1, "--sizes: '0': a size is between 1 and 65536"),
        (["--sizes", "1,,2"], 1, "--sizes"),
        (["--sizes", "-1"], 1, "--sizes"),
        (["--unit", "frames"], 1, "--unit"),
        (["--axis", "greedy=yes,no"], 1, "--axis greedy: the built-in decoder has lora and attention"),
        (["--axis", "lora=on"], 1, "--axis lora=on: the values are lora and nolora"),
        (["--axis", "lora=lora,lora"], 1, "--axis"),
        (["--axis", "lora=lora", "--axis", "lora=nolora"], 1, "--axis names an axis twice"),
        (["--axis", "lora"], 1, "--axis"),
        (["--hidden", "100", "--heads", "12"], 1, "--hidden 100 is not divisible by --heads 12"),
        ([], 5, "--heads 12 is not divisible by parallelism.tensor 5"),
        (["--topk", "128"], 1, "--topk 128 is not below --context 128"),
        (["--warmup", "-1"], 1, "--warmup"),
        (["--model", "no colon"], 1, "is not of the form module:factory"),
        (["--model", "a:b", "--axis", "Kind=x"], 1, "--axis: axis 'Kind'"),
        (["--layer", "3"], 1, "--layer"),
        (["--pause-seconds", "3"], 1, "--pause-seconds"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(arguments: list[str], world: int, words: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        parse(arguments, {"WORLD_SIZE": str(world)})
    assert words in str(refusal.value)
    assert str(refusal.value).endswith(" (spec.engine.args)")


def test_torch_is_not_needed_to_read_the_command_line() -> None:
    code = "import sys; from shapetrace_engine.configuration import parse; parse([], {}); print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
