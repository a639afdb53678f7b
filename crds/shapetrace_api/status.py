"""``status``: what the operator reports. Bounded by the number of ranks, never by the number of shapes."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints
from shapetrace_contract.message import MAX_MESSAGE_CHARACTERS, shorten
from shapetrace_contract.reasons import RankState, Verdict
from shapetrace_contract.tag import MAX_TAG_BYTES

from shapetrace_api.engine import MAX_RANKS
from shapetrace_api.scalars import MAX_INT32
from shapetrace_api.schema import ApiModel, ListMap

MAX_COUNT = MAX_INT32
MAX_BYTES = 2**53
"""JSON numbers are exact up to here in every reader."""
MAX_URI_CHARACTERS = 1024
"""A key of S3 has at most 1024 bytes."""
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""What is counted from a time (at most 68 years, an int32 of seconds) has to stay within the calendar."""


def _second(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time beyond the calendar") from None
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError("a time that no clock shows")
    return moment.replace(microsecond=0)


Time = Annotated[
    datetime,
    AfterValidator(_second),
    PlainSerializer(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ"), return_type=str, when_used="json"),
]
"""Whole seconds in UTC, as Kubernetes writes times. Cut on the way in, so that what is compared is what is stored."""


def _short(limit: int) -> BeforeValidator:
    """Cut foreign text to the schema's bound: one long message must not make the API server refuse a whole status."""

    def cut(value: Any) -> Any:
        return shorten(value, limit) if isinstance(value, str) else value

    return BeforeValidator(cut)


Message = Annotated[str, _short(MAX_MESSAGE_CHARACTERS), StringConstraints(max_length=MAX_MESSAGE_CHARACTERS)]
RankMessage = Annotated[str, _short(256), StringConstraints(max_length=256)]
ObjectName = Annotated[str, _short(253), StringConstraints(max_length=253)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]


class StatusModel(ApiModel):
    """A part of the status. Assignments are validated like constructions."""

    model_config = ConfigDict(validate_assignment=True)


class Phase(StrEnum):
    """Where a run is; within an attempt it never goes back."""

    PENDING = "Pending"
    PREPARING = "Preparing"
    CAPTURING = "Capturing"
    FINISHING = "Finishing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"


class ConditionType(StrEnum):
    """The steps of a run. Finished is True on every end; GpuEventsRecorded is there only with an accelerator."""

    ACCEPTED = "Accepted"
    STORAGE_READY = "StorageReady"
    SCHEDULED = "Scheduled"
    CAPTURED = "Captured"
    UPLOADED = "Uploaded"
    GPU_EVENTS_RECORDED = "GpuEventsRecorded"
    SUCCEEDED = "Succeeded"
    FINISHED = "Finished"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(StatusModel):
    """One step of the run, in the form of all Kubernetes conditions."""

    type: ConditionType = Field(description="Which step.")
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: Word = Field(description="Why, in one word; the words are listed in the documentation.")
    message: Message = Field(default="", description="Why, for a person, and what to do.")
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(
        default=None, ge=0, le=MAX_BYTES, description="The generation of the spec that the condition speaks of."
    )


class Progress(StatusModel):
    """Counters over all ranks."""

    expected: Count | None = Field(
        default=None, description="Traces that the ranks have planned; absent until every rank has said what it plans."
    )
    captured: Count = Field(default=0, description="Traces that were captured.")
    uploaded: Count = Field(default=0, description="Traces that are stored.")
    failed: Count = Field(default=0, description="Captures that left no trace.")
    bytes: Bytes = Field(default=0, description="Stored bytes, compressed.")
    summary: Annotated[str, StringConstraints(max_length=32)] = Field(
        default="", description="Stored of expected traces, such as '12/32'; '12/?' until the expectation is known."
    )
    ranks_summary: Annotated[str, StringConstraints(max_length=32)] = Field(
        default="", description="Ranks that are done, of all, such as '2/2'."
    )


class RankStatus(StatusModel):
    """One rank."""

    rank: int = Field(ge=0, lt=MAX_RANKS, description="Global rank.")
    node: ObjectName | None = Field(default=None, description="Node on which the rank ran.")
    pod: ObjectName | None = Field(default=None, description="Pod in which the rank ran.")
    state: RankState = Field(
        default=RankState.WAITING,
        description="What the rank is doing: Waiting, Loading, Capturing, Draining, Done, Failed or Lost.",
    )
    expected: Count | None = Field(default=None, description="Traces that the rank plans; absent until it has said so.")
    captured: Count = Field(default=0, description="Traces that were captured.")
    uploaded: Count = Field(default=0, description="Traces that are stored.")
    failed: Count = Field(default=0, description="Captures that left no trace.")
    bytes: Bytes = Field(default=0, description="Stored bytes, compressed.")
    verdict: Verdict | None = Field(
        default=None, description="What the evidence says of the rank; absent until it was judged."
    )
    last_shape: Annotated[str, _short(MAX_TAG_BYTES), StringConstraints(max_length=MAX_TAG_BYTES)] | None = Field(
        default=None, description="Tag of the shape that was captured last."
    )
    message: RankMessage | None = Field(default=None, description="What went wrong on this rank.")
    updated_time: Time | None = Field(default=None, description="When this entry last changed.")


class Manifest(StatusModel):
    """The index of everything that the attempt stored."""

    uri: Annotated[str, StringConstraints(min_length=1, max_length=MAX_URI_CHARACTERS)] = Field(
        description="Address of the manifest, such as 's3://bucket/prefix/…/manifest.json'."
    )
    sha256: Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the manifest's bytes."
    )


class Failure(StatusModel):
    """The first cause of a failure."""

    rank: int | None = Field(
        default=None, ge=0, lt=MAX_RANKS, description="Rank that failed first, where one is known."
    )
    container: Annotated[str, StringConstraints(max_length=63)] | None = Field(
        default=None, description="Container that failed first, where one is known."
    )
    exit_code: int | None = Field(default=None, ge=-255, le=255, description="Its exit code; negative for a signal.")
    reason: Word = Field(description="Why, in one word; the words are listed in the documentation.")
    message: Message = Field(default="", description="Why, for a person, and what to do.")


class ProfileRunStatus(StatusModel):
    """What the operator reports of a run."""

    phase: Phase | None = Field(
        default=None,
        description="Where the run is: Pending, Preparing, Capturing, Finishing, Succeeded, Failed or Suspended.",
    )
    verdict: Verdict | None = Field(
        default=None,
        description="What the evidence says of this attempt: Complete, Partial, Eager, UnderRecorded or Mislabelled; "
        "absent until it was judged.",
    )
    reason: Word | None = Field(
        default=None,
        description="Why the attempt failed or, before it has, what it waits for, in one word; absent where nothing "
        "keeps it from going on. The message is in failure, or in the condition of the same reason.",
    )
    conditions: Annotated[list[Condition], Field(max_length=16), ListMap(("type",))] = Field(
        default=[], description="The steps of the run."
    )
    progress: Progress | None = Field(default=None, description="Counters over all ranks.")
    ranks: Annotated[list[RankStatus], Field(max_length=MAX_RANKS), ListMap(("rank",))] = Field(
        default=[], description="The ranks, one entry each."
    )
    manifest: Manifest | None = Field(default=None, description="The index of everything that this attempt stored.")
    failure: Failure | None = Field(default=None, description="The first cause, where this attempt failed.")
    attempt: int | None = Field(default=None, ge=0, le=MAX_INT32, description="Number of the current attempt, from 1.")
    model: ObjectName | None = Field(
        default=None, description="The first of spec.models: its name on the hub, or the last part of its path."
    )
    start_time: Time | None = Field(default=None, description="When the first attempt was made.")
    capture_time: Time | None = Field(default=None, description="When the engine of this attempt was started.")
    completion_time: Time | None = Field(default=None, description="When the run ended.")
    observed_generation: int | None = Field(
        default=None, ge=0, le=MAX_BYTES, description="The generation of the spec that this status speaks of."
    )
