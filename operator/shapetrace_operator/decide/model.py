"""What a decision looks at, the draft it works on, and the plan it ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.status import Condition, ConditionStatus, ConditionType, Failure, Phase, ProfileRunStatus

from shapetrace_operator import conditions
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.objects import Object
from shapetrace_operator.observe import Job, Observed, Pod

_ORDER = (Phase.PENDING, Phase.PREPARING, Phase.CAPTURING, Phase.FINISHING)


@dataclass(frozen=True)
class Plan:
    """What to do, in this order: create, write the status, delete. Then look again after ``wake_seconds``."""

    status: ProfileRunStatus
    create: Object | None = None
    """A Job to create before the status is written: the status then names what exists."""
    delete: Sequence[Job] = ()
    """Jobs to delete after the status is written: it then says why, and which attempt they were."""
    delete_run: bool = False
    wake_seconds: float | None = None


@dataclass(frozen=True)
class Case:
    """Everything a decision about one run depends on."""

    run: Object
    observed: Observed
    now: datetime
    """Aware, in UTC; the only clock."""
    defaults: Defaults

    @property
    def generation(self) -> int | None:
        """Generation of the spec that is decided on."""
        value = self.run["metadata"].get("generation")
        return int(value) if value is not None else None


@dataclass
class Draft:
    """The status as it will be, changed in memory by one policy after another."""

    case: Case
    status: ProfileRunStatus
    create: Object | None = None
    delete: list[Job] = field(default_factory=list)
    delete_run: bool = False
    due: list[datetime] = field(default_factory=list)
    stored: Sequence[Condition] = ()
    """The conditions as they were before this decision."""

    def __post_init__(self) -> None:
        """Keep what is stored: the status is changed in place."""
        self.stored = tuple(self.status.conditions)

    def condition(self, kind: ConditionType, value: ConditionStatus, reason: str, message: str = "") -> datetime:
        """Set a condition; since when it has its status."""
        known = conditions.put(
            self.status,
            kind,
            value,
            reason,
            message,
            now=self.case.now,
            generation=self.case.generation,
            before=self.stored,
        )
        return known.last_transition_time

    def advance(self, phase: Phase) -> None:
        """Move the phase forward; within an attempt it never goes back, whatever a container's state looks like."""
        known = self.status.phase
        if known is None or known not in _ORDER or _ORDER.index(phase) > _ORDER.index(known):
            self.status.phase = phase

    def wake(self, moment: datetime) -> None:
        """Look again then, if nothing happens before."""
        self.due.append(moment)

    def wake_in(self, seconds: float) -> None:
        """Look again after so many seconds."""
        self.wake(self.case.now + timedelta(seconds=seconds))

    def plan(self) -> Plan:
        """The outcome."""
        self.status.reason = conditions.reason(self.status)
        seconds = min(((moment - self.case.now).total_seconds() for moment in self.due), default=None)
        return Plan(
            status=self.status,
            create=self.create,
            delete=tuple(self.delete),
            delete_run=self.delete_run,
            wake_seconds=None if seconds is None else max(0.05, seconds),
        )


@dataclass(frozen=True)
class Attempt:
    """The attempt that a draft is about."""

    draft: Draft
    spec: ProfileRunSpec
    number: int

    @property
    def observed(self) -> Observed:
        """The cluster."""
        return self.draft.case.observed

    @property
    def now(self) -> datetime:
        """The clock."""
        return self.draft.case.now

    @property
    def status(self) -> ProfileRunStatus:
        """The status under work."""
        return self.draft.status

    @property
    def job(self) -> Job | None:
        """The capture Job; None once it has vanished."""
        return self.observed.capture_job(self.number)

    @property
    def pods(self) -> list[Pod]:
        """The capture pods, those gone included."""
        return self.observed.capture_pods(self.number)

    @property
    def retries_used(self) -> int:
        """Failed attempts before this one that count. Told by the Jobs; where none is left, every attempt counts."""
        found = [job.retries for job in self.observed.jobs if job.attempt == self.number and job.retries is not None]
        return max(found, default=self.number - 1)

    def has_passed(self, since: datetime | None, seconds: float) -> bool:
        """Whether so much time is over since then; if not yet, the draft is woken when it is. False without a start."""
        if since is None:
            return False
        end = since + timedelta(seconds=seconds)
        if self.now < end:
            self.draft.wake(end)
        return self.now >= end

    def fail(self, failure: Failure) -> None:
        """Note the first cause; a later one is a consequence and changes nothing."""
        if self.status.failure is None:
            self.status.failure = failure
