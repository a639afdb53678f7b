"""Parts and verdicts -> manifest and environment. Pure; no clock reading, so that composing again gives the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shapetrace_contract import VERSION, keys
from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import GOOD_VERDICTS, Reason, Verdict
from shapetrace_contract.settings import CaptureSettings, EngineSettings, ImageSettings, RunId
from shapetrace_contract.tag import sglang_name
from shapetrace_traces.judge import RankVerdict, TraceVerdict, Verdicts
from shapetrace_traces.judge.evidence import texts
from shapetrace_traces.judge.ranks import BORNE_OUT
from shapetrace_traces.manifest import (
    Failure,
    Manifest,
    ManifestLost,
    ManifestRank,
    ManifestRun,
    ManifestTrace,
    NotPlanned,
    Support,
    Untagged,
    digest,
)

from shapetrace_finish.about import (
    describe_content,
    describe_coverage,
    describe_engine,
    describe_gpu_events,
    describe_software,
    describe_times,
)
from shapetrace_finish.asides import find_asides

Part = Mapping[str, Any]

MAX_WITNESS_CHARACTERS = 4096
"""Ours have about 300; they are copied into the manifest."""


def asked_ranks(capture: CaptureSettings, engine: EngineSettings) -> list[int]:
    """The global ranks that ``capture.ranks`` (``All``, ``First`` or a list) asks for."""
    if isinstance(capture.ranks, list):
        return sorted({rank for rank in capture.ranks if isinstance(rank, int) and rank >= 0})
    return [0] if capture.ranks == "First" else list(range(engine.ranks))


def compose_manifest(
    run: RunId,
    engine: EngineSettings,
    parts: Sequence[Part],
    verdicts: Verdicts,
    *,
    strict: bool,
    image: ImageSettings | None = None,
) -> Manifest:
    """The manifest of an attempt. ``parts`` are those that were judged."""
    by_rank = {int(part["rank"]): part for part in parts}
    aliases = _aliases(engine, by_rank, verdicts)
    traces = [
        _trace(entry, verdicts.traces[entry["key"]], aliases.get(entry["key"]))
        for _, part in sorted(by_rank.items())
        for entry in part.get("traces") or ()
        if entry.get("key") in verdicts.traces
    ]
    traces.sort(key=lambda trace: (trace.rank, trace.key))
    ranks = [_rank(item, by_rank.get(item.rank)) for item in verdicts.ranks]
    known = bool(ranks) and all(item.expected is not None for item in ranks)
    not_planned = [NotPlanned.model_validate(item) for item in verdicts.not_planned]
    asides = find_asides(verdicts.verdict, engine.device, traces, not_planned)
    return Manifest(
        run=ManifestRun(namespace=run.namespace, name=run.name, uid=run.uid, attempt=run.attempt),
        verdict=verdicts.verdict,
        expected=sum(item.expected or 0 for item in ranks) if known else None,
        captured=sum(item.captured for item in ranks),
        uploaded=sum(item.uploaded for item in ranks),
        failed=sum(item.failed for item in ranks),
        stored_bytes=sum(item.stored_bytes for item in ranks),
        digest=digest(traces),
        engine=describe_engine(engine, image, list(by_rank.values())),
        software=describe_software(list(by_rank.values())),
        coverage=describe_coverage(list(by_rank.values()), verdicts),
        ranks=ranks,
        traces=traces,
        lost=[_lost(entry, rank) for rank, part in sorted(by_rank.items()) for entry in part.get("lost") or ()],
        failure=find_failure(parts, verdicts, strict=strict, asides=asides),
        untagged=[Untagged.model_validate(item) for item in verdicts.untagged],
        reasons=[*verdicts.reasons, *asides],
        not_planned=not_planned,
    )


def find_failure(
    parts: Iterable[Part], verdicts: Verdicts, *, strict: bool, asides: Sequence[str] = ()
) -> Failure | None:
    """The first cause of a bad end: what the launcher noted, an unsatisfied ``strict``, or the verdict's own reasons.

    A launcher that was merely stopped follows another pod's fault, so a fault proper is preferred. Where the verdict
    alone would be a success, ``NotProven`` decides and is named; ``asides`` say what it lacks of what was asked for.
    """
    if strict and verdicts.verdict in GOOD_VERDICTS:
        text = _not_proven(verdicts) or next((f"strict is set, and {words}" for words in asides), None)
        if text is not None:
            return Failure(reason=Reason.NOT_PROVEN.value, message=shorten(text))
    stops = [stopped for part in parts if isinstance(stopped := part.get("stopped"), Mapping)]
    causes = [stopped for stopped in stops if stopped.get("reason") not in (None, "", Reason.DONE.value)]
    if not causes:
        return _of_the_verdict(verdicts)
    first = min(causes, key=lambda stopped: stopped["reason"] == Reason.STOPPED.value)
    rank, code, signal = (first.get(name) for name in ("rank", "exitCode", "signal"))
    if not isinstance(code, int) and isinstance(signal, int):
        code = -signal  # as Python and the launcher spell the end by a signal
    return Failure(
        reason=shorten(str(first["reason"]), 64),
        message=shorten(str(first.get("message") or "")),
        rank=rank if isinstance(rank, int) else None,
        exit_code=code if isinstance(code, int) else None,
    )


def _of_the_verdict(verdicts: Verdicts) -> Failure | None:
    """Nothing went wrong that anybody noticed, and yet the evidence is against the run: its first reason says how."""
    if verdicts.verdict in GOOD_VERDICTS or not verdicts.reasons:
        return None
    more = len(verdicts.reasons) - 1
    first = shorten(verdicts.reasons[0], 400)
    text = f"{first}; {more} more in {keys.MANIFEST}" if more else first
    return Failure(reason=verdicts.verdict.value, message=text)


def _not_proven(verdicts: Verdicts) -> str | None:
    if verdicts.verdict is Verdict.EAGER:
        return "strict is set, and the engine captured no graphs"
    if not verdicts.unproven:
        return None
    first = verdicts.traces[verdicts.unproven[0]]
    named = {"size": first.size, **first.variants}
    words = ", ".join(f"{name} {word}" for name, word in named.items())
    count = f"{len(verdicts.unproven)} of {len(verdicts.traces)} traces are not proven"
    proven = {name for name, word in named.items() if word in BORNE_OUT}
    why = [text for text in first.evidence if text.partition(": ")[0] not in proven]
    return "; ".join([f"strict is set, and {count}, first rank {first.trace.rank} {first.trace.tag} ({words})", *why])


def compose_environment(run: RunId, engine: EngineSettings, parts: Sequence[Part]) -> bytes:
    """``environment.json``: what each process and rank said of itself. The parts of one pod repeat its processes."""
    processes = {json.dumps(item, sort_keys=True): item for part in parts for item in part.get("processes") or ()}
    value = {
        "v": VERSION,
        "run": {"namespace": run.namespace, "name": run.name, "uid": run.uid, "attempt": run.attempt},
        "engine": {"name": engine.name, "device": engine.device, "parallelism": engine.parallelism},
        "ranks": [part["record"] for part in parts if part.get("record")],
        "processes": [processes[text] for text in sorted(processes)],
    }
    return (json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()


def _record(part: Part | None) -> Mapping[str, Any]:
    record = part.get("record") if part is not None else None
    return record if isinstance(record, Mapping) else {}


def _aliases(engine: EngineSettings, parts: Mapping[int, Part], verdicts: Verdicts) -> dict[str, str]:
    """Key -> the engine's own name, of the traces that have one to themselves."""
    if engine.name != "sglang":
        return {}
    found = {}
    for key, item in verdicts.traces.items():
        trace, tensor_rank = item.trace, _record(parts.get(item.trace.rank)).get("tp")
        if trace.stage == keys.CAPTURE:
            found[key] = sglang_name(trace.shape, tensor_rank if isinstance(tensor_rank, int) else trace.rank)
    counts = Counter(found.values())
    return {key: name for key, name in found.items() if name is not None and counts[name] == 1}


