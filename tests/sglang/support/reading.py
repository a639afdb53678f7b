"""What the spool says, and what a trace's events show: read without our code for tags, so that both can be compared."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.model import CHUNK, MARKERS, WIDTH


@dataclass(frozen=True)
class Trace:
    """One trace file: its record, and what its events show."""

    record: dict[str, Any]
    rows: int
    forwards: int
    variants: dict[str, str]
    spans: tuple[str, ...]
    operators: frozenset[str]
    frames: tuple[str, ...]

    @property
    def tag(self) -> str:
        return str(self.record["tag"])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rank(folder: Path, number: int = 0) -> Path:
    return folder / "spool" / f"rank-{number:05d}"


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def processes(folder: Path) -> list[dict[str, Any]]:
    return [load(path) for path in sorted((folder / "spool").glob("process-*.json"))]


def records(folder: Path, number: int = 0) -> list[dict[str, Any]]:
    return lines(rank(folder, number) / "captures.jsonl")


def planned(folder: Path, number: int = 0) -> list[str]:
    return [tag for line in lines(rank(folder, number) / "plan.jsonl") for tag in line["shapes"]]


def traces(folder: Path, number: int = 0) -> list[Trace]:
    """The traces of a rank, in the order of their records."""
    return [_trace(record, rank(folder, number)) for record in records(folder, number) if record["file"]]


def _trace(record: dict[str, Any], folder: Path) -> Trace:
    content = load(folder / record["file"])
    assert content["shapetrace"]["tag"] == record["tag"], "the metadata is of another capture"
    events = [event for event in content["traceEvents"] if event.get("ph") == "X"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    # one product of the model's own width: its first operand has the rows
    dims = [event["args"]["Input Dims"] for event in operators if event["name"] == "aten::mm"]
    products = [left[0] for left, right, *_ in dims if right == [WIDTH, WIDTH]]
    assert len(set(products)) == 1, f"{record['tag']}: forwards of {products} rows in one window"
    names = frozenset(event["name"] for event in operators)
    shown: dict[str, str] = {}
    for (axis, value), operator in MARKERS.items():
        if f"aten::{operator}" in names:
            assert axis not in shown, f"{record['tag']}: two variants at once"
            shown[axis] = value
    chunks = sum(event["name"] == f"aten::{CHUNK}" for event in operators) // len(products)
    if chunks:
        shown["prefix"] = f"chunked_prefix~3a{chunks}"
    return Trace(
        record,
        products[0],
        len(products),
        shown,
        tuple(event["name"] for event in events if event.get("cat") == "user_annotation"),
        names,
        tuple(event["name"] for event in events if event.get("cat") == "python_function"),
    )


def said(tag: str) -> tuple[str, str, int, dict[str, str]]:
    """Runner, unit, size and variants of a tag, by the grammar in docs/contract.md."""
    runner, size, *pairs = tag.split("__")
    unit, number = size.split("_")
    variants = dict(pair.split("-", 1) for pair in pairs)
    variants.pop("epoch", None)
    return runner, unit, int(number), variants


def width(tag: str) -> int:
    """Tokens of a request, by the runner's name."""
    found = re.search(r"-w(\d+)", said(tag)[0])
    return int(found[1]) if found else 1


def own_frames(trace: Trace) -> set[tuple[str, str]]:
    """(file, function) of the frames of our package; a frame is ``path(line): function``."""
    parts = [frame.partition("): ") for frame in trace.frames if "shapetrace_capture/" in frame]
    return {(Path(place.rpartition("(")[0]).name, function) for place, _, function in parts}
