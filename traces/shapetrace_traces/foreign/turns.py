"""Captures of one size by their order: which variant is which, where the engine's version leaves one reading only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapetrace_traces.foreign.captures import Capture

UNNAMED = "variant"
"""Axis of captures that are known to be different ones, of what kind is not: ``variant-1`` was captured first."""
_SOURCE = "SGLang 0.5.18 to 0.5.21, srt/model_executor/runner/decode_cuda_graph_runner.py: "


@dataclass(frozen=True)
class Order:
    """What SGLang 0.5.18 to 0.5.21 captures at each size, in this order."""

    axis: str
    values: tuple[str, ...]
    source: str


ATTENTION = Order("attention", ("dense", "sparse"), _SOURCE + "dense, then sparse, on ROCm only")
LORA = Order("lora", ("lora", "nolora"), _SOURCE + "lora, then nolora, of the UNO runner only")


@dataclass(frozen=True)
class Turn:
    """One capture among those of its size."""

    variants: Mapping[str, str]
    is_distinct: bool
    """Whether its operators or launches differ from those of each other capture of its size."""
    evidence: str


def name_turns(captures: Mapping[str, Capture], turns: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, Turn]:
    """Key -> variants, for the captures of one runner and rank that slipped labels name.

    A value is named only where the operators set the first captures apart from the second ones at every size: then
    the order says which of two known values it is. Otherwise the axis stays without a name.
    """
    each = max(turns.values()) + 1
    steps = [captures[key].step for key in turns]
    in_order = _is_in_order([(step, turns[key]) for key, step in zip(turns, steps, strict=True)], sizes, list(turns))
    apart = _are_apart(captures, turns, sizes)
    order = _order(list(captures.values()), each) if in_order and apart else None
    found = {}
    for key, turn in turns.items():
        distinct = _is_distinct(captures, key, sizes)
        ordinal = f"capture {turn + 1} of {each} at its size"
        if order is None:
            found[key] = Turn({UNNAMED: str(turn + 1)}, distinct, ordinal)
        else:
            text = f"its operators differ from the other's; {ordinal}: {order.source}"
            found[key] = Turn({order.axis: order.values[turn]}, True, text)
    return found


def _order(captures: Sequence[Capture], each: int) -> Order | None:
    runners = {capture.runner or "" for capture in captures}
    if each != 2 or len(runners) != 1:
        return None
    if runners.pop().startswith("Uno"):
        return LORA
    # on CUDA two values would be two of the candidate_*, which depend on the model
    return ATTENTION if {capture.device for capture in captures} <= {"rocm", "cpu"} else None


def _is_in_order(steps: Sequence[tuple[int | None, int]], sizes: Mapping[str, int], keys: Sequence[str]) -> bool:
    """Whether the profiler's own steps, where they are told, rise as the captures should follow each other."""
    if any(step is None for step, _ in steps):
        return True
    expected = sorted(range(len(keys)), key=lambda place: (-sizes[keys[place]], steps[place][1]))
    told = sorted(range(len(keys)), key=lambda place: steps[place][0] or 0)
    return expected == told


def _are_apart(captures: Mapping[str, Capture], turns: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Whether the captures of each turn differ from those of the others, size by size, and never change places."""
    by_turn: dict[int, set[object]] = {}
    for key, turn in turns.items():
        by_turn.setdefault(turn, set()).add(captures[key].signature[0])
    sequences = list(by_turn.values())
    crossed = any(left & right for number, left in enumerate(sequences) for right in sequences[:number])
    if not crossed:
        return True
    # equal operators: the launches may still tell them apart, each size by itself and always the same way round
    ways = set()
    for size in {sizes[key] for key in turns}:
        own = sorted((turns[key], captures[key].launches) for key in turns if sizes[key] == size)
        counts = [launches for _, launches in own]
        if len(own) < len(by_turn):
            continue
        if None in counts or len(set(counts)) < len(counts):
            return False
        ways.add(tuple(sorted(range(len(counts)), key=lambda place: counts[place] or 0)))
    return len(ways) == 1


def _is_distinct(captures: Mapping[str, Capture], key: str, sizes: Mapping[str, int]) -> bool:
    own = captures[key].signature
    others = [captures[other].signature for other in sizes if other != key and sizes[other] == sizes[key]]
    return all(other != own for other in others)
