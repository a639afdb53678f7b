"""Which rank this process is, and what the run asks of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RankId:
    """A global rank and where it stands: ``rank = dp * (tensor * pipeline) + pp * tensor + tp``."""

    rank: int
    tp: int = 0
    pp: int = 0
    dp: int = 0
    ep: int = 0

    def to_json(self) -> dict[str, int]:
        """The fields of ``rank.json``."""
        return asdict(self)


def coordinates(rank: int, parallelism: Mapping[str, int]) -> RankId:
    """Where global rank ``rank`` stands in the run's ``parallelism`` (``tensor``, ``pipeline``, ``expert``, each 1 if
    absent). Experts lie inside tensor parallel groups, as in SGLang."""
    tensor = max(1, int(parallelism.get("tensor", 1)))
    pipeline = max(1, int(parallelism.get("pipeline", 1)))
    expert = max(1, int(parallelism.get("expert", 1)))
    tp = rank % tensor
    return RankId(rank, tp=tp, pp=rank // tensor % pipeline, dp=rank // (tensor * pipeline), ep=tp % expert)


def is_asked(ranks: str | list[int], rank: int) -> bool:
    """Whether ``capture.ranks`` (``All``, ``First`` or a list of global ranks) asks for this rank."""
    if isinstance(ranks, str):
        return ranks != "First" or rank == 0
    return rank in ranks


def has_stacks(stacks: str, ranks: str | list[int], rank: int) -> bool:
    """Whether ``capture.stacks`` (``All``, ``First``, ``None``) wants Python stacks here.

    ``First`` is the first rank that is recorded, so that ``ranks: [2, 3]`` still yields one rank with stacks.
    """
    if stacks == "First":
        return rank == (min(ranks) if isinstance(ranks, list) and ranks else 0)
    return stacks == "All"
