"""What the operator tells the containers of a run, one JSON object per environment variable.

Readers ignore unknown fields, so that an operator may be newer than a payload.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from shapetrace_contract import VERSION, names

T = TypeVar("T", bound="_Setting")


class SettingError(ValueError):
    """An environment variable of ours is missing or cannot be read; the message names it."""


@dataclass(frozen=True)
class _Setting:
    ENV: ClassVar[str]

    def to_env(self) -> str:
        """The value of the environment variable :attr:`ENV`."""
        return json.dumps({"v": VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_env(cls: type[T], environment: Mapping[str, str]) -> T:
        """Read the setting; :class:`SettingError` names the variable and the fault."""
        text = environment.get(cls.ENV)
        if text is None:
            raise SettingError(f"{cls.ENV} is not set")
        try:
            value = json.loads(text)
            known = {item.name for item in fields(cls)}
            return cls(**{key: content for key, content in value.items() if key in known})
        except (ValueError, TypeError, AttributeError) as error:
            raise SettingError(f"{cls.ENV} cannot be read: {error}") from None


@dataclass(frozen=True)
class RunId(_Setting):
    """One attempt of one ProfileRun."""

    ENV: ClassVar[str] = names.ENV_RUN
    namespace: str
    name: str
    uid: str
    attempt: int = 1


@dataclass(frozen=True)
class StoreSettings(_Setting):
    """Where objects go. Credentials come by the usual AWS variables or the pod's own identity, never from here."""

    ENV: ClassVar[str] = names.ENV_STORE
    kind: str = "s3"
    """``s3`` or ``folder``."""
    path: str = ""
    """Folder, for ``folder`` only."""
    bucket: str = ""
    prefix: str = ""
    endpoint: str = ""
    """URL of an S3-compatible store; empty means the provider's own."""
    region: str = ""
    pathStyle: bool = False  # noqa: N815 - the spelling of the API
    caBundle: str = ""  # noqa: N815
    """Path of a PEM file in the container; empty means the system's."""
    sse: str = ""
    """``AES256``, ``aws:kms`` or empty."""
    sseKmsKeyId: str = ""  # noqa: N815


@dataclass(frozen=True)
class CaptureSettings(_Setting):
    """What the hook records."""

    ENV: ClassVar[str] = names.ENV_CAPTURE
    ranks: str | list[int] = "All"
    """``All``, ``First`` or a list of global ranks."""
    stacks: str = "First"
    """Python stacks on ``All`` ranks, on the ``First`` or on ``None``."""
    recordShapes: bool = True  # noqa: N815
    flops: bool = False
    memory: bool = False
    roomWaitSeconds: int = 30  # noqa: N815
    """How long a capture waits for room in the spool before it is lost; well below the 300 s and more after which
    engines take a silent rank for dead."""
    targets: list[dict[str, Any]] = field(default_factory=list)
    """``spec.capture.targets``: they configure the engine, and assert or filter variants."""
    strict: bool = False
    """For the finish: a run without graphs, or with a label that is not proven (size) and proven or distinct
    (variants), fails as ``NotProven``."""


@dataclass(frozen=True)
class EngineSettings(_Setting):
    """What the launcher starts."""

    ENV: ClassVar[str] = names.ENV_ENGINE
    name: str = "torch"
    """``sglang``, ``vllm``, ``torch`` or ``command``."""
    args: list[str] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    parallelism: dict[str, int] = field(default_factory=dict)
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``rocm``: what the accelerator of the run is reached by."""

    @property
    def ranks(self) -> int:
        """Global ranks of the run: tensor x pipeline x data replicas."""
        world = 1
        for axis in ("tensor", "pipeline", "dataReplicas"):
            world *= int(self.parallelism.get(axis, 1))
        return world


@dataclass(frozen=True)
class ImageSettings(_Setting):
    """For the finish: the image that the engine ran in. Not set where the engine had none."""

    ENV: ClassVar[str] = names.ENV_IMAGE
    reference: str = ""
    """As the pod asked for it."""
    id: str = ""
    """As the kubelet resolved it: a reference with a digest, or the digest alone."""


@dataclass(frozen=True)
class Limits(_Setting):
    """Time limits of one attempt, in seconds."""

    ENV: ClassVar[str] = names.ENV_LIMITS
    uploadTimeoutSeconds: int = 300  # noqa: N815
    """From ``stopped.json`` on: how long the launcher waits for the drain, and the collector keeps trying."""
    disruptionGraceSeconds: int = 60  # noqa: N815
    """The pod's terminationGracePeriodSeconds."""
    activeDeadlineSeconds: int = 3600  # noqa: N815
