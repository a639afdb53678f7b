"""Traces and manifests in an attempt's folder, as a finished run leaves them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapetrace_contract import keys
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.manifest import digest_of_json

UID = "0f3c9f6e-5a1b-4c0e-9d57-0123456789ab"
RELATIVE = f"profiling/demo/{UID}/attempt-1"


def stored_trace(root: Path, shape: Shape, rank: int, raw: bytes) -> dict[str, Any]:
    """Store a trace under its key in ``root``; what a manifest says of it."""
    key = keys.trace_key(rank, shape.tag)
    body = gzip.compress(raw, mtime=0)
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
    return {
        "key": key,
        "sha256": hashlib.sha256(body).hexdigest(),
        "bytes": len(body),
        "rawSha256": hashlib.sha256(raw).hexdigest(),
        "rawBytes": len(raw),
        "tag": shape.tag,
        "shape": shape.to_json(),
        "rank": rank,
        "stage": "capture",
        "epoch": 1,
        "support": {"size": "proven", "variants": {"lora": "distinct"}},
    }


def trace_text(shape: Shape, rank: int) -> bytes:
    """What our capture writes: the tag in metadata and as a span."""
    span = {"ph": "X", "cat": "user_annotation", "name": shape.tag, "pid": 1, "tid": 1, "ts": 1.0, "dur": 9.0}
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 2.0, "dur": 1.0}
    own = {"v": 1, "tag": shape.tag, "shape": shape.to_json(), "rank": rank, "stage": "capture", "epoch": 1}
    return json.dumps({"shapetrace": own, "traceEvents": [span, operator], "trace_id": f"{shape.tag} {rank}"}).encode()


def entry(root: Path, rank: int, size: int, text: bytes | None = None) -> dict[str, Any]:
    shape = Shape(Runner("DecodeRunner"), "bs", size, {"lora": "lora"})
    raw = trace_text(shape, rank) if text is None else text
    return {**stored_trace(root, shape, rank, raw), "alias": "a"}


def write(root: Path, traces: list[dict[str, Any]], **more: Any) -> None:
    run_id = {"namespace": "profiling", "name": "demo", "uid": UID, "attempt": 1}
    value = {"v": 1, "run": run_id, "verdict": "Complete", "digest": digest_of_json(traces), "traces": traces}
    (root / "manifest.json").write_text(json.dumps({**value, "engine": {"name": "torch"}, **more}))


def _trace(root: Path, rank: int, size: int, lora: str) -> dict[str, Any]:
    shape = Shape(Runner("DecodeRunner"), "bs", size, {"lora": lora})
    raw = json.dumps({"traceEvents": [], "shapetrace": {"tag": shape.tag, "rank": rank}}).encode()
    return {**stored_trace(root, shape, rank, raw), "dirty": []}


def make_attempt(root: Path, change: Callable[[dict[str, Any]], None] = lambda manifest: None) -> dict[str, Any]:
    """Two ranks x two sizes x lora on and off in ``root``; ``change`` may spoil the manifest before it is written."""
    traces = [_trace(root, rank, size, lora) for rank in (0, 1) for size in (1, 2) for lora in ("lora", "nolora")]
    manifest: dict[str, Any] = {
        "v": 1,
        "run": {"namespace": "profiling", "name": "demo", "uid": UID, "attempt": 1},
        "verdict": "Complete",
        "expected": 8,
        "captured": 8,
        "uploaded": 8,
        "failed": 0,
        "bytes": sum(entry["bytes"] for entry in traces),
        "ranks": [{"rank": rank, "verdict": "Complete", "expected": 4, "uploaded": 4} for rank in (0, 1)],
        "traces": traces,
        "lost": [],
        "reasons": [],
        "failure": None,
    }
    change(manifest)
    root.mkdir(parents=True, exist_ok=True)
    (root / "manifest.json").write_text(json.dumps(manifest))
    (root / "environment.json").write_text('{"v": 1}')
    (root / "logs/pod-0").mkdir(parents=True)
    (root / "logs/pod-0/engine.log.gz").write_bytes(gzip.compress(b"hello\n", mtime=0))
    (root / "parts").mkdir()
    (root / "parts/00000.json").write_text("{}")
    return manifest


def files(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` by its relative name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
