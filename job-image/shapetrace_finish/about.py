"""What a manifest says of engine, machine, coverage and each trace's content. Pure; parts are hostile input."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError
from shapetrace_contract.arguments import given, options
from shapetrace_contract.model import identify
from shapetrace_contract.settings import EngineSettings, ImageSettings
from shapetrace_traces.judge import Verdicts
from shapetrace_traces.judge.evidence import runner_of
from shapetrace_traces.judge.ranks import planned_tags
from shapetrace_traces.manifest import (
    GpuEvents,
    ManifestCoverage,
    ManifestEngine,
    ManifestImage,
    ManifestModel,
    ManifestRank,
    ManifestSoftware,
    TraceContent,
)

Part = Mapping[str, Any]

MAX_MISSING = 100
MAX_VALUES = 16
MAX_STEPS = 16
"""Of a capture; it has five."""
MAX_SECONDS = 10**9
MAX_NAMES = 300
MAX_CHARACTERS = 200
MAX_SETTING_CHARACTERS = 8192
"""A list of a thousand sizes."""
_TOLD = re.compile(
    r"--(?:load-format|dtype|quantization|kv-cache-dtype|attention-backend|sampling-backend|page-size|block-size"
    r"|cuda-graph-.*|enable-.*|disable-.*|enforce-eager|compilation-config|max-running-requests|max-total-tokens"
    r"|max-num-.*|max-model-len|context-length|chunked-prefill-size|mem-fraction-static|gpu-memory-utilization"
    r"|speculative-(?!draft-model).*|max-lora.*|data-parallel-size|dp-size|tensor-parallel-size|tp-size"
    r"|pipeline-parallel-size|pp-size|expert-parallel-size|ep-size|moe-.*|layers|hidden|heads|sizes|rank)"
)
"""Options whose values say how the engine computes; none that names a file, an address or a secret."""
_PLAIN = re.compile(r"[A-Za-z0-9._,:+{}\"\[\] -]{0,200}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_STEP = re.compile(r"[A-Za-z]{1,16}")


def describe_engine(engine: EngineSettings, image: ImageSettings | None, parts: Sequence[Part]) -> ManifestEngine:
    """What ran, as settings and ranks say it."""
    versions = {str(found["version"]) for part in parts if (found := _engine_record(part)).get("version")}
    configuration: dict[str, set[str]] = {}
    for part in parts:
        for name, value in _items(_engine_record(part).get("configuration")):
            text = json.dumps(value)
            if len(text) <= MAX_SETTING_CHARACTERS:
                configuration.setdefault(_text(name), set()).add(text)
    arguments = {
        option.name + (f".{option.key}" if option.key else ""): option.value
        for option in options(engine.args)
        if _TOLD.fullmatch(option.name) and _PLAIN.fullmatch(option.value)
    }
    return ManifestEngine(
        name=engine.name,
        version=_text(", ".join(sorted(versions))) or None,
        image=_image(image),
        weights=_weights(engine),
        configuration=_sorted(configuration),
        arguments=dict(sorted(arguments.items())[:MAX_NAMES]),
        device=engine.device,
        models=_models(engine, parts),
        parallelism=engine.parallelism,
    )


def _engine_record(part: Part) -> Mapping[str, Any]:
    record = part.get("record")
    found = record.get("engine") if isinstance(record, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _models(engine: EngineSettings, parts: Sequence[Part]) -> list[ManifestModel]:
    commits: dict[tuple[str, str], str] = {}
    for part in parts:
        stopped = part.get("stopped")
        fetched = stopped.get("models") if isinstance(stopped, Mapping) else None
        for item in fetched if isinstance(fetched, list) else ():
            commit = item.get("resolvedRevision") if isinstance(item, Mapping) else None
            if isinstance(commit, str) and _COMMIT.fullmatch(commit):
                commits[str(item.get("name")), str(item.get("revision") or "")] = commit
    return [_model(model, commits) for model in engine.models]


def _model(model: Mapping[str, Any], commits: Mapping[tuple[str, str], str]) -> ManifestModel:
    identity, revision = identify(model), str(model.get("revision") or "")
    fetched = commits.get((identity.name or "", revision)) if identity.source == "hub" else None
    return ManifestModel(
        role=_text(str(model.get("role") or "target")),
        name=_text(identity.name or "") or None,
        source=identity.source,
        revision=_text(revision) or None,
        resolved_revision=fetched or identity.commit,
    )


def _image(image: ImageSettings | None) -> ManifestImage | None:
    if image is None or not image.reference:
        return None
    found = _DIGEST.search(image.id) or _DIGEST.search(image.reference)
    return ManifestImage(reference=image.reference, digest=found[0] if found else None)


def _weights(engine: EngineSettings) -> Literal["dummy", "real"] | None:
    if engine.name == "torch":
        return "dummy"  # it has no others
    if engine.name == "command":
        return None
    option = given(engine.args, "--load-format")
    return "dummy" if option is not None and option.value == "dummy" else "real"


def describe_software(parts: Sequence[Part]) -> ManifestSoftware:
    """GPUs, versions and environment that processes and traces tell."""
    gpus: dict[str, int] = {}
    versions: dict[str, set[str]] = {}
    environment: dict[str, set[str]] = {}
    tracers: dict[str, set[str]] = {}
    for index in _indexes(parts):
        for name, count in _items(index.get("gpus")):
            if isinstance(count, int) and not isinstance(count, bool) and name:
                gpus[_text(name)] = max(count, gpus.get(_text(name), 0))
        _collect(versions, index.get("versions"))
    for part in parts:
        processes = part.get("processes")
        for process in processes if isinstance(processes, list) else ():
            if isinstance(process, Mapping):
                _collect(versions, process.get("versions"))
                _collect(environment, process.get("environment"))
                _collect(tracers, process.get("tracers"))
    return ManifestSoftware(
        gpus=dict(sorted(gpus.items())[:MAX_NAMES]),
        versions=_sorted(versions),
        tracers=_sorted(tracers),
        environment=_sorted(environment),
    )


def _indexes(parts: Iterable[Part]) -> Iterable[Mapping[str, Any]]:
    for part in parts:
        for entry in part.get("traces") or ():
            index = entry.get("index") if isinstance(entry, Mapping) else None
            if isinstance(index, Mapping):
                yield index


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    return [(str(key), item) for key, item in value.items()] if isinstance(value, Mapping) else []


def _collect(found: dict[str, set[str]], value: Any) -> None:
    for name, item in _items(value):
        if isinstance(item, (str, int, float)) and not isinstance(item, bool) and item != "":
            found.setdefault(_text(name), set()).add(_text(str(item)))


def _sorted(found: Mapping[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(values)[:MAX_VALUES] for name, values in sorted(found.items())[:MAX_NAMES]}


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()[:MAX_CHARACTERS]


def describe_coverage(parts: Sequence[Part], verdicts: Verdicts) -> list[ManifestCoverage]:
    """By runner, over all ranks: what was planned and what is there."""
    planned: Counter[str] = Counter()
    delivered: Counter[str] = Counter()
    additional: Counter[str] = Counter()
    missing: dict[str, list[str]] = {}
    wrong: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    there: dict[int, set[str]] = {}
    for item in verdicts.traces.values():
        runner = str(item.trace.shape.runner)
        if item.trace.stage == "capture":
            there.setdefault(item.trace.rank, set()).add(item.trace.tag)
        wrong[runner] += bool(item.holds)
        copies[runner] += bool(item.duplicates)
    for part in sorted(parts, key=lambda part: int(part["rank"])):
        rank, expected = int(part["rank"]), set(planned_tags(part))
        for tag in sorted(expected):
            runner = runner_of(tag)
            planned[runner] += 1
            if tag in there.get(rank, set()):
                delivered[runner] += 1
            else:
                missing.setdefault(runner, []).append(f"rank {rank}: {_text(tag)}")
        for tag in sorted(there.get(rank, set()) - expected):
            additional[runner_of(tag)] += 1
    return [
        ManifestCoverage(
            runner=runner,
            planned=planned[runner],
            delivered=delivered[runner],
            additional=additional[runner],
            contradicted=wrong[runner],
            duplicates=copies[runner],
            missing=missing.get(runner, [])[:MAX_MISSING],
        )
        for runner in sorted({*planned, *additional})[:MAX_NAMES]
    ]


def describe_content(index: Mapping[str, Any]) -> TraceContent | None:
    """The numbers of an index that travel in the manifest; None where there is none, or one that is none of ours."""
    if not index or index.get("error"):
        return None
    windows, place = index.get("windows"), index.get("distributed")
    try:
        return TraceContent(
            windows=len(windows) if isinstance(windows, list) else None,
            window_microseconds=_window_times(windows),
            profiler_steps=index.get("profilerSteps") or [],
            launches_in_windows=index.get("launchesInWindows"),
            nodes_in_windows=index.get("nodesInWindows"),
            gpu_in_windows=index.get("gpuInWindows"),
            sequence_sha256=index.get("sequenceSha256"),
            kernel_sequence_sha256=index.get("kernelSequenceSha256"),
            stacks_share=index.get("stacksShare"),
            flags=index.get("flags") or [],
            world_size=place.get("worldSize") if isinstance(place, Mapping) else None,
            trace_id=index.get("traceId"),
            base_time_nanoseconds=index.get("baseTimeNanoseconds"),
        )
    except ValidationError:
        return None


def describe_times(times: Any) -> dict[str, float]:
    """Step -> seconds, of what a capture's record says that its steps took."""
    found = {
        name: float(seconds)
        for name, seconds in _items(times)
        if _STEP.fullmatch(name) and type(seconds) in (int, float) and 0 <= seconds < MAX_SECONDS
    }
    return dict(sorted(found.items())[:MAX_STEPS])


