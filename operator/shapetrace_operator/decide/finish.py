"""The finish of an attempt: a Job that commits it, made again as f2 and f3 where no answer can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from shapetrace_api.status import MAX_URI_CHARACTERS, ConditionStatus, ConditionType
from shapetrace_contract import names
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Reason, Verdict, exit_code

from shapetrace_operator import conditions
from shapetrace_operator.build.finish import finish_job
from shapetrace_operator.decide import blockers
from shapetrace_operator.decide.attempts import REFUSED_RETRY_SECONDS
from shapetrace_operator.decide.model import Attempt
from shapetrace_operator.observe import Container, Job, Refusal

MAX_FINISHES = 3
"""Each may take as long as the uploads: what did not pass by itself in that time needs a person."""


@dataclass(frozen=True)
class Result:
    """How the finish of an attempt ended."""

    verdict: Verdict | None = None
    """None: there is no manifest."""
    uri: str = ""
    sha256: str = ""
    failure: Mapping[str, Any] | None = None
    """The first cause, as the manifest has it."""
    ranks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Rank -> its counters and verdict."""
    rest: bool = False
    """Ranks that are not named are Complete."""
    eager: str = ""
    """Why there are no graphs, where the verdict is Eager."""
    note: str = ""
    """Places that captured graphs outside the hooks, in words."""
    gpu_events: tuple[bool, str] | None = None
    """Whether the profiler still saw kernels after the captures, and what is to be said of it."""
    reason: Reason | None = None
    """Without a manifest: why."""
    message: str = ""


def decide(attempt: Attempt) -> Result | None:
    """The result, or None while a finish is under way; makes the next one where it is needed."""
    result = _read(attempt)
    if result is not None:
        return result
    jobs = attempt.observed.finish_jobs(attempt.number)
    last = jobs[-1] if jobs else None
    if last is not None and not last.over:
        _show_blocker(attempt, last)
        return None
    number = last.number if last is not None else 0
    if number >= MAX_FINISHES:
        why = last.failed if last is not None and last.failed else "no answer could be read"
        return Result(reason=Reason.FINISH_FAILED, message=_last_words(attempt) or why)
    refusal = attempt.observed.refusal
    if refusal is not None:
        return _refused(attempt, refusal)
    case = attempt.draft.case
    attempt.draft.create = finish_job(
        case.run, attempt.spec, attempt.number, number + 1, attempt.retries_used, case.defaults, _image_id(attempt)
    )
    return None


def _image_id(attempt: Attempt) -> str:
    """The engine's image with its digest, of any pod whose kubelet told; empty where none did."""
    pods = attempt.observed.capture_pods(attempt.number)
    return next((found for pod in pods if (found := pod.container(names.CONTAINER_ENGINE).image_id)), "")


def _show_blocker(attempt: Attempt, job: Job) -> None:
    """A finish that cannot start says why; its Job's deadline ends the wait."""
    pods = [pod for pod in attempt.observed.finish_pods(attempt.number) if pod.job == job.uid]
    blocker = blockers.of_job(job, pods, attempt.observed.events)
    known = conditions.get(attempt.status, ConditionType.SUCCEEDED)
    if known is None or known.reason == Reason.SUSPENDED.value:
        return
    if job.suspended:
        # its deadline does not count meanwhile, so nothing but this message tells
        message = f"the finish waits: its Job {job.name} is suspended by a queue or by hand"
        attempt.draft.condition(ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, conditions.HELD_BACK, message)
    elif blocker is not None:
        message = f"the finish waits: {blocker.message}"
        attempt.draft.condition(ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, blocker.reason.value, message)
    elif known.reason != conditions.WAITING:
        attempt.draft.condition(ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, conditions.WAITING)


def _refused(attempt: Attempt, refusal: Refusal) -> Result | None:
    """The API server did not take the finish Job: tried again within the time that all of the run may take."""
    status, spec = attempt.status, attempt.spec
    since = status.capture_time or status.start_time or attempt.now
    limit_seconds = spec.pending_timeout_seconds + spec.active_deadline_seconds + spec.upload_timeout_seconds
    if refusal.status in (400, 422) or attempt.now >= since + timedelta(seconds=limit_seconds):
        return Result(reason=Reason.FINISH_FAILED, message=f"the finish Job is refused: {refusal.message}")
    attempt.draft.wake_in(REFUSED_RETRY_SECONDS)
    return None


def _read(attempt: Attempt) -> Result | None:
    for container in _containers(attempt):
        if container.ended and container.exit_code == 0:
            result = parse(container.message)
            if result is not None:
                return result
        if container.ended and container.exit_code == exit_code(Reason.NOTHING_TO_FINISH):
            return Result(reason=Reason.NOTHING_TO_FINISH, message="the attempt never got as far as its claim")
    return None


def _containers(attempt: Attempt) -> list[Container]:
    return [pod.container(names.CONTAINER_FINISH) for pod in attempt.observed.finish_pods(attempt.number)]


def _last_words(attempt: Attempt) -> str:
    said = [container.termination for container in _containers(attempt)]
    words = [f"{item.reason}: {item.message}" for item in said if item is not None]
    return words[-1] if words else ""


def parse(text: str) -> Result | None:
    """Read the finish's termination message; None for anything that is none."""
    try:
        value = json.loads(text)
        rows = [_row(row) for row in value.get("ranks") or []]
        digest, failure = str(value["sha256"]), value.get("failure")
        uri = shorten(str(value["uri"]), MAX_URI_CHARACTERS)
        if not re.fullmatch("[0-9a-f]{64}", digest) or not uri or not (failure is None or isinstance(failure, dict)):
            return None
        return Result(
            verdict=Verdict(value["verdict"]),
            uri=uri,
            sha256=digest,
            failure=failure,
            ranks={row["rank"]: row for row in rows},
            rest=bool(value.get("rest")),
            eager=_words(value.get("eager")),
            note=_words(value.get("note")),
            gpu_events=_gpu_events(value.get("gpuEvents")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _gpu_events(value: Any) -> tuple[bool, str] | None:
    if not isinstance(value, dict) or not isinstance(value.get("ok"), bool):
        return None
    return value["ok"], _words(value.get("message"))


def _words(value: Any) -> str:
    return shorten(value) if isinstance(value, str) else ""


def _row(row: Any) -> dict[str, Any]:
    columns = ("rank", "expected", "captured", "uploaded", "failed", "bytes", "verdict")
    values = dict(zip(columns, row, strict=True))
    if not isinstance(values["rank"], int):
        raise ValueError("a rank is a number")
    return {name: value for name, value in values.items() if value is not None}
