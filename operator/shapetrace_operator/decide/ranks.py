"""Ranks and counters of the status. ``expected`` is absent until a rank has written its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from shapetrace_api.status import MAX_BYTES, MAX_COUNT, Failure, Progress, RankStatus
from shapetrace_contract.message import shorten
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.reasons import RankState, Reason

from shapetrace_operator.decide.model import Draft

ENDED = (RankState.DONE, RankState.FAILED, RankState.LOST)


def failure(reason: Reason, message: str, **details: Any) -> Failure:
    """A first cause."""
    return Failure(reason=reason.value, message=message, **details)


def update(draft: Draft, progress: Mapping[int, RankProgress], count: int) -> None:
    """Take the counters that the pods gave; a rank that says nothing keeps what it has."""
    known = {entry.rank: entry for entry in draft.status.ranks}
    entries = []
    for rank in range(count):
        entry = known.get(rank) or RankStatus(rank=rank)
        given = progress.get(rank)
        entries.append(_merge(entry, given, draft.case.now) if given is not None else entry)
    put(draft, entries)


def _merge(entry: RankStatus, given: RankProgress, now: datetime) -> RankStatus:
    """What a collector says is foreign text: what does not fit the schema is left out, not written."""
    values = {**given.to_json(), "rank": entry.rank}
    values.pop("verdict", None)
    values.pop("updatedTime", None)
    if values.get("message"):
        values["message"] = shorten(str(values["message"]), 256)
    try:
        new = RankStatus.model_validate({**entry.to_dict(), **values})
    except ValidationError:
        return entry
    if new.to_dict() == entry.to_dict():
        return entry
    new.updated_time = now
    return new


def put(draft: Draft, entries: Iterable[RankStatus]) -> None:
    """Set the ranks and the counters that follow from them."""
    ranks = sorted(entries, key=lambda entry: entry.rank)
    draft.status.ranks = ranks
    expected = _total(entry.expected for entry in ranks) if ranks else None
    uploaded = _sum(entry.uploaded for entry in ranks)
    done = sum(entry.state is RankState.DONE for entry in ranks)
    draft.status.progress = Progress(
        expected=expected,
        captured=_sum(entry.captured for entry in ranks),
        uploaded=uploaded,
        failed=_sum(entry.failed for entry in ranks),
        bytes=_sum((entry.bytes for entry in ranks), MAX_BYTES),
        summary=f"{uploaded}/{'?' if expected is None else expected}",
        ranks_summary=f"{done}/{len(ranks)}",
    )


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if any(count is None for count in known) else _sum(count or 0 for count in known)


def _sum(counts: Iterable[int], most: int = MAX_COUNT) -> int:
    """A sum that the schema holds, whatever the single counters claim."""
    return min(sum(counts), most)


def end(draft: Draft, state: RankState) -> None:
    """Nothing runs any more: ranks that were not done get ``state``, the one that failed first is Failed."""
    first = draft.status.failure.rank if draft.status.failure else None
    entries = []
    for entry in draft.status.ranks:
        if entry.state in ENDED:
            entries.append(entry)
            continue
        changes = {"state": RankState.FAILED if entry.rank == first else state, "updated_time": draft.case.now}
        entries.append(entry.model_copy(update=changes))
    put(draft, entries)
