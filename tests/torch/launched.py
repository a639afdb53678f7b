"""The product's launcher around the product's engine, without a collector; and a reader of what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

VARIANTS = [{"axis": "lora", "values": ["lora", "nolora"]}, {"axis": "attention", "values": ["dense", "sparse"]}]
SMALL = ["--layers", "2", "--hidden", "64", "--heads", "4", "--vocabulary", "128", "--context", "16", "--topk", "4"]


def launch(
    spool: Path,
    args: list[str] | None = None,
    *,
    name: str = "torch",
    tensor: int = 1,
    sizes: list[int] | None = None,
    variants: list[dict[str, Any]] | None = None,
    targets: list[dict[str, Any]] | None = None,
    path: Path | None = None,
    drain_seconds: int = 0,
    **capture: Any,
) -> dict[str, Any]:
    """Run to the end; the exit code, all output and the message left; it waits ``drain_seconds`` for a collector."""
    if targets is None:
        targets = [{"runner": "decode", "unit": "bs", "sizes": sizes or [1, 2], "variants": variants or []}]
    message = spool.parent / f"{spool.name}-message"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(spool.parent),
        "PYTHONPATH": os.pathsep.join([*([str(path)] if path else []), *filter(None, sys.path)]),
        "SHAPETRACE_SPOOL": str(spool),
        "SHAPETRACE_ENGINE": json.dumps({"name": name, "args": args or SMALL, "parallelism": {"tensor": tensor}}),
        "SHAPETRACE_CAPTURE": json.dumps({"targets": targets, **capture}),
        "SHAPETRACE_LIMITS": json.dumps({"uploadTimeoutSeconds": drain_seconds}),
        "SHAPETRACE_TERMINATION_LOG": str(message),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "shapetrace_launcher"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return {"code": ran.returncode, "output": ran.stdout, **json.loads(message.read_text())}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def folder(spool: Path, rank: int = 0) -> Path:
    return spool / f"rank-{rank:05d}"


def traces(spool: Path, rank: int = 0) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(record, trace) of every capture of a rank that has a file."""
    found = []
    for record in lines(folder(spool, rank) / "captures.jsonl"):
        if record["file"]:
            raw = (folder(spool, rank) / record["file"]).read_bytes()
            assert len(raw) == record["rawBytes"]
            found.append((record, json.loads(raw)))
    return found


def events(trace: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def operators(trace: dict[str, Any]) -> list[str]:
    """The operators in the order in which they began."""
    return [event["name"] for event in sorted(events(trace, "cpu_op"), key=lambda event: event["ts"])]
