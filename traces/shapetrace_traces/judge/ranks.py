"""The verdict of one rank: what its part says of plan, hooks, end and losses, and what was judged of its traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Shape, TagError

from shapetrace_traces.judge.evidence import Trace, shape_of, texts

BORNE_OUT = frozenset({"proven", "distinct"})
"""The words for a variant that ``strict`` accepts; of a size only the first."""
MAX_REASONS = 40
"""Of one rank; the first ones say it, the manifest's traces say the rest."""
MAX_PLANNED = 100_000
"""Shapes of one plan line that are read, far above any product of shapes that is accepted."""


@dataclass(frozen=True)
class TraceVerdict:
    """What was judged of one trace."""

    trace: Trace
    size: str
    variants: Mapping[str, str]
    evidence: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    """What a contradicted trace really holds; empty for any other."""
    dirty: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    """Keys of the traces that are the same recording."""
    is_short: bool = False
    """Whether it has fewer rows than its label claims, and nothing tells which size it holds."""

    @property
    def is_proven(self) -> bool:
        """Whether the label is as well supported as ``strict`` asks."""
        return self.size == "proven" and all(word in BORNE_OUT for word in self.variants.values())


@dataclass
class RankVerdict:
    """One rank's counters and verdict. ``expected`` is None without a plan."""

    rank: int
    verdict: Verdict
    expected: int | None
    captured: int
    uploaded: int
    failed: int
    bytes: int
    reasons: list[str] = field(default_factory=list)
    """Why the verdict is not Complete."""
    notes: list[str] = field(default_factory=list)
    """What a Complete rank still has to say."""
    eager: str | None = None


def judge_rank(
    rank: int, part: Mapping[str, Any] | None, traces: Sequence[TraceVerdict], lacks: Sequence[str] = ()
) -> RankVerdict:
    """The verdict of ``rank``. ``part`` is None for a rank that left nothing at all, ``lacks`` is what it did not plan
    though its peers did."""
    if part is None:
        return RankVerdict(rank, Verdict.PARTIAL, None, 0, 0, 0, 0, [f"rank {rank} left no part and no trace"])
    planned = planned_tags(part)
    stored, lost = entries(part, "traces"), [item for item in entries(part, "lost") if _is_capture(item)]
    captures = [item for item in stored if _is_capture(item)]
    unstored = _unstored(part)
    eager = eager_reason(part)
    wrong = [f"{_name(item)} holds {what}" for item in traces for what in item.holds]
    partial = list(_recording(rank, part, planned, eager)) + list(_delivery(part, planned, captures, lost, unstored))
    partial += [*lacks, *_damage(traces)]
    if len(traces) < len(stored):
        partial.append(f"{len(stored) - len(traces)} entries of its part name no trace: key or tag cannot be read")
    if wrong:
        verdict = Verdict.MISLABELLED
    elif partial:
        verdict = Verdict.PARTIAL
    else:
        verdict = Verdict.EAGER if eager is not None else Verdict.COMPLETE
    delivered = {str(item.get("tag")) for item in captures}
    beyond = sorted(delivered - set(planned)) if planned else []
    notes = [f"{len(beyond)} captures beyond the plan: {shorten(', '.join(beyond), 200)}"] if beyond else []
    again = _captured_again(part, captures)
    if again:
        notes.append(f"{len(again)} shapes were captured more than once: {shorten(', '.join(again), 200)}")
    unread = [item.trace.tag for item in traces if item.trace.is_unread]
    if unread:
        notes.append(f"{len(unread)} traces are stored but too long to be indexed: {shorten(', '.join(unread), 200)}")
    short = [_name(item) for item in traces if item.is_short]
    if short:
        notes.append(f"{len(short)} traces have fewer rows than their labels claim: {shorten(', '.join(short), 200)}")
    if eager is not None:
        notes.append(f"no graphs: {shorten(eager, 200)}")
    return RankVerdict(
        rank=rank,
        verdict=verdict,
        # one that has no graphs planned none: that is known, and not the same as no plan
        expected=len(planned) if planned or verdict is Verdict.EAGER else None,
        captured=len(captures) + unstored,
        uploaded=len(captures),
        failed=max(0, len(lost) - unstored) + sum(1 for item in captures if item.get("error")),
        bytes=sum(number(item.get("bytes")) for item in stored),
        reasons=bounded(f"rank {rank}: {text}" for text in wrong + partial),
        notes=bounded(f"rank {rank}: {text}" for text in notes),
        eager=eager,
    )


def _captured_again(part: Mapping[str, Any], captures: Sequence[Mapping[str, Any]]) -> list[str]:
    """Shapes of a user's own program with more than one epoch, which it may not have meant; engines mean it."""
    record = part.get("record")
    if not isinstance(record, Mapping) or record.get("engine", "") is not None:
        return []
    shapes = (shape_of(item.get("tag")) for item in captures)
    return sorted({shape.with_epoch(1).tag for shape in shapes if shape is not None and shape.epoch > 1})


def planned_tags(part: Mapping[str, Any]) -> list[str]:
    """The tags of a rank's plan, each once, with the epoch of its line."""
    tags: dict[str, None] = {}
    for line in entries(part, "plan"):
        epoch = number(line.get("epoch")) or 1
        for tag in texts(line.get("shapes"), limit=MAX_PLANNED):
            try:
                tags[Shape.from_tag(tag).with_epoch(epoch).tag] = None
            except TagError:
                tags[tag] = None
    return list(tags)


def eager_reason(part: Mapping[str, Any]) -> str | None:
    """Why the rank has no graphs by choice; None where it does not say so."""
    done = part.get("done")
    return str(done["eager"]) if isinstance(done, Mapping) and done.get("eager") else None


