"""The finish's termination message: what the operator learns of an attempt's end, in at most 4096 bytes."""

from __future__ import annotations

import json
from typing import Any

from shapetrace_contract import VERSION
from shapetrace_contract.message import MAX_MESSAGE_RANKS, MAX_TERMINATION_BYTES, rank_row, shorten
from shapetrace_contract.reasons import Verdict
from shapetrace_traces.judge.verdicts import uncovered
from shapetrace_traces.manifest import Manifest, ManifestRank

from shapetrace_finish.about import blind_ranks
from shapetrace_finish.asides import find_asides

MAX_EAGER_CHARACTERS = 200
"""Of the first rank's reason; each rank's own is in the manifest."""
MAX_NOTE_CHARACTERS = 300
"""What ran where no graph is made, how many places no hook covers, and the first; all are in the manifest."""


def report(manifest: Manifest, uri: str, sha256: str) -> str:
    """The message. Above 48 ranks only those that are not Complete, with ``rest``: how many are not listed."""
    chosen = list(manifest.ranks)
    if len(chosen) > MAX_MESSAGE_RANKS:
        chosen = [item for item in chosen if item.verdict is not Verdict.COMPLETE][:MAX_MESSAGE_RANKS]
    failure = None if manifest.failure is None else manifest.failure.model_dump(by_alias=True)
    text = _text(manifest, uri, sha256, failure, chosen)
    # every character may take four bytes: first the words are shortened, then rows are left to the manifest
    for characters in (256, 128, 64):
        if _fits(text) or failure is None:
            break
        failure = {**failure, "message": shorten(failure["message"], characters)}
        text = _text(manifest, uri, sha256, failure, chosen)
    while not _fits(text) and chosen:
        chosen.pop()
        text = _text(manifest, uri, sha256, failure, chosen)
    return text


def _fits(text: str) -> bool:
    return len(text.encode()) <= MAX_TERMINATION_BYTES


def _text(manifest: Manifest, uri: str, sha256: str, failure: dict[str, Any] | None, chosen: list[ManifestRank]) -> str:
    rows = [rank_row(item.model_dump(mode="json", by_alias=True)) for item in chosen]
    value: dict[str, Any] = {
        "v": VERSION,
        "verdict": manifest.verdict.value,
        "uri": uri,
        "sha256": sha256,
        "failure": failure,
    }
    eager = next((item.eager for item in manifest.ranks if item.eager), None)
    if manifest.verdict is Verdict.EAGER and eager is not None:
        value["eager"] = shorten(eager, MAX_EAGER_CHARACTERS)
    notes = find_asides(manifest.verdict, manifest.engine.device, manifest.traces, manifest.not_planned)
    if manifest.untagged:
        notes.append(uncovered([item.caller for item in manifest.untagged]))
    if notes:
        value["note"] = shorten("; ".join(notes), MAX_NOTE_CHARACTERS)
    events = blind_ranks(manifest.ranks)
    if events is not None:
        value["gpuEvents"] = {"ok": events[0], "message": shorten(events[1], MAX_NOTE_CHARACTERS)}
    rest = len(manifest.ranks) - len(rows)
    body = {**value, "ranks": rows} if not rest else {**value, "ranks": rows, "rest": rest}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
