"""``manifest.json``: the index of an attempt. Every object that it lists was stored before it; its existence commits.

It holds no clock reading and depends on parts and objects alone, so that writing it again gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from shapetrace_contract.reasons import Verdict


def _spelling(name: str) -> str:
    """Camel case; ``bytes`` cannot be an attribute beside its own type, so it has another name in Python."""
    return "bytes" if name == "stored_bytes" else to_camel(name)


class _Model(BaseModel):
    """Camel case in JSON; fields that a newer writer added are ignored."""

    model_config = ConfigDict(
        alias_generator=_spelling, populate_by_name=True, extra="ignore", frozen=True, allow_inf_nan=False
    )


class ManifestRun(_Model):
    """The attempt that the manifest commits."""

    namespace: str
    name: str
    uid: str
    attempt: int


class ManifestImage(_Model):
    """The engine's image."""

    reference: str
    """As the pod asked for it."""
    digest: str | None = None
    """``sha256:…`` of what the kubelet ran; None where nobody said."""


class ManifestModel(_Model):
    """A model that the engine loaded."""

    role: str = "target"
    """``target``, ``draft``, ``adapter`` or ``tokenizer``."""
    name: str | None = None
    """As the hub calls it; the last part of a path, or of the path inside a claim; of a whole claim the claim's."""
    source: str | None = None
    """``hub``, ``pvc`` or ``path``."""
    revision: str | None = None
    """As the run asked for it."""
    resolved_revision: str | None = None
    """The commit that it was; None where nobody knows, as of a folder that is no snapshot of the hub's."""


class ManifestEngine(_Model):
    """What ran. Of the arguments only those on a list: others may name what the bucket's readers need not know."""

    name: str
    version: str | None = None
    """The engine's own, as the ranks found it."""
    image: ManifestImage | None = None
    weights: Literal["dummy", "real"] | None = None
    """``dummy`` are random; None where nobody can tell, as of a program of the user's."""
    arguments: dict[str, str] = Field(default_factory=dict)
    """Option -> value as given, empty for a switch."""
    configuration: dict[str, list[str]] = Field(default_factory=dict)
    """Field of the engine's resolved configuration -> each value that a rank had, as JSON: only those that decide how
    it computes and captures (docs/contract.md). Empty where the engine has none that is known."""
    device: str | None = None
    """``cpu``, ``cuda`` or ``rocm``."""
    models: list[ManifestModel] = Field(default_factory=list)
    parallelism: dict[str, int] = Field(default_factory=dict)


class ManifestSoftware(_Model):
    """What the processes and the traces say of the machine."""

    gpus: dict[str, int] = Field(default_factory=dict)
    """Name -> the most that one trace saw."""
    versions: dict[str, list[str]] = Field(default_factory=dict)
    """torch, cuda, hip, driver, nccl, rccl, python, deviceName, deviceArchitecture (``gfx950…``, ``sm_90``), packages
    that compute (triton, aiter, flashinfer-python, …) and what traces tell (``hip_runtime_version``, …) -> each value
    that was seen."""
    tracers: dict[str, list[str]] = Field(default_factory=dict)
    """Loaded library of a GPU tracer (roctracer, rocprofiler, CUPTI) -> whose folder it was from: ``torch``,
    ``package`` (another Python package) or ``system``; ``system, torch`` where one process has it twice."""
    environment: dict[str, list[str]] = Field(default_factory=dict)
    """Variable of the engine's processes -> values, of those on a list (docs/contract.md)."""


class ManifestCoverage(_Model):
    """What is there of one runner's plan, over all ranks."""

    runner: str
    planned: int
    delivered: int
    additional: int = 0
    """Captures beyond the plan."""
    contradicted: int = 0
    duplicates: int = 0
    missing: list[str] = Field(default_factory=list)
    """``rank 3: <tag>``, the first 100."""


class TraceContent(_Model):
    """A few numbers of the trace's index (docs/trace-index.md)."""

    windows: int | None = None
    window_microseconds: list[tuple[float, float]] = Field(default_factory=list)
    """Begin and end of each, after the base time; the first 64."""
    profiler_steps: list[int] = Field(default_factory=list)
    launches_in_windows: int | None = None
    nodes_in_windows: int | None = None
    gpu_in_windows: int | None = None
    sequence_sha256: str | None = None
    kernel_sequence_sha256: str | None = None
    """Of the kernels that were launched in the windows; None where the tracer does not name them (CUDA)."""
    stacks_share: float | None = None
    flags: list[str] = Field(default_factory=list)
    world_size: int | None = None
    trace_id: str | None = None
    base_time_nanoseconds: int | None = None


class Support(_Model):
    """How well a label is supported."""

    size: str
    """``proven``, ``consistent``, ``contradicted``, or ``unproven`` for a trace that tells nothing."""
    variants: dict[str, str] = Field(default_factory=dict)
    """Axis -> ``proven``, ``distinct``, ``unproven`` or ``contradicted``."""