def unread_lines(part: Mapping[str, Any]) -> int:
    """Lines of its plan that cannot be read."""
    return sum(1 for line in _items(part, "plan") if not _is_plan(line))


def _recording(rank: int, part: Mapping[str, Any], planned: Sequence[str], eager: str | None) -> Iterable[str]:
    """What is missing of the rank's own records."""
    if part.get("recovered"):
        count = len(entries(part, "traces"))
        yield f"left no part; {count} of its traces were found in the store"
        return
    record = part.get("record")
    hooks = record.get("hooks") if isinstance(record, Mapping) else None
    states = {str(key): str(value) for key, value in hooks.items()} if isinstance(hooks, Mapping) else {}
    if "applied" not in states.values():
        yield "no record that its hooks applied"
    required = set(texts(record.get("required"))) if isinstance(record, Mapping) else set()
    for target in sorted(required - states.keys()):
        yield f"the hook of {shorten(target, 200)} is required, and nothing says that it was applied"
    for target, state in sorted(states.items()):
        if state == "missing" and target in required:
            yield f"the hook of {target} is required, and the engine has no such method"
        elif state not in ("applied", "missing"):
            yield f"the hook of {target} failed: {shorten(state, 200)}"
    if not planned and eager is None:
        yield "no plan: the engine announced no shape"
    unread = unread_lines(part)
    if unread:
        yield f"{unread} lines of its plan cannot be read: what they planned is not known"
    done = part.get("done")
    if not isinstance(done, Mapping):
        yield f"ended before its capture was done{_cause(rank, part)}"
        return
    if done.get("ok") is not True:
        yield f"its capture went wrong: {shorten(str(done.get('reason') or 'no reason given'), 300)}"
    if not isinstance(done.get("records"), int):
        yield "its done.json does not say how many captures it recorded"
    if _unseen(part):
        seen = number(done.get("records")) - _unseen(part)
        yield f"it recorded {done.get('records')} captures, {seen} reached the collector"


def _is_plan(line: Any) -> bool:
    shapes = line.get("shapes") if isinstance(line, Mapping) else None
    return isinstance(shapes, list) and len(shapes) <= MAX_PLANNED and all(isinstance(tag, str) for tag in shapes)


def _unseen(part: Mapping[str, Any]) -> int:
    """Records that ``done.json`` counts and that no collector saw."""
    done = part.get("done")
    seen = len(entries(part, "traces")) + len(entries(part, "lost"))
    return max(0, number(done.get("records")) - seen) if isinstance(done, Mapping) else 0


def _unstored(part: Mapping[str, Any]) -> int:
    """Captured traces that have no object: what a part counts as missing, but for records that nobody saw."""
    return max(0, number(part.get("missing")) - _unseen(part))


def _cause(rank: int, part: Mapping[str, Any]) -> str:
    stopped = part.get("stopped")
    if not isinstance(stopped, Mapping) or stopped.get("reason") in (None, "Done"):
        return ""
    who = "" if stopped.get("rank") in (None, rank) else f" of rank {stopped.get('rank')}"
    return f" ({stopped.get('reason')}{who}: {shorten(str(stopped.get('message') or ''), 160)})"


def _delivery(
    part: Mapping[str, Any],
    planned: Sequence[str],
    captures: Sequence[Mapping[str, Any]],
    lost: Sequence[Mapping[str, Any]],
    unstored: int,
) -> Iterable[str]:
    """Which planned shapes are not there, and why."""
    there = {str(item.get("tag")) for item in captures}
    causes = {str(item.get("tag")): str(item.get("error") or "the trace was lost") for item in lost}
    absent = [tag for tag in planned if tag not in there]
    told = [tag for tag in absent if tag in causes]
    for tag in told:
        yield f"{tag} was lost: {shorten(causes[tag], 200)}"
    silent = [tag for tag in absent if tag not in causes]
    if silent:
        more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
        yield f"{len(silent)} of {len(planned)} planned shapes are missing: {', '.join(silent[:3])}{more}"
    beyond = [tag for tag in causes if tag not in planned and tag not in there]
    for tag in beyond:
        yield f"{tag} was lost: {shorten(causes[tag], 200)}"
    if unstored and not lost:  # otherwise each is named above
        yield f"{unstored} captured traces were not stored in time"
    orphans = texts(part.get("orphans"))
    if orphans:
        yield f"{len(orphans)} trace files without a record: {shorten(', '.join(orphans), 120)}"


def _damage(traces: Sequence[TraceVerdict]) -> list[str]:
    found = []
    for item in traces:
        found += [f"{_name(item)} is dirty: {shorten(text, 200)}" for text in item.dirty]
        if item.trace.error is not None and not item.trace.is_unread:
            found.append(f"{_name(item)} cannot be read: {shorten(item.trace.error, 200)}")
        first = min(item.duplicates, default="")
        if first and first < item.trace.key:  # named once, at the later one
            found.append(f"{_name(item)} is the same recording as {first}")
    return found


def _name(item: TraceVerdict) -> str:
    return item.trace.tag if item.trace.stage == "capture" else f"{item.trace.tag} ({item.trace.stage})"


def _is_capture(item: Mapping[str, Any]) -> bool:
    return str(item.get("stage") or "capture") == "capture"


def entries(part: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of a part's list; anything else is no entry."""
    return [item for item in _items(part, name) if isinstance(item, Mapping)]


def _items(part: Mapping[str, Any], name: str) -> list[Any]:
    value = part.get(name)
    return value if isinstance(value, list) else []


def number(value: Any) -> int:
    """A count from a part, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def bounded(lines: Iterable[str], limit: int = MAX_REASONS) -> list[str]:
    """The first lines, and how many more there are."""
    every = list(lines)
    return every if len(every) <= limit else [*every[:limit], f"... and {len(every) - limit} more"]
