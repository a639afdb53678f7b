"""An attempt in a folder store, written the way a collector writes it: by the collector's own record and part."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from shapetrace_collector import part
from shapetrace_collector.record import parse
from shapetrace_contract import keys
from shapetrace_contract.settings import CaptureSettings, EngineSettings, RunId, StoreSettings
from shapetrace_contract.tag import Runner, Shape
from shapetrace_finish.__main__ import main
from shapetrace_traces.index import index_trace
from shapetrace_traces.manifest import Manifest
from shapetrace_traces.store import Store, open_store

RUN = RunId("team", "quickstart", "4c1b0f7e-0000-4000-8000-000000000001", 1)


def shape(size: int, attention: str = "dense", lora: str = "nolora") -> Shape:
    return Shape(Runner("DecodeRunner"), "bs", size, {"attention": attention, "lora": lora})


SHAPES = [
    shape(size, attention, lora)
    for size in (1, 2, 4)
    for attention in ("dense", "sparse")
    for lora in ("lora", "nolora")
]


def trace(label: Shape, rank: int, really: Shape | None = None) -> bytes:
    """A Chrome trace that is labelled ``label`` in metadata and span, and in which ``really`` ran."""
    content = really or label
    calls: list[tuple[str, list[list[int]]]] = []
    for _ in range(2):
        calls.append(("aten::linear", [[content.size, 64], [192, 64], []]))
        calls.append(("aten::addmm", [[192], [content.size, 64], [64, 192]]))
        if content.variants["attention"] == "sparse":
            calls.append(("aten::topk", []))
        calls.append(("aten::softmax", []))
        if content.variants["lora"] == "lora":
            calls.append(("aten::index_select", []))
    where = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = [{**where, "cat": "user_annotation", "name": label.tag, "ts": 1, "dur": 99}]
    for number, (name, dims) in enumerate(calls):
        args = {"Input Dims": dims, "rank": rank}
        events.append({**where, "cat": "cpu_op", "name": name, "ts": 2 + number, "dur": 0.5, "args": args})
    metadata = {
        "v": 1,
        "tag": label.tag,
        "shape": label.to_json(),
        "rank": rank,
        "stage": "capture",
        "epoch": label.epoch,
    }
    return json.dumps({"schemaVersion": 1, "shapetrace": metadata, "traceEvents": events}).encode()


class Attempt:
    """One attempt's folder and the environment of its finish."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "termination"
        self.store_settings = StoreSettings(kind="folder", path=str(root / "store"))
        self.engine = EngineSettings(name="torch", parallelism={"tensor": 2})
        self.capture = CaptureSettings()
        self.store: Store = open_store(self.store_settings, RUN, {})

    @property
    def folder(self) -> Path:
        return Path(self.store.location)

    @property
    def environment(self) -> dict[str, str]:
        settings = (RUN, self.store_settings, self.engine, self.capture)
        return {**{item.ENV: item.to_env() for item in settings}, "SHAPETRACE_TERMINATION_LOG": str(self.log)}

    @property
    def message(self) -> dict[str, Any]:
        return dict(json.loads(self.log.read_text()))

    @property
    def manifest(self) -> Manifest:
        return Manifest.from_bytes(self.store.get(keys.MANIFEST))

    shapes = SHAPES

    def claim(self) -> None:
        self.store.put(keys.claim_key(0), b'{"podUid": "pod"}')

    def put_trace(self, label: Shape, raw: bytes, rank: int) -> dict[str, Any]:
        """Store a trace; the collector's ``uploaded`` line without the index."""
        metadata = {
            "shapetrace-run": RUN.uid,
            "shapetrace-attempt": "1",
            "shapetrace-rank": str(rank),
            "shapetrace-tag": label.tag,
            "shapetrace-raw-sha256": hashlib.sha256(raw).hexdigest(),
        }
        key = keys.trace_key(rank, label.tag)
        stored = self.store.put(key, gzip.compress(raw, mtime=0), metadata=metadata)
        line = {"key": stored.key, "sha256": stored.sha256, "bytes": stored.bytes}
        return {**line, "rawSha256": metadata["shapetrace-raw-sha256"], "rawBytes": len(raw)}

    def finish(self) -> int:
        """The finish as the pod runs it: its exit code."""
        return main(self.environment, sleep=lambda seconds: None)

    def put_both(self, **more: Any) -> None:
        """Everything that the ranks of a run leave."""
        self.put_rank(0, **more)
        self.put_rank(1, **more)

    def put_rank(
        self,
        rank: int,
        shapes: Sequence[Shape] = SHAPES,
        *,
        really: Mapping[Shape, Shape] | None = None,
        with_part: bool = True,
        indexed: bool = True,
        lost: Sequence[Shape] = (),
        **more: Any,
    ) -> None:
        """Everything a rank leaves. ``more`` replaces fields of the part."""
        stored, records = {}, []
        for number, label in enumerate(shapes):
            line = {"seq": number, "tag": label.tag, "shape": label.to_json(), "stage": "capture", "epoch": label.epoch}
            line |= {"file": f"{number:06d}.json", "witnesses": {"rows": label.size, "graph": False, "device": "cpu"}}
            line |= {"dirty": [], "error": None, "timesSeconds": {}}
            if label in lost:
                line |= {"file": None, "error": "no room in the spool"}
            else:
                raw = trace(label, rank, (really or {}).get(label))
                uploaded = self.put_trace(label, raw, rank)
                stored[f"{number:06d}.json"] = {**uploaded, "index": index_trace(raw) if indexed else None}
            records.append(parse(rank, line))
        whole = part.build(
            rank,
            record={
                "v": 1,
                "rank": rank,
                "tp": rank,
                "pp": 0,
                "dp": 0,
                "ep": 0,
                "node": "node-a",
                "hooks": {"a": "applied"},
            },
            processes=[
                {"v": 1, "pid": 11 + pid, "rank": pid, "versions": {"torch": "2.6"}, "errors": []} for pid in (0, 1)
            ],
            plan=[
                {
                    "runner": "DecodeRunner",
                    "epoch": 1,
                    "unit": "bs",
                    "shapes": [item.tag for item in shapes],
                    "notPlanned": [],
                }
            ],
            done={
                "records": len(shapes),
                "ok": True,
                "reason": "Done",
                "eager": None,
                "captureBegin": {"untagged": []},
            },
            stopped={"reason": "Done", "rank": None, "exitCode": None, "signal": None, "message": ""},
            records=records,
            stored=stored,
            refusals={},
            orphans=[],
            missing=0,
        )
        if with_part:
            self.store.put(keys.part_key(rank), part.to_bytes({**whole, **more}))


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    made = Attempt(tmp_path)
    made.claim()
    return made