def _trace(entry: Mapping[str, Any], judged: TraceVerdict, alias: str | None) -> ManifestTrace:
    trace = judged.trace
    witnesses = dict(trace.witnesses)
    if len(json.dumps(witnesses)) > MAX_WITNESS_CHARACTERS:
        witnesses = {"cut": True}
    graph, device = trace.witness("graph"), trace.witness("device") or trace.index.get("device")
    return ManifestTrace(
        key=trace.key,
        seq=seq if isinstance(seq := entry.get("seq"), int) else None,
        sha256=entry["sha256"],
        stored_bytes=entry["bytes"],
        raw_sha256=trace.raw_sha256,
        raw_bytes=entry.get("rawBytes"),
        tag=trace.tag,
        alias=alias,
        shape=trace.shape.to_json(),
        rank=trace.rank,
        stage=trace.stage,
        epoch=trace.epoch,
        graph=graph if isinstance(graph, bool) else None,
        device=device if isinstance(device, str) else None,
        support=Support(size=judged.size, variants=dict(judged.variants)),
        evidence=list(judged.evidence),
        witnesses=witnesses,
        dirty=list(judged.dirty),
        times_seconds=describe_times(entry.get("timesSeconds")),
        duplicates=list(judged.duplicates),
        content=describe_content(trace.index),
    )


def _rank(item: RankVerdict, part: Part | None) -> ManifestRank:
    record = _record(part)
    place = {name: record[name] for name in ("tp", "pp", "dp", "ep") if isinstance(record.get(name), int)}
    return ManifestRank(
        rank=item.rank,
        **place,
        node=str(record["node"]) if record.get("node") else None,
        expected=item.expected,
        captured=item.captured,
        uploaded=item.uploaded,
        failed=item.failed,
        stored_bytes=item.bytes,
        verdict=item.verdict,
        reasons=[*item.reasons, *item.notes],
        eager=item.eager,
        gpu_events=describe_gpu_events(part),
    )


def _lost(entry: Mapping[str, Any], rank: int) -> ManifestLost:
    return ManifestLost(
        rank=rank,
        tag=str(entry.get("tag") or "?"),
        stage=str(entry.get("stage") or "capture"),
        epoch=epoch if isinstance(epoch := entry.get("epoch"), int) else 1,
        error=shorten(str(entry.get("error") or "the trace was lost")),
        dirty=list(texts(entry.get("dirty"))),
    )
