"""``spec.capture.targets``: the plan of engines that have none of their own (``engine: command``), and for the others
what was asked for and is not in their plan. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
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


def unplanned_shapes(
    targets: Iterable[Mapping[str, Any]], runner: Runner, unit: str, planned: Collection[Shape], names: Collection[str]
) -> list[tuple[Shape, str]]:
    """The shapes that targets declare for ``runner`` and that it does not plan, each with the reason.

    ``names`` are the words by which a target may mean this runner (``decode``, its class). A target without sizes
    declares its variants at every size; a target that names fewer axes than the runner has is met by any value of them.
    """
    sizes = sorted({shape.size for shape in planned})
    axes = {axis: sorted({shape.variants.get(axis, "none") for shape in planned}) for axis in _axes(planned)}
    found = []
    for target in targets:
        if str(target.get("runner") or "") not in names or str(target.get("unit") or unit) != unit:
            continue
        for shape in product(runner, unit, target.get("sizes") or sizes, target.get("variants") or []):
            if any(_meets(each, shape) for each in planned):
                continue
            if shape.size not in sizes:
                reason = f"{runner} plans the sizes {', '.join(map(str, sizes)) or 'none'} ({unit})"
            else:
                known = "; ".join(f"{axis} {', '.join(values)}" for axis, values in axes.items())
                reason = f"{runner} plans at this size: {known or 'no variants'}"
            found.append((shape, reason))
    return found


def _axes(shapes: Iterable[Shape]) -> list[str]:
    return sorted({axis for shape in shapes for axis in shape.variants})


def _meets(shape: Shape, declared: Shape) -> bool:
    return shape.size == declared.size and declared.variants.items() <= shape.variants.items()
