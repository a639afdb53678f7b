"""An independent check of fetched traces: standard library only, no code and no grammar shared with the product.

It reads a folder as `shapetrace fetch` leaves it and answers, for each trace of the torch engine, whether five things
agree: the tag in the key, the metadata inside the trace, the span, the rows of the matrix products, and the operators
that the variant must have.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

FILE = re.compile(r"traces/rank-(\d{5})/((\w+?)(?:-[a-z0-9]+)*__bs_(\d+)((?:__[a-z]+-[a-z]+)*))\.json\.gz")


def differences(folder: Path) -> list[str]:
    """What does not agree, a line each; empty when everything does."""
    manifest = json.loads((folder / "manifest.json").read_text())
    found = [f"no trace in {folder}"] if not manifest["traces"] else []
    for entry in manifest["traces"]:
        found += [f"{entry['key']}: {fault}" for fault in _faults(folder / entry["key"], entry)]
    on_disk = {str(path.relative_to(folder)) for path in (folder / "traces").rglob("*.gz")}
    listed = {entry["key"] for entry in manifest["traces"]}
    return found + [f"listed or stored, not both: {key}" for key in sorted(on_disk ^ listed)]


def _faults(path: Path, entry: dict[str, Any]) -> list[str]:
    match = FILE.fullmatch(entry["key"])
    if match is None:
        return ["the key is not of the documented form"]
    rank, tag, size = int(match[1]), match[2], int(match[4])
    variants = dict(pair.split("-", 1) for pair in match[5].split("__") if pair)
    packed = path.read_bytes()
    faults = []
    if hashlib.sha256(packed).hexdigest() != entry["sha256"] or len(packed) != entry["bytes"]:
        faults.append("SHA-256 or length differ from the manifest")
    trace = json.loads(gzip.decompress(packed))
    inside = trace.get("shapetrace") or {}
    if inside.get("tag") != tag or inside.get("rank") != rank or (inside.get("shape") or {}).get("size") != size:
        faults.append(f"the metadata says {inside.get('tag')} of rank {inside.get('rank')}")
    if (inside.get("shape") or {}).get("variants") != variants:
        faults.append(f"the metadata's variants are {(inside.get('shape') or {}).get('variants')}")
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    spans = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    if spans.count(tag) != 1 or spans.count(f"capture_{size}_FULL") != 1:
        faults.append(f"the spans are {sorted(set(spans))[:6]}")
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    rows = Counter(
        event["args"]["Input Dims"][0][0]
        for event in operators
        if event["name"] == "aten::mm" and event["args"].get("Input Dims")
    )
    if set(rows) != {size}:
        faults.append(f"rows of aten::mm are {dict(rows)}")
    names = {event["name"] for event in operators}
    for axis, value, operator in (("attention", "sparse", "aten::topk"), ("lora", "lora", "aten::index_select")):
        if axis in variants and (operator in names) != (variants[axis] == value):
            faults.append(f"{axis} {variants[axis]}, and {operator} is {'there' if operator in names else 'missing'}")
    return faults