def _window_times(windows: Any) -> list[tuple[Any, Any]]:
    found = windows if isinstance(windows, list) else []
    return [(item.get("beginMicroseconds"), item.get("endMicroseconds")) for item in found if isinstance(item, Mapping)]


def describe_gpu_events(part: Part | None) -> GpuEvents | None:
    """What a rank's self-test saw; None where there was none, or something else stands in its place."""
    done = part.get("done") if part is not None else None
    try:
        return GpuEvents.model_validate(done["gpuEvents"], strict=True) if isinstance(done, Mapping) else None
    except (KeyError, ValidationError):
        return None


def blind_ranks(ranks: Sequence[ManifestRank]) -> tuple[bool, str] | None:
    """Whether the profiler still saw every kernel on all ranks that were asked, in words; None where none was."""
    asked = [(item.rank, item.gpu_events) for item in ranks if item.gpu_events is not None]
    blind = [(rank, events) for rank, events in asked if events.error or events.seen < events.launched]
    if not asked:
        return None
    if not blind:
        return True, f"after the captures the profiler saw every kernel of a test on {len(asked)} ranks"
    rank, events = blind[0]
    more = f" and {len(blind) - 1} more ranks" if len(blind) > 1 else ""
    why = f" ({events.error})" if events.error else ""
    return False, (
        f"after the captures the profiler saw {events.seen} of {events.launched} kernels on rank {rank}{more}{why}: "
        "later traces of such a process hold no kernels"
    )
