"""``engine: command``: the records that a script's ranks could not write themselves, after its exit code 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import spool
from shapetrace_contract.tag import Shape


def complete(folder: Path) -> None:
    """Write the missing ``plan.jsonl`` and ``done.json`` of every rank that has a record.

    A script that neither called ``plan`` nor has sizes in ``capture.targets`` planned what it captured.
    """
    processes = [spool.read_json(path) or {} for path in sorted(folder.glob("process-*.json"))]
    for rank, rank_folder in spool.rank_folders(folder).items():
        record = spool.read_json(rank_folder / spool.RANK)
        if record is None or (rank_folder / spool.DONE).exists():
            continue
        lines = list(spool.read_lines(rank_folder / spool.CAPTURES))
        if record.get("asked", True) and not (rank_folder / spool.PLAN).exists():
            for line in plan_of(lines):
                spool.append_line(rank_folder / spool.PLAN, line)
        own = [process for process in processes if process.get("rank") == rank]
        spool.write_json(rank_folder / spool.DONE, done_of(len(lines), own))


def plan_of(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The plan lines that say: what was captured is what was planned."""
    groups: dict[tuple[str, str, int], list[str]] = {}
    for line in lines:
        shape = Shape.from_tag(str(line["tag"]))
        tags = groups.setdefault((str(shape.runner), shape.unit, shape.epoch), [])
        if shape.tag not in tags:
            tags.append(shape.tag)
    return [
        {"runner": runner, "epoch": epoch, "unit": unit, "shapes": tags, "notPlanned": []}
        for (runner, unit, epoch), tags in groups.items()
    ]


def done_of(records: int, processes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """``done.json`` from the process records of a rank: it is ``ok`` if none of them notes an error."""
    counted = {"all": 0, "tagged": 0, "measured": 0}
    untagged: list[str] = []
    errors: list[str] = []
    for process in processes:
        begun = process.get("captureBegin") or {}
        for key in counted:
            counted[key] += int(begun.get(key) or 0)
        untagged += [caller for caller in begun.get("untagged") or [] if caller not in untagged]
        errors += [str(error) for error in process.get("errors") or []]
    return {
        "records": records,
        "ok": not errors,
        "reason": ("; ".join(errors) or "Done")[:1000],
        "eager": None,
        "captureBegin": {**counted, "untagged": untagged},
        "gpuEvents": None,
    }
