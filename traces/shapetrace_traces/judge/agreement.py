"""Whether ranks that should plan alike do: one that planned less than its peers kept its plan, and lost shapes. Pure.

Ranks of one pipeline stage run the same layers, so they capture the same shapes, whatever tensor or expert part or data
replica they are. Stages may differ: a draft model lives on the last one only. Runners may differ too, so a shape counts
as lost only where the rank planned others of its runner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shapetrace_contract.message import shorten

from shapetrace_traces.judge.evidence import runner_of
from shapetrace_traces.judge.ranks import eager_reason, planned_tags, unread_lines

SHOWN = 3
"""Tags and ranks that a text names."""
MAX_CHARACTERS = 240
"""Of the tags that a text names: three of the longest would not fit into a message."""


def find_disagreements(parts: Mapping[int, Mapping[str, Any]]) -> dict[int, list[str]]:
    """Rank -> what it did not plan though its peers did. ``parts`` are those of the ranks that the run asks for.

    A rank whose plan is not known to be whole (it died, went wrong, or left a line that cannot be read) is no peer: it
    is Partial by itself.
    """
    stages: dict[int | None, dict[int, set[str]]] = defaultdict(dict)
    for rank, part in sorted(parts.items()):
        plan = set(planned_tags(part))
        if _is_whole(part) and (plan or eager_reason(part) is not None):
            stages[_stage(part)][rank] = plan
    found: dict[int, list[str]] = {}
    for plans in stages.values():
        if any(plan != next(iter(plans.values())) for plan in plans.values()):
            found.update(_compare(plans))
    return found


def _is_whole(part: Mapping[str, Any]) -> bool:
    done = part.get("done")
    return isinstance(done, Mapping) and done.get("ok") is True and not unread_lines(part)


def _stage(part: Mapping[str, Any]) -> int | None:
    record = part.get("record")
    stage = record.get("pp") if isinstance(record, Mapping) else None
    return stage if isinstance(stage, int) and not isinstance(stage, bool) else None


def _compare(plans: Mapping[int, set[str]]) -> dict[int, list[str]]:
    by_runner: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for rank, plan in plans.items():
        for tag in plan:
            by_runner[runner_of(tag)][rank].add(tag)
    found: dict[int, list[str]] = defaultdict(list)
    for _, planned in sorted(by_runner.items()):
        everywhere = set().union(*planned.values())
        for rank, own in planned.items():
            absent = sorted(everywhere - own)
            if absent:
                holders = [other for other, theirs in planned.items() if not theirs.isdisjoint(absent)]
                found[rank].append(f"did not plan {_listed(absent)}, which {_named(holders)} did")
    captured = [rank for rank, plan in plans.items() if plan]
    most = max(len(plan) for plan in plans.values())
    for rank in plans.keys() - set(captured):
        found[rank].append(f"planned no graph, though {_named(captured)} planned {most}")
    return found


def _listed(tags: Sequence[str]) -> str:
    return shorten(", ".join(tags[:SHOWN]), MAX_CHARACTERS) + _more(tags)


def _named(ranks: Iterable[int]) -> str:
    every = sorted(ranks)
    return f"rank{'s' if len(every) > 1 else ''} {', '.join(map(str, every[:SHOWN]))}{_more(every)}"


def _more(items: Sequence[Any]) -> str:
    return f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
