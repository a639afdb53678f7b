"""What the engine ``torch`` can be told, known before a pod of it exists.

The engine checks the same again, last; a test holds the two together (tests/unit/api/test_torch_engine.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from shapetrace_api.capture import Target

RUNNER = "DecodeGraphRunner"
"""The class that captures, as tags name it."""
TARGET = "decode"
MAX_SIZE = 65_536
AXES: Mapping[str, tuple[str, ...]] = {"lora": ("lora", "nolora"), "attention": ("dense", "sparse")}
"""The variants of the built-in decoder."""
DIVIDED: Mapping[str, int] = {"heads": 12, "hidden": 768, "vocabulary": 16_384}
"""Argument -> default. The layers are split along these, so ``tensor`` divides each."""
OWN = ("--sizes", "--unit", "--axis")
"""Arguments that are made from ``capture.targets``."""


def refusals(args: Sequence[str], targets: Sequence[Target], tensor: int) -> Iterator[str]:
    """Why the engine would refuse: fields of ``capture.targets``, or arguments of ``engine.args``."""
    given = _arguments(args)
    for name in OWN:
        if name in given:
            yield f"engine.args: {name} is made from capture.targets; say it there"
    for target in targets:
        yield from _target(target, built_in="--model" not in given)
    if "--model" not in given:
        yield from _division(given, tensor)


def _target(target: Target, *, built_in: bool) -> Iterator[str]:
    where = f"capture.targets[{target.runner}]"
    if target.runner != TARGET:
        yield f"{where}: the engine torch has one runner, {TARGET}"
    large = [size for size in target.sizes if size > MAX_SIZE]
    if large:
        yield f"{where}.sizes: {large[0]} is more than the engine torch takes, {MAX_SIZE}"
    for variant in target.variants if built_in else ():
        known = AXES.get(variant.axis)
        if known is None:
            yield f"{where}.variants: the built-in decoder has no axis {variant.axis}, only {' and '.join(AXES)}"
        elif not set(variant.values) <= set(known):
            values = ", ".join(sorted(set(variant.values) - set(known)))
            yield f"{where}.variants: {variant.axis} has no value {values}, only {' and '.join(known)}"


def _division(given: Mapping[str, str], tensor: int) -> Iterator[str]:
    values: dict[str, int] = {}
    for name, default in DIVIDED.items():
        text = given.get(f"--{name}", str(default))
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text, re.ASCII):
            yield f"engine.args: --{name} {text!r} is not a whole number from 1 on"
            continue
        values[name] = int(text)
        if values[name] % tensor:
            yield (
                f"parallelism.tensor: {tensor} does not divide --{name} {text} of the engine torch; "
                f"change tensor, or --{name} in engine.args"
            )
    if "hidden" in values and "heads" in values and values["hidden"] % values["heads"]:
        yield f"engine.args: --hidden {values['hidden']} is not divisible by --heads {values['heads']}"


def _arguments(args: Sequence[str]) -> dict[str, str]:
    """``--name value`` and ``--name=value``; of a name given twice the last counts, as in the engine."""
    found: dict[str, str] = {}
    for position, argument in enumerate(args):
        if not argument.startswith("--"):
            continue
        name, equals, value = argument.partition("=")
        following = args[position + 1] if position + 1 < len(args) else ""
        found[name] = value if equals else following
    return found
