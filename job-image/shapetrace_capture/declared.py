"""``spec.capture.targets`` as a plan, for engines that have no plan of their own (``engine: command``). Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from shapetrace_contract.tag import Runner, Shape

DEFAULT_RUNNER = "Script"
"""The runner of a script that names none, where the targets name none either."""


def default_runner(targets: Iterable[Mapping[str, Any]]) -> str:
    """The runner that the targets name, if they agree on one; otherwise :data:`DEFAULT_RUNNER`."""
    named = {str(target.get("runner") or DEFAULT_RUNNER) for target in targets}
    return named.pop() if len(named) == 1 else DEFAULT_RUNNER


def product(runner: Runner, unit: str, sizes: Iterable[int], variants: Iterable[Mapping[str, Any]]) -> list[Shape]:
    """Every size, the largest first, with every combination of the axes' values, in the order given (as SGLang does).

    ``variants`` as in the API: ``[{"axis": "lora", "values": ["lora", "nolora"]}]``.
    """
    axes = [(str(item["axis"]), [str(value) for value in item["values"]]) for item in variants]
    combinations = list(itertools.product(*([(axis, value) for value in values] for axis, values in axes)))
    return [
        Shape(runner, unit, size, dict(combination))
        for size in sorted(set(sizes), reverse=True)
        for combination in combinations
    ]


def declared_plans(targets: Iterable[Mapping[str, Any]]) -> list[tuple[Runner, str, list[Shape]]]:
    """``(runner, unit, shapes)`` of each target that names sizes."""
    plans = []
    for target in targets:
        if target.get("sizes"):
            runner, unit = Runner(str(target.get("runner") or DEFAULT_RUNNER)), str(target.get("unit") or "bs")
            plans.append((runner, unit, product(runner, unit, target["sizes"], target.get("variants") or [])))
    return plans