class ManifestTrace(_Model):
    """One stored trace. ``key`` is relative to the attempt's folder."""

    seq: int | None = None
    """The rank's captures are counted from 0, in the order in which they were made."""
    key: str
    sha256: str
    """Hexadecimal, of the stored bytes."""
    stored_bytes: int
    raw_sha256: str | None = None
    raw_bytes: int | None = None
    tag: str
    alias: str | None = None
    """The name of SGLang's own trace of it (from 0.5.22 on), for tools that parse names; never read back. None where
    several traces would have it, and of other engines."""
    shape: dict[str, Any]
    rank: int
    stage: str = "capture"
    epoch: int = 1
    graph: bool | None = None
    """Whether a GPU graph was captured; None where nobody said."""
    device: str | None = None
    support: Support
    evidence: list[str] = Field(default_factory=list)
    """What the support rests on, ``size`` first, then each axis."""
    witnesses: dict[str, Any] = Field(default_factory=dict)
    dirty: list[str] = Field(default_factory=list)
    times_seconds: dict[str, float] = Field(default_factory=dict)
    """What each step of the capture took: ``room`` (waiting for it in the spool), ``start`` (of the profiler),
    ``window`` (the capture itself), ``stop``, ``save``. Empty where no part tells them."""
    duplicates: list[str] = Field(default_factory=list)
    """Keys of the traces that are the same recording."""
    content: TraceContent | None = None
    """None where the trace was not indexed."""


class GpuEvents(_Model):
    """Whether the profiler still saw kernels after the captures: of so many that were launched for it."""

    launched: int
    seen: int
    error: str | None = None


class ManifestRank(_Model):
    """One rank's place, counters and verdict. Counters are None where no part tells them."""

    rank: int
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    node: str | None = None
    expected: int | None = None
    captured: int = 0
    uploaded: int = 0
    failed: int = 0
    stored_bytes: int = 0
    verdict: Verdict
    reasons: list[str] = Field(default_factory=list)
    eager: str | None = None
    """Why there are no graphs, by the user's or the engine's choice."""
    gpu_events: GpuEvents | None = None
    """None where the rank used no GPU, or nobody asked."""


class ManifestLost(_Model):
    """A capture whose trace is not stored."""

    rank: int
    tag: str
    stage: str = "capture"
    epoch: int = 1
    error: str
    dirty: list[str] = Field(default_factory=list)


class Failure(_Model):
    """The first cause of a bad end."""

    reason: str
    message: str = ""
    rank: int | None = None
    exit_code: int | None = None


class Untagged(_Model):
    """A place that captured graphs and that no hook covers."""

    caller: str
    ranks: list[int]


class NotPlanned(_Model):
    """A declared shape that the engine does not capture, and why."""

    shape: dict[str, Any] | str | None
    reason: str
    ranks: list[int]


class Manifest(_Model):
    """Version 1."""

    v: Literal[1] = 1
    run: ManifestRun
    verdict: Verdict
    expected: int | None = None
    """None until every rank has a plan."""
    captured: int = 0
    uploaded: int = 0
    failed: int = 0
    stored_bytes: int = 0
    digest: str
    """:func:`digest` of the traces."""
    engine: ManifestEngine
    software: ManifestSoftware = Field(default_factory=ManifestSoftware)
    coverage: list[ManifestCoverage] = Field(default_factory=list)
    ranks: list[ManifestRank] = Field(default_factory=list)
    traces: list[ManifestTrace] = Field(default_factory=list)
    lost: list[ManifestLost] = Field(default_factory=list)
    failure: Failure | None = None
    untagged: list[Untagged] = Field(default_factory=list)
    reasons: list[str] = Field(default_factory=list)
    not_planned: list[NotPlanned] = Field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The stored form: the same value gives the same bytes."""
        value = self.model_dump(mode="json", by_alias=True)
        return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Manifest:
        """Read ``manifest.json``; pydantic's ValidationError (a ValueError) where it is none."""
        return cls.model_validate_json(body)


def manifest_fault(error: ValueError) -> str:
    """What :meth:`Manifest.from_bytes` did not take, on one line: the first field, and what is wrong with it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))[:200]
    return f"{place}: {first['msg']}" if place else first["msg"]


def digest(traces: Iterable[ManifestTrace]) -> str:
    """One hash for a set of traces, whatever their order: :func:`digest_of_json` of what is written of them."""
    return digest_of_json(trace.model_dump(mode="json", by_alias=True) for trace in traces)


def digest_of_json(traces: Iterable[Any]) -> str:
    """The same of the entries as they are stored: SHA-256 over their canonical JSON, sorted, a line each.

    Whoever checks a digest asks here: fields that a newer writer added, and an older one did not know, count too.
    """
    lines = sorted(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")) for value in traces)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
