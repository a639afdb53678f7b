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
    if len(targets) != 1 or not targets[0].sizes:
        yield "capture.targets: the engine torch captures what it is told; give exactly one entry, with sizes"
    given = _arguments(args)
    last = dict(given)  # of a name given twice the last counts, as in the engine
    for name in OWN:
        if name in last:
            yield f"engine.args: {name} is made from capture.targets; say it there"
    built_in = not last.get("--model")
    for target in targets:
        yield from _target(target, built_in=built_in)
    wrong = [
        f"engine.args: {name} {value!r} is not a whole number from 1 on"
        for name, value in given
        if name.removeprefix("--") in DIVIDED and not re.fullmatch(r"[1-9][0-9]{0,8}", value, re.ASCII)
    ]
    yield from wrong
    if built_in and not wrong:
        yield from _division({name: int(last.get(f"--{name}", default)) for name, default in DIVIDED.items()}, tensor)


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


def _division(values: Mapping[str, int], tensor: int) -> Iterator[str]:
    for name, value in values.items():
        if value % tensor:
            yield (
                f"parallelism.tensor: {tensor} does not divide --{name} {value} of the engine torch; "
                f"change tensor, or --{name} in engine.args"
            )
    if values["hidden"] % values["heads"]:
        yield f"engine.args: --hidden {values['hidden']} is not divisible by --heads {values['heads']}"


def _arguments(args: Sequence[str]) -> list[tuple[str, str]]:
    """``--name value`` and ``--name=value``, in order."""
    found = []
    for position, argument in enumerate(args):
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            following = args[position + 1] if position + 1 < len(args) else ""
            found.append((name, value if equals else following))
    return found
