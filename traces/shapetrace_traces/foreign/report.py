"""What is known of a directory: a line for each capture, a verdict, and the reasons. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from shapetrace_contract import VERSION
from shapetrace_contract.message import counted
from shapetrace_contract.reasons import GOOD_VERDICTS, Verdict

from shapetrace_traces.foreign.captures import Role, captures_of, readable, role_of
from shapetrace_traces.foreign.findings import Finding, judge_captures, tell_apart
from shapetrace_traces.foreign.lacking import cut_text, find_lacking, find_odd
from shapetrace_traces.foreign.names import Layout
from shapetrace_traces.foreign.own import OwnManifest
from shapetrace_traces.foreign.scan import File, Kind
from shapetrace_traces.manifest import Manifest

MAX_REASONS = 100
"""And as many notes: the captures themselves say the rest."""


class Standing(StrEnum):
    """The verdict of a directory, in the order in which it is decided."""

    MISLABELLED = "Mislabelled"
    PARTIAL = "Partial"
    EAGER = "Eager"
    NOT_INDEXABLE = "NotIndexable"
    COMPLETE = "Complete"

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against the directory."""
        return self in (Standing.COMPLETE, Standing.EAGER)


@dataclass(frozen=True)
class Report:
    """All that is known of a directory, or of one file."""

    verdict: Standing
    layouts: tuple[Layout, ...]
    findings: tuple[Finding, ...]
    roles: Mapping[str, Role]
    """Path -> role of each readable trace."""
    damaged: Mapping[str, str]
    """Path -> why it cannot be read."""
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Path -> what its name claims, or its events begin, and no capture of it holds."""

    def to_json(self) -> dict[str, Any]:
        """For programs: documented in docs/foreign.md."""
        return {
            "v": VERSION,
            "verdict": self.verdict.value,
            "layouts": [layout.value for layout in self.layouts],
            "captures": [finding_json(item) for item in self.findings],
            "others": {path: role.value for path, role in self.roles.items() if role is not Role.CAPTURE},
            "damaged": dict(self.damaged),
            "lacking": dict(self.lacking),
            "reasons": list(self.reasons),
            "notes": list(self.notes),
        }


def finding_json(item: Finding) -> dict[str, Any]:
    """One capture for programs."""
    return {
        "file": item.capture.file,
        "window": item.capture.window,
        "layout": item.capture.name.layout.value,
        "rank": item.rank,
        "claimed": None if item.claimed is None else item.claimed.to_json(),
        "claimedBy": item.source or None,
        "measured": None if item.shape is None else item.shape.to_json(),
        "tag": None if item.shape is None else item.shape.tag,
        "rows": item.capture.rows,
        "launches": item.capture.launches,
        "support": {"size": item.size, "variants": dict(item.variants)},
        "evidence": list(item.evidence),
        "contradictions": list(item.wrong),
        "duplicates": list(item.duplicates),
    }


def make_report(
    files: Sequence[File], details: Mapping[str, int], *, own: OwnManifest | None = None, width: int = 1
) -> Report:
    """Judge what was read. ``details`` are those of ``execution_details.json``, ``own`` is our own attempt's
    manifest."""
    own = own or OwnManifest()
    manifest = own.manifest
    roles = {file.path: role_of(file) for file in readable(files)}
    captures = [
        capture
        for file in readable(files)
        if roles[file.path] is Role.CAPTURE
        for capture in captures_of(file, details.get(file.path))
    ]
    findings = judge_captures(captures, width)
    apart = tell_apart(findings)
    findings = [_renamed(item, apart) for item in findings]
    damaged = {file.path: file.fault for file in files if file.kind is Kind.DAMAGED}
    lacking = find_lacking(files, roles)
    wrong = [f"{item.capture.key} {text}" for item in findings for text in item.wrong]
    partial = [f"{path} cannot be read: {why}" for path, why in damaged.items()]
    partial += [f"{path} {text}" for path, text in lacking.items()]
    partial += _duplicates(findings) + _unpaired(findings) + _cut(findings) + _disagreeing(findings)
    partial += _of_manifest(files, manifest) + ([own.fault] if own.fault else [])
    nameless = [item for item in findings if item.shape is None and not item.wrong]
    notes = _notes(findings, nameless) + find_odd(files) + ([own.note] if own.note else [])
    if wrong or (manifest is not None and manifest.verdict is Verdict.MISLABELLED):
        verdict, reasons = Standing.MISLABELLED, wrong + partial
    elif findings and len(nameless) == len(findings) and all(item.claimed is None for item in nameless):
        verdict = Standing.NOT_INDEXABLE
        reasons = [f"{item.capture.key}: {item.evidence[0]}" for item in nameless] + partial
    elif partial or nameless:
        verdict = Standing.PARTIAL
        reasons = partial + [f"{item.capture.key}: {item.evidence[0]}" for item in nameless]
    elif findings:
        verdict, reasons = Standing.COMPLETE, []
    else:
        verdict, reasons = _without_captures(roles, manifest)
    return Report(
        verdict=verdict,
        layouts=tuple(sorted({item.capture.name.layout for item in findings})),
        findings=tuple(findings),
        roles=roles,
        damaged=damaged,
        reasons=tuple(_bounded(reasons)),
        notes=tuple(_bounded(notes)),
        lacking=lacking,
    )


def _cut(findings: Iterable[Finding]) -> list[str]:
    return [f"{item.capture.key} {text}" for item in findings if (text := cut_text(item.capture.left_out))]


def _renamed(item: Finding, apart: Mapping[str, Any]) -> Finding:
    shape = apart.get(item.capture.key)
    if shape is None:
        return item
    axis = next(axis for axis in shape.variants if item.shape is None or axis not in item.shape.variants)
    text = f"{axis}: operators or launches differ from those of the other captures of this shape; what it is, none says"
    return replace(item, shape=shape, variants={**item.variants, axis: "distinct"}, evidence=(*item.evidence, text))


def _without_captures(roles: Mapping[str, Role], manifest: Manifest | None) -> tuple[Standing, list[str]]:
    if manifest is not None and manifest.verdict is Verdict.EAGER:
        reason = next((item.eager for item in manifest.ranks if item.eager), None)
        return Standing.EAGER, [f"its manifest says so: {reason}" if reason else "its manifest says so"]
    by_role = Counter(roles.values())
    if replays := by_role[Role.REPLAY]:
        return Standing.NOT_INDEXABLE, [f"graphs are launched in {counted(replays, 'trace')}, and none is captured"]
    if eager := by_role[Role.EAGER]:
        return Standing.EAGER, [f"{counted(eager, 'trace')} of work without a graph: none captured, none launched"]
    return Standing.NOT_INDEXABLE, ["the traces hold no operator, no launch and no capture" if roles else "no trace"]


def _duplicates(findings: Iterable[Finding]) -> list[str]:
    return [
        f"{item.capture.key} is the same recording as {min(item.duplicates)}"
        for item in findings
        if item.duplicates and min(item.duplicates) < item.capture.key
    ]


def _unpaired(findings: Iterable[Finding]) -> list[str]:
    return [
        f"{item.capture.file}: {item.capture.unpaired} begins or ends of a stream capture have no partner"
        for item in findings
        if item.capture.unpaired
    ]


def _disagreeing(findings: Sequence[Finding]) -> list[str]:
    """Shapes that some ranks have and others, with captures of the same runner, have not."""
    holders: dict[str, dict[int | None, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for item in findings:
        if item.shape is not None:
            holders[str(item.shape.runner)][item.rank][item.shape.tag] += 1
    found = []
    for by_rank in holders.values():
        everywhere = {tag for tags in by_rank.values() for tag in tags}
        for rank, tags in sorted(by_rank.items(), key=lambda pair: -1 if pair[0] is None else pair[0]):
            absent = sorted(everywhere - set(tags))
            if absent:
                more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
                found.append(f"rank {rank} has no {', '.join(absent[:3])}{more}, other ranks have")
    return found


def _of_manifest(files: Sequence[File], manifest: Manifest | None) -> list[str]:
    if manifest is None:
        return []
    there = {file.path for file in files}
    found = [f"{trace.key} is in manifest.json and not there" for trace in manifest.traces if trace.key not in there]
    if manifest.verdict not in GOOD_VERDICTS:
        first = f": {manifest.reasons[0]}" if manifest.reasons else ""
        found.append(f"its manifest says {manifest.verdict.value}{first}")
    return found


def _notes(findings: Sequence[Finding], nameless: Sequence[Finding]) -> list[str]:
    equal = Counter((item.rank, item.shape.tag) for item in findings if item.shape is not None)
    found = [
        f"{count} captures of rank {rank} hold {tag}, and nothing tells them apart"
        for (rank, tag), count in equal.items()
        if count > 1
    ]
    unsure = [item for item in findings if item.size == "contradicted"]
    found += [f"{item.capture.key}: which size it holds, its events do not say" for item in unsure]
    return found


def _bounded(lines: Sequence[str]) -> list[str]:
    if len(lines) <= MAX_REASONS:
        return list(lines)
    return [*lines[:MAX_REASONS], f"... and {len(lines) - MAX_REASONS} more"]
