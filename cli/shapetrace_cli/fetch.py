"""``shapetrace fetch``: an attempt's traces, verified, into a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from shapetrace_contract import keys
from shapetrace_contract.message import counted
from shapetrace_traces.regular import read_regular
from shapetrace_traces.store import ObjectMissing, StoreError, StoreUnreachable

from shapetrace_cli.download import Downloader, Outcome, Wanted, claimed, write_whole
from shapetrace_cli.errors import CliError, UsageError
from shapetrace_cli.listing import Listing, safe_key
from shapetrace_cli.report import Reporter
from shapetrace_cli.source import Source, read_manifest, store_fault
from shapetrace_cli.text import plain, size_text

_SIDE_OBJECT_BYTES = 128 * 1024 * 1024
"""An engine's log is at most 64 MiB; anything far beyond is none of ours."""
_MAX_SIDE_OBJECTS = 10_000


@dataclass
class Fetched:
    """What a fetch did."""

    listing: Listing
    fetched: int = 0
    kept: int = 0
    size_bytes: int = 0
    faults: list[Outcome] = field(default_factory=list)
    side_faults: list[Outcome] = field(default_factory=list)
    """Logs and the like: worth a warning, no failure, because no manifest vouches for them."""


def fetch(
    source: Source,
    folder: Path,
    *,
    sha256: str,
    logs: bool,
    parts: bool,
    parallel: int,
    quiet: bool,
    stderr: IO[str],
) -> Fetched:
    """Fetch what the manifest lists. ``manifest.json`` is written last, and only when everything is there and right."""
    body, listing = read_manifest(source, sha256)
    with claimed(folder):
        _refuse_another_run(folder, listing)
        side = _side_objects(source, logs, parts)
        wanted = [Wanted(trace.key, trace.sha256, trace.size_bytes) for trace in listing.traces] + side
        downloader = Downloader(
            folder,
            source.store.open,
            missing=ObjectMissing,
            fault=StoreError,
            transient=StoreUnreachable,
            parallel=parallel,
        )
        result = Fetched(listing)
        title = plain(listing.run.get("name") or folder.name, 60)
        total_bytes = sum(item.size_bytes or 0 for item in wanted)
        with Reporter(title, len(wanted), total_bytes, stderr, quiet=quiet) as reporter:
            if listing.traces:
                reporter.begin(_begin([item for item in wanted if item.sha256], downloader), 0)
            unknown = {item.key: item for item in wanted}
            for outcome in downloader.run(wanted):
                unknown.pop(outcome.wanted.key, None)
                _count(result, outcome)
                if outcome.state == "faulty":
                    reporter.line(f"{outcome.wanted.key}: {outcome.message}")
                reporter.step(outcome.wanted.size_bytes or 0)
            for item in unknown.values():  # nothing counts as fetched because nobody said otherwise
                _count(result, Outcome(item, "faulty", "not fetched"))
        if not result.faults:
            try:
                write_whole(folder / keys.MANIFEST, body)
            except OSError as error:
                place = error.filename or folder / keys.MANIFEST
                raise CliError(
                    f"the manifest could not be written ({place}: {error.strerror or error}); what it lists is there",
                    "The same command goes on where it was.",
                ) from None
    return result


def _begin(wanted: Sequence[Wanted], downloader: Downloader) -> str:
    """What is about to happen: of an earlier fetch there may be some traces, or all."""
    lacking = [item for item in wanted if not downloader.is_there(item)]
    there = len(wanted) - len(lacking)
    if not lacking:
        return f"checking {counted(there, 'trace')} that {'is' if there == 1 else 'are'} there"
    text = f"fetching {counted(len(lacking), 'trace')}, {size_text(sum(item.size_bytes or 0 for item in lacking))}"
    return f"{text}; checking {there} that {'is' if there == 1 else 'are'} there" if there else text


def _count(result: Fetched, outcome: Outcome) -> None:
    if outcome.state == "faulty":
        (result.faults if outcome.wanted.sha256 else result.side_faults).append(outcome)
    elif outcome.state == "kept":
        result.kept += 1
    elif outcome.state == "fetched":
        result.fetched += 1
        result.size_bytes += outcome.size_bytes


def _side_objects(source: Source, logs: bool, parts: bool) -> list[Wanted]:
    """What lies beside the traces; no manifest has its hash, so it is fetched anew each time."""
    side = [Wanted(keys.ENVIRONMENT, limit_bytes=_SIDE_OBJECT_BYTES, optional=True)]
    try:
        for prefix in (*([keys.LOGS] if logs else []), *([keys.PARTS] if parts else [])):
            for info in source.store.list(prefix):
                if len(side) > _MAX_SIDE_OBJECTS:
                    raise CliError(f"{plain(source.location, 300)} has more than {_MAX_SIDE_OBJECTS} logs and parts")
                side.append(Wanted(safe_key(info.key), limit_bytes=_SIDE_OBJECT_BYTES, optional=True))
    except StoreError as error:
        if logs or parts:
            raise store_fault(error, source.store) from None
    except ValueError as error:
        raise CliError(plain(error, 300)) from None
    return side


def _refuse_another_run(folder: Path, listing: Listing) -> None:
    """A folder holds one attempt: two runs' traces under one manifest would be a lie."""
    try:
        there = json.loads(read_regular(folder / keys.MANIFEST, keys.MAX_MANIFEST_BYTES))["run"]
        other = {key: there.get(key) for key in ("uid", "attempt")}
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        other = {}
    mine = listing.raw.get("run")
    if not isinstance(mine, dict) or other != {key: mine.get(key) for key in ("uid", "attempt")}:
        raise UsageError(
            f"{folder} holds the {keys.MANIFEST} of another run or attempt; nothing was changed",
            "Name another folder, or remove that one.",
        )


def ending(result: Fetched, folder: Path) -> Sequence[str]:
    """The last lines for a person: counts, then every object that is not right, by name."""
    total = len(result.listing.traces)
    lines = [
        f"warning: {outcome.wanted.key}: {outcome.message} (no part of the manifest)" for outcome in result.side_faults
    ]
    if not total:
        return [*lines, f"nothing was captured: the manifest lists no trace; what else the run left is in {folder}"]
    if not result.faults:
        return [*lines, f"{total} of {total} traces are in {folder}, every SHA-256 verified ({result.kept} were there)"]
    lines += [f"{outcome.wanted.key}: {outcome.message}" for outcome in result.faults]
    right = total - len(result.faults)
    return [*lines, f"{right} of {total} traces are in {folder}; {len(result.faults)} are not right, named above"]
