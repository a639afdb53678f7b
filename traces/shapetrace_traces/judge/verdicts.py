"""``judge``: all parts of an attempt -> the verdict of each trace, each rank and the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shapetrace_contract.reasons import Verdict

from shapetrace_traces.judge.agreement import find_disagreements
from shapetrace_traces.judge.evidence import Trace, read_trace
from shapetrace_traces.judge.fit import Fit
from shapetrace_traces.judge.graph import lacking_graph
from shapetrace_traces.judge.identity import find_duplicates, find_mismatch
from shapetrace_traces.judge.markers import MarkerTable
from shapetrace_traces.judge.ranks import RankVerdict, TraceVerdict, bounded, entries, judge_rank, number
from shapetrace_traces.judge.siblings import VariantFit, axes_of, grouped, named
from shapetrace_traces.judge.size import judge_sizes
from shapetrace_traces.judge.variants import judge_variants

MAX_RUN_REASONS = 100
UNKNOWN_CALLER = "a caller that was not noted"
_ORDER = list(Verdict)


@dataclass(frozen=True)
class Verdicts:
    """The judgement of an attempt."""

    verdict: Verdict
    ranks: tuple[RankVerdict, ...]
    traces: Mapping[str, TraceVerdict]
    """By key."""
    reasons: tuple[str, ...] = ()
    untagged: tuple[Mapping[str, Any], ...] = ()
    """Capture sites that no hook covers: ``{"caller", "ranks"}``."""
    not_planned: tuple[Mapping[str, Any], ...] = ()
    """Declared shapes that the engine does not capture: ``{"shape", "reason", "ranks"}``."""
    unproven: tuple[str, ...] = field(default=())
    """Keys of the traces that ``strict`` refuses."""


def judge(parts: Sequence[Mapping[str, Any]], *, engine: str = "", ranks: Iterable[int] | None = None) -> Verdicts:
    """Judge an attempt. Pure: no I/O, no clock; the same parts in any order give the same verdicts.

    ``engine`` chooses the markers of variants (``torch``, ...; none for an unknown one). ``ranks`` are those the run
    asks for: one of them without a part is Partial, and one that is not among them and recorded nothing is left out.
    Without ``ranks`` they are taken from the parts. A part with ``"recovered": true`` was put together from objects,
    because no collector wrote it.
    """
    by_rank = {part["rank"]: part for part in parts if isinstance(part.get("rank"), int)}
    asked = {rank for rank, part in by_rank.items() if _is_asked(part)} if ranks is None else set(ranks)
    traces = [trace for rank, part in sorted(by_rank.items()) for trace in _read(part, rank)]
    judged = _judge_traces(traces, MarkerTable.of(engine))
    chosen = sorted(asked | {rank for rank, part in by_rank.items() if entries(part, "traces")})
    lacking = find_disagreements({rank: part for rank, part in by_rank.items() if rank in asked})
    verdicts = []
    for rank in chosen:
        own = [judged[trace.key] for trace in traces if trace.rank == rank]
        verdicts.append(judge_rank(rank, by_rank.get(rank), own, lacking.get(rank, ())))
    untagged = _merged((rank, {"caller": caller}) for rank in chosen for caller in _untagged(by_rank.get(rank) or {}))
    not_planned = _merged(
        (rank, {"shape": item.get("shape"), "reason": str(item.get("reason") or "")})
        for rank in chosen
        for line in entries(by_rank.get(rank) or {}, "plan")
        for item in entries(line, "notPlanned")
    )
    overall = min((item.verdict for item in verdicts), key=_ORDER.index, default=Verdict.PARTIAL)
    reasons = [text for item in verdicts for text in item.reasons]
    if not verdicts:
        reasons.append("no rank left a part or a trace")
    if untagged:
        reasons.append(uncovered([str(item["caller"]) for item in untagged]))
    reasons += [text for item in verdicts for text in item.notes]
    return Verdicts(
        verdict=overall,
        ranks=tuple(verdicts),
        traces=judged,
        reasons=tuple(bounded(reasons, MAX_RUN_REASONS)),
        untagged=tuple(untagged),
        not_planned=tuple(not_planned),
        unproven=tuple(sorted(key for key, item in judged.items() if not item.is_proven)),
    )


def uncovered(callers: Sequence[str]) -> str:
    """What a Complete run is not complete of: places that capture graphs outside the hooks."""
    places = "1 place" if len(callers) == 1 else f"{len(callers)} places"
    return f"{places} captured graphs that no hook covers, first {callers[0]}"


def _is_asked(part: Mapping[str, Any]) -> bool:
    record = part.get("record")
    return not (isinstance(record, Mapping) and record.get("asked") is False)


def _read(part: Mapping[str, Any], rank: int) -> list[Trace]:
    read = (read_trace(entry, rank) for entry in entries(part, "traces"))
    return sorted((trace for trace in read if trace is not None), key=lambda trace: trace.key)


def _judge_traces(traces: Sequence[Trace], table: MarkerTable) -> dict[str, TraceVerdict]:
    readable = [trace for trace in traces if trace.error is None]
    clean = [trace for trace in readable if not _dirt(trace)]  # a dirty trace is no evidence for or against others
    sizes = judge_sizes(clean)
    variants = judge_variants(readable, table)
    duplicates = find_duplicates(traces)
    judged = {}
    for of_runner in grouped(traces, lambda trace: trace.runner):
        axes = axes_of(of_runner)
        for trace in of_runner:
            fits, same = variants.get(trace.key, {}), duplicates.get(trace.key, ())
            judged[trace.key] = _verdict(trace, axes, sizes.get(trace.key), fits, same)
    return {trace.key: judged[trace.key] for trace in traces}


def _dirt(trace: Trace) -> tuple[str, ...]:
    """What the capture said of itself, and what its witnesses and its events say though it did not."""
    found = list(trace.dirty)
    forwards = trace.witness("forwards")
    if isinstance(forwards, int) and forwards != 1 and not found:
        found.append(f"the forward ran {forwards} times")
    if trace.witness("keyKnown") is False and not found:
        found.append("the engine does not know the shape afterwards")
    if trace.error is None and not found:
        found.extend(lacking_graph(trace))
        if trace.is_empty and not found:
            found.append("no operator ran inside its block")
    return tuple(found)


def _verdict(
    trace: Trace,
    axes: Sequence[str],
    size: Fit | None,
    variants: Mapping[str, VariantFit],
    duplicates: tuple[str, ...],
) -> TraceVerdict:
    words = {**dict.fromkeys(trace.shape.variants, "unproven"), **{axis: fit.word for axis, fit in variants.items()}}
    evidence: dict[str, str] = {"size": size.evidence} if size is not None else {}
    evidence.update({axis: fit.evidence for axis, fit in variants.items()})
    holds = []
    if size is not None and size.holds is not None:
        holds.append(f"size {size.holds} ({size.evidence})")
    holds += [f"{named(axis, fit.holds)} ({fit.evidence})" for axis, fit in variants.items() if fit.holds is not None]
    size_word = size.word if size is not None else "unproven"
    mismatch = find_mismatch(trace, axes)
    if mismatch is not None:
        holds += mismatch.holds
        if mismatch.size is not None:
            size_word = "contradicted"
            evidence["size"] = mismatch.size
        for axis, text in mismatch.variants.items():
            words[axis] = "contradicted"
            evidence[axis] = text
    return TraceVerdict(
        trace=trace,
        size=size_word,
        variants=words,
        evidence=tuple(f"{name}: {text}" for name, text in evidence.items()),
        holds=tuple(holds),
        dirty=_dirt(trace),
        duplicates=duplicates,
        is_short=size is not None and size.word == size_word == "unproven",
    )


def _untagged(part: Mapping[str, Any]) -> list[str]:
    done = part.get("done")
    counted = done.get("captureBegin") if isinstance(done, Mapping) else None
    if not isinstance(counted, Mapping):
        return []
    callers = counted.get("untagged")
    named = [str(caller)[:200] for caller in callers[:32]] if isinstance(callers, list) else []
    # nobody noted where, and yet there were more graphs than captures of ours
    return named or ([UNKNOWN_CALLER] if number(counted.get("all")) > number(counted.get("tagged")) else [])


def _merged(items: Iterable[tuple[int, dict[str, Any]]]) -> list[Mapping[str, Any]]:
    """Equal entries of several ranks as one, with the ranks; in order of first appearance."""
    found: dict[str, dict[str, Any]] = {}
    for rank, item in items:
        entry = found.setdefault(repr(sorted(item.items(), key=str)), {**item, "ranks": []})
        if rank not in entry["ranks"]:
            entry["ranks"].append(rank)
    return list(found.values())
