"""``spec``: what a person asks for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from shapetrace_api.capture import Capture
from shapetrace_api.engine import Accelerator, Engine, Model, Parallelism
from shapetrace_api.pod import PodOptions
from shapetrace_api.scalars import MAX_INT32
from shapetrace_api.schema import ApiModel, ListAtomic, Rule, rules
from shapetrace_api.storage import Storage

WEEK_SECONDS = 7 * 24 * 3600
"""The longest wait or run; a queue may hold a run back for days, never for ever."""

IMMUTABLE = (
    "models", "engine", "parallelism", "capture", "accelerator", "storage", "pod", "retries", "pendingTimeoutSeconds",
    "activeDeadlineSeconds", "uploadTimeoutSeconds", "disruptionGraceSeconds",
)  # fmt: skip
"""All but ``suspend`` and ``ttlSecondsAfterFinished``, and ``artifacts``, which has one value so far.

Each is required or has a default, so it is always set and the rules need no ``has()``.
"""


class Artifacts(StrEnum):
    """What becomes of the stored objects when a run is deleted."""

    RETAIN = "Retain"


def _immutable(field: str) -> Rule:
    return Rule(
        f"self.{field} == oldSelf.{field}",
        f"spec.{field} cannot be changed: delete the run and apply it again, or give it another name",
    )


class ProfileRunSpec(ApiModel):
    """What a run captures, with what, and where its traces go."""

    model_config = rules(
        *(_immutable(field) for field in IMMUTABLE),
        Rule(
            "self.engine.name != 'torch' || (self.parallelism.pipeline == 1 && self.parallelism.dataReplicas == 1)",
            "the engine torch is tensor parallel only: leave pipeline and dataReplicas at 1",
        ),
        Rule(
            "self.engine.name != 'torch' || "
            "(self.capture.targets.size() == 1 && self.capture.targets[0].sizes.size() > 0)",
            "the engine torch captures what it is told: give exactly one entry of capture.targets, with sizes",
        ),
        Rule(
            "!has(self.capture.listedRanks) || self.capture.listedRanks.all(rank, "
            "rank < self.parallelism.tensor * self.parallelism.pipeline * self.parallelism.dataReplicas)",
            "capture.listedRanks names a rank that does not exist: ranks count from 0 to the last one of "
            "tensor x pipeline x dataReplicas",
        ),
    )
    models: Annotated[
        list[Model],
        Field(max_length=16),
        ListAtomic(),
        Rule(
            "['target', 'draft', 'tokenizer'].all(role, self.filter(model, model.role == role).size() <= 1)",
            "models holds a role twice: only adapter may be given more than once",
        ),
    ] = Field(default=[], description="The models that the engine loads. None for torch and command.")
    engine: Engine = Field(description="The inference engine whose graph captures are recorded.")
    parallelism: Parallelism = Field(default=Parallelism(), description="How the model is spread over devices.")
    capture: Capture = Field(
        default=Capture(), description="Which shapes are captured, on which ranks, and what a trace records."
    )
    accelerator: Accelerator = Field(description="The devices that the engine runs on.")
    storage: Storage = Field(description="Where traces go.")
    pod: PodOptions = Field(default=PodOptions(), description="How the run's pods are placed and what they may use.")
    suspend: bool = Field(
        default=False,
        description="Stop the run and free its devices. What was stored stays; resuming starts the next attempt.",
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=10,
        description="Attempts after a failed one. Disruptions by the cluster do not count.",
    )
    pending_timeout_seconds: int = Field(
        default=1800,
        ge=1,
        le=WEEK_SECONDS,
        description="How long the engine may take to be started, from creation or from the end of a suspension.",
    )
    active_deadline_seconds: int = Field(
        default=3600, ge=1, le=WEEK_SECONDS, description="How long an attempt may take from the start of the engine."
    )
    upload_timeout_seconds: int = Field(
        default=300,
        ge=1,
        le=86_400,
        description="How long uploads are tried after the engine has stopped, while devices are held.",
    )
    disruption_grace_seconds: int = Field(
        default=60,
        ge=10,
        le=3600,
        description="What a pod that is deleted or evicted gets to store what it has captured.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INT32,
        description="Delete the run this long after its end; never where absent. Stored objects stay.",
    )
    artifacts: Artifacts = Field(
        default=Artifacts.RETAIN,
        description="What becomes of the stored objects when the run is deleted: Retain keeps them.",
    )
