"""From the finish's result to the end of an attempt: success is decided from the manifest, never from exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from shapetrace_api.status import ConditionStatus, ConditionType, Failure, Manifest, RankStatus
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import GOOD_VERDICTS, RankState, Reason, Verdict

from shapetrace_operator import conditions
from shapetrace_operator.decide import ranks, steps
from shapetrace_operator.decide.finish import Result
from shapetrace_operator.decide.model import Attempt

_CONSEQUENCES = (Reason.POD_LOST.value, Reason.STOPPED.value)
"""What the operator sees where the true cause died with the pod; the manifest may know better."""
_JUDGEMENTS = tuple(verdict.value for verdict in Verdict)
"""What the finish says where it knows no cause: that something is missing, which any other cause explains."""


def apply(attempt: Attempt, result: Result | None) -> bool:
    """Take the result into the status; whether the attempt succeeded. ``result`` None: there was nothing to finish."""
    status = attempt.status
    if result is not None and result.verdict is not None:
        status.verdict = result.verdict
        status.manifest = Manifest(uri=result.uri, sha256=result.sha256)
        _ranks(attempt, result)
        _cause(attempt, result)
        _gpu_events(attempt, result)
        good = result.verdict in GOOD_VERDICTS and not _not_proven(attempt, result)
        if good:
            status.failure = None
        _counted(attempt, good)
        return good
    if result is not None and result.reason is Reason.FINISH_FAILED:
        # what the run has captured may be in the bucket, but nothing vouches for it
        status.failure = ranks.failure(Reason.FINISH_FAILED, result.message)
    elif result is not None and result.reason is not None:
        attempt.fail(ranks.failure(result.reason, result.message))
    ranks.end(attempt.draft, steps.lost_state(attempt.pods))
    _counted(attempt, False)
    return False


def _gpu_events(attempt: Attempt, result: Result) -> None:
    """Of runs with a GPU only; it tells of what may be recorded later, so no run fails by it."""
    if result.gpu_events is not None:
        is_good, message = result.gpu_events
        value = ConditionStatus.TRUE if is_good else ConditionStatus.FALSE
        reason = conditions.KERNELS_SEEN if is_good else conditions.KERNELS_MISSING
        attempt.draft.condition(ConditionType.GPU_EVENTS_RECORDED, value, reason, message)


def _not_proven(attempt: Attempt, result: Result) -> bool:
    said = (result.failure or {}).get("reason") == Reason.NOT_PROVEN.value
    strict = attempt.spec.capture.strict and result.verdict is Verdict.EAGER
    if strict and not said:
        message = "capture.strict is set, and no graph was captured (Eager): nothing is proven"
        attempt.status.failure = ranks.failure(Reason.NOT_PROVEN, message)
    return said or strict


def _cause(attempt: Attempt, result: Result) -> None:
    known, given = attempt.status.failure, _failure(result.failure)
    if given is None or given.reason == Reason.DONE.value:
        return
    if known is None or (known.reason in _CONSEQUENCES and given.reason not in (*_CONSEQUENCES, *_JUDGEMENTS)):
        attempt.status.failure = given


def _failure(given: Mapping[str, Any] | None) -> Failure | None:
    if not given:
        return None
    fields = {name: given.get(name) for name in ("rank", "container", "exitCode", "reason", "message")}
    if given.get("signal") and fields["exitCode"] is None:
        fields["exitCode"] = -int(given["signal"]) if isinstance(given["signal"], int) else None
    try:
        return Failure.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError:
        return ranks.failure(Reason.ENGINE_FAILED, shorten(str(given.get("message") or given)))


def _ranks(attempt: Attempt, result: Result) -> None:
    known = {entry.rank: entry for entry in attempt.status.ranks}
    for rank in range(attempt.spec.parallelism.ranks):
        entry = known.get(rank) or RankStatus(rank=rank)
        row = result.ranks.get(rank)
        if row is None and not result.rest:
            continue
        judged = {**(row or {"verdict": Verdict.COMPLETE.value})}
        if row is None and entry.expected is not None:
            # Complete: everything that was planned is stored, whatever the last counter said
            judged.update(captured=entry.expected, uploaded=entry.expected, failed=0)
        try:
            new = RankStatus.model_validate({**entry.to_dict(), **judged})
        except ValidationError:
            continue
        if new.verdict in GOOD_VERDICTS:
            new.state = RankState.DONE
        new.updated_time = attempt.now if new.to_dict() != entry.to_dict() else entry.updated_time
        known[rank] = new
    ranks.put(attempt.draft, known.values())
    ranks.end(attempt.draft, steps.lost_state(attempt.pods))


def _counted(attempt: Attempt, good: bool) -> None:
    """Captured and Uploaded as they ended."""
    draft, status, progress = attempt.draft, attempt.status, attempt.status.progress
    reason = status.failure.reason if status.failure else (str(status.verdict) if status.verdict else conditions.ENDED)
    expected = progress.expected if progress else None
    counts = {
        ConditionType.CAPTURED: (progress.captured if progress else 0, conditions.CAPTURED),
        ConditionType.UPLOADED: (progress.uploaded if progress else 0, conditions.UPLOADED),
    }
    for kind, (count, word) in counts.items():
        reached = expected is not None and count >= expected and (expected > 0 or good)
        value = ConditionStatus.TRUE if reached else ConditionStatus.FALSE
        message = f"{count} of {expected}" if expected is not None else f"{count}" if count else ""
        draft.condition(kind, value, word if reached else reason, message)
    for kind in (ConditionType.SCHEDULED, ConditionType.STORAGE_READY):
        known = conditions.get(status, kind)
        if known is None or known.status is ConditionStatus.UNKNOWN:
            draft.condition(kind, ConditionStatus.FALSE, reason)
