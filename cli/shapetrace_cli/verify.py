"""``shapetrace verify``: every object that a manifest lists, read and compared; nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, Any

from shapetrace_contract import VERSION
from shapetrace_contract.message import counted
from shapetrace_traces.manifest import Manifest, ManifestTrace, manifest_fault
from shapetrace_traces.store import StoreError, StoreUnreachable
from shapetrace_traces.verify import MAX_LATE, Checked, check_trace, count_faults, digest_fault, late_objects

from shapetrace_cli.errors import CliError
from shapetrace_cli.parallel import in_threads
from shapetrace_cli.report import Reporter
from shapetrace_cli.source import Source, is_folder, read_manifest, store_fault
from shapetrace_cli.text import plain, size_text


@dataclass
class Verified:
    """What a verification found."""

    name: str
    verdict: str
    total: int
    checked: list[Checked] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    manifest_faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be looked at, of no single object."""

    @property
    def wrong(self) -> list[Checked]:
        """Objects that are missing or not what they should be."""
        return sorted((item for item in self.checked if item.faults), key=lambda item: item.key)

    @property
    def is_right(self) -> bool:
        """Whether everything that the manifest lists is there and right."""
        return not self.wrong and not self.manifest_faults and len(self.checked) == self.total

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "v": VERSION,
            "ok": self.is_right,
            "run": self.name,
            "verdict": self.verdict,
            "traces": self.total,
            "verified": len(self.checked) - len(self.wrong),
            "manifestFaults": self.manifest_faults,
            "wrong": [
                {"key": item.key, "missing": item.is_missing, "faults": list(item.faults)} for item in self.wrong
            ],
            "late": self.late,
            "notes": [{"key": item.key, "note": item.note} for item in self.checked if item.note]
            + [{"key": None, "note": note} for note in self.notes],
        }


def verify(source: Source, *, sha256: str, parallel: int, quiet: bool, stderr: IO[str]) -> Verified:
    """Check every object of an attempt. :class:`CliError` where the manifest cannot be read or the store fails."""
    body, listing = read_manifest(source, sha256)
    try:
        manifest = Manifest.from_bytes(body)
    except ValueError as error:
        why = plain(manifest_fault(error), 300)
        raise CliError(f"the manifest in {plain(source.location, 300)} cannot be used: {why}") from None
    name = f"{manifest.run.namespace}/{manifest.run.name} attempt {manifest.run.attempt}"
    result = Verified(plain(name, 300), manifest.verdict.value, len(listing.traces))
    if fault := digest_fault(listing.raw):
        result.manifest_faults.append(fault)
    result.manifest_faults += count_faults(listing.raw)
    total_bytes = sum(entry.stored_bytes for entry in manifest.traces)
    run = manifest.run

    refused: list[StoreError] = []

    def check(entry: ManifestTrace) -> Checked:
        try:
            try:
                return check_trace(source.store, entry, run.uid, run.attempt)
            except StoreUnreachable:
                # once more; a store that is down stays so
                return check_trace(source.store, entry, run.uid, run.attempt)
        except StoreError as error:
            if isinstance(error, StoreUnreachable) and not is_folder(source.store):
                raise  # the others would each wait as long
            refused.append(error)
            return Checked(entry.key, 0, (f"cannot be read: {plain(error, 400)}",))

    with Reporter(result.name, len(manifest.traces), total_bytes, stderr, quiet=quiet) as reporter:
        reporter.begin(f"verifying {counted(len(manifest.traces), 'trace')}, {size_text(total_bytes)}")
        try:
            for checked in in_threads(check, manifest.traces, parallel):
                result.checked.append(checked)
                reporter.step(checked.bytes)
        except StoreError as error:
            raise _stopped(result, store_fault(error, source.store)) from None
        if refused and len(refused) == len(manifest.traces) and not is_folder(source.store):
            raise store_fault(refused[0], source.store)  # it is not about one object
        try:
            result.late = late_objects(source.store, manifest)
            if len(result.late) >= MAX_LATE:
                result.notes.append(f"{MAX_LATE} objects or more came late: the first are named")
        except StoreError as error:
            result.notes.append(f"whether other objects came late is not known: {plain(error, 400)}")
    return result


def _stopped(result: Verified, fault: CliError) -> CliError:
    """The fault that ended a verification, with what was known by then."""
    named = ", ".join(item.key for item in result.wrong[:5])
    known = f"{len(result.checked)} of {result.total} traces were read before{f'; wrong are {named}' if named else ''}"
    return CliError(f"{fault.message} ({plain(known, 1000)})", fault.hint, fault.exit_code)


def lines(result: Verified, limit: int = 50) -> list[str]:
    """For a person: what is wrong by name, what came late, and the count last."""
    found = [f"manifest.json: {fault}" for fault in result.manifest_faults]
    for items in (
        [f"{item.key}: {'missing: ' if item.is_missing else ''}{'; '.join(item.faults)}" for item in result.wrong],
        [f"{key}: late: no part of the manifest" for key in result.late],
        [f"{item.key}: {item.note}" for item in result.checked if item.note] + result.notes,
    ):
        found += items[:limit]
        if len(items) > limit:
            found.append(f"... and {len(items) - limit} more; -o json has them")
    found.append(_last_line(result))
    return [plain(line, 600) for line in found]


def _last_line(result: Verified) -> str:
    """The result: of a verification that failed never the run's verdict alone, which may be Complete."""
    if result.is_right:
        return f"{result.name}: {result.verdict}, {result.total} of {result.total} traces verified"
    wrong = len(result.wrong) + result.total - len(result.checked)
    what = [f"{wrong} of {counted(result.total, 'trace')} {'is' if wrong == 1 else 'are'} not what the manifest says"]
    itself = ["the manifest disagrees with itself"] if result.manifest_faults else []
    return f"WRONG: {', and '.join((what if wrong else []) + itself)} (the run's verdict was {result.verdict})"
