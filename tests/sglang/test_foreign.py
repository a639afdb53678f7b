"""What SGLang writes by itself, on its real classes, through ``shapetrace index`` and ``shapetrace relabel``."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from conftest import Ran
from support.model import MARKERS, WIDTH
from test_capture import release

SHAPETRACE = Path(__file__).parents[2] / ".venv/bin/shapetrace"
"""In the development environment: SGLang's has none of the libraries that read traces."""


def shapetrace(*arguments: object) -> tuple[int, Any]:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(SHAPETRACE), *map(str, arguments), "-o", "json"],
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def truth(path: Path) -> tuple[int, str | None]:
    """Size and attention by the events, read without our code."""
    events = [
        event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"
    ]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    dims = [event["args"]["Input Dims"] for event in operators if event["name"] == "aten::mm"]
    rows = [left[0] for left, right, *_ in dims if right == [WIDTH, WIDTH]]
    assert len(rows) == 1
    names = {event["name"] for event in operators}
    shown = [value for (axis, value), name in MARKERS.items() if axis == "attention" and f"aten::{name}" in names]
    return rows[0], shown[0] if shown else None


def profiles(ran: Ran, scenario: str) -> Path:
    return ran.folder(scenario) / "traces"


def test_its_traces_of_each_size_hold_what_index_says_and_relabel_repairs_them(sglang: Ran, tmp_path: Path) -> None:
    if release(sglang.version) < (0, 5, 18):
        assert not profiles(sglang, "upstream_attention").exists(), "this version writes none"
        return
    place = profiles(sglang, "upstream_attention")
    code, report = shapetrace("index", place)
    slips = release(sglang.version) <= (0, 5, 21)
    assert (code, report["verdict"]) == ((1, "Mislabelled") if slips else (0, "Complete"))
    assert len(report["captures"]) == (8 if slips else 16)
    for item in report["captures"]:
        measured = item["measured"]
        assert (measured["size"], measured["variants"].get("attention")) == truth(place / item["file"]), item
    code, copies = shapetrace("relabel", place, tmp_path / "out")
    assert (code, copies["refused"]) == (0, {})
    assert shapetrace("index", tmp_path / "out")[1]["verdict"] == "Complete"
    for copy in copies["copies"]:
        size, attention = truth(tmp_path / "out" / copy["to"])
        assert copy["tag"] == f"DecodeCudaGraphRunner__bs_{size}__attention-{attention}"


def test_what_it_names_rightly_is_not_condemned(sglang: Ran) -> None:
    if release(sglang.version) < (0, 5, 18):
        assert not profiles(sglang, "upstream_no_axis").exists(), "this version writes none"
        return
    for scenario in ("upstream_no_axis", "upstream_streams", "upstream_greedy"):
        code, report = shapetrace("index", profiles(sglang, scenario))
        assert (code, report["verdict"], report["reasons"]) == (0, "Complete", []), scenario
