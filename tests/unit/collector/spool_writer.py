"""An engine as the collector sees it: it writes the spool's records in the order and the way that capture does."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from shapetrace_contract import spool
from shapetrace_contract.tag import Runner, Shape


def shape(size: int, **variants: str) -> Shape:
    return Shape(Runner("Decode"), "bs", size, variants)


def raw_trace(captured: Shape, rank: int, operators: int = 20, stage: str = "capture") -> bytes:
    """A small Chrome trace with span, metadata and matmuls of the shape; the same bytes each time."""
    names = ("aten::mm", "aten::softmax", "aten::add")
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "user_annotation", "name": captured.tag, "pid": 1, "tid": 1, "ts": 0, "dur": operators + 1}
    ]
    events += [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": names[number % 3],
            "pid": 1,
            "tid": 1,
            "ts": number + 1,
            "dur": 1,
            "args": {"Input Dims": [[captured.size, 64], [64, 64]], "rank": rank},
        }
        for number in range(operators)
    ]
    metadata = {"v": 1, "tag": captured.tag, "shape": captured.to_json(), "rank": rank, "stage": stage, "epoch": 1}
    return json.dumps({"schemaVersion": 1, "shapetrace": metadata, "traceEvents": events}).encode()


class FakeRank:
    """One rank of an engine."""

    def __init__(self, root: Path, rank: int) -> None:
        self.rank = rank
        self.folder = spool.rank_folder(root, rank)
        self.sequence = 0

    def load(self, **more: Any) -> None:
        spool.write_json(
            self.folder / spool.RANK, {"rank": self.rank, "tp": self.rank, "hooks": {"torch": "applied"}} | more
        )

    def plan(self, shapes: list[Shape]) -> None:
        line = {"runner": "Decode", "epoch": 1, "unit": "bs", "shapes": [item.tag for item in shapes], "notPlanned": []}
        spool.append_line(self.folder / spool.PLAN, line)

    def trace_file(self, raw: bytes) -> Path:
        path = spool.trace_file(self.folder, self.sequence)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = spool.temporary(path)
        part.write_bytes(raw)
        part.replace(path)
        return path

    def capture(self, captured: Shape, raw: bytes | None = None, **more: Any) -> Path:
        """A trace by rename, then its line."""
        raw = raw_trace(captured, self.rank) if raw is None else raw
        path = self.trace_file(raw)
        self.line(captured, path.name, len(raw), **more)
        return path

    def lose(self, captured: Shape, error: str = "no room") -> None:
        self.line(captured, None, 0, error=error)

    def line(self, captured: Shape, file: str | None, raw_bytes: int, **more: Any) -> None:
        line = {
            "seq": self.sequence,
            "tag": captured.tag,
            "shape": captured.to_json(),
            "stage": "capture",
            "epoch": captured.epoch,
            "file": file,
            "rawBytes": raw_bytes,
            "witnesses": {"rows": captured.size},
            "dirty": [],
            "error": None,
            "timesSeconds": {"profile": 0.25},
        }
        spool.append_line(self.folder / spool.CAPTURES, line | more)
        self.sequence += 1

    def done(
        self, ok: bool = True, reason: str | None = None, records: int | None = None, eager: str | None = None
    ) -> None:
        count = self.sequence if records is None else records
        begin = {"all": count, "tagged": count, "untagged": []}
        value = {"records": count, "ok": ok, "reason": reason, "eager": eager, "captureBegin": begin}
        spool.write_json(self.folder / spool.DONE, value)


def stop(root: Path, reason: str = "Done", message: str = "") -> None:
    """What the launcher writes when the engine is gone."""
    value = {"reason": reason, "rank": None, "exitCode": 0, "signal": None, "message": message}
    spool.write_json(root / spool.STOPPED, value)


def read_drained(root: Path) -> dict[str, Any] | None:
    return spool.read_json(root / spool.DRAINED)


def incompressible(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def environment(root: Path, store: dict[str, Any], ranks: int = 2, **limits: int) -> dict[str, str]:
    """What the operator gives a collector."""
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
        "SHAPETRACE_SPOOL": str(root),
        "SHAPETRACE_RUN": json.dumps({"v": 1, "namespace": "team", "name": "run", "uid": "u-1", "attempt": 1}),
        "SHAPETRACE_STORE": json.dumps({"v": 1, **store}),
        "SHAPETRACE_ENGINE": json.dumps({"v": 1, "name": "torch", "parallelism": {"tensor": ranks}}),
        "SHAPETRACE_LIMITS": json.dumps({"v": 1, **limits}),
        "SHAPETRACE_POD_NAME": "run-pod",
        "SHAPETRACE_NODE_NAME": "node-a",
        "SHAPETRACE_POD_UID": "pod-uid-1",
        "SHAPETRACE_POD_INDEX": "0",
        "SHAPETRACE_TERMINATION_LOG": str(root / "termination-log"),
    }
