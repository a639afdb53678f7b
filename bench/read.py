"""What reading a trace costs: our whole index against unpacking alone, and against what others read traces with.

Interleaved, each reading in a process of its own, on one made ``.json.gz`` in Kineto's layout; medians over the rounds
of the ratio of processor time within a round. Goals: at most 7 times unpacking with isal alone; at most 0.06 of
HolisticTraceAnalysis' parser and 0.15 of TraceLens' loader; memory that grows by at most 32 MB from 10 to 500 MB of
JSON.

TraceLens is on no package index (``tracelens`` there is something else): it is measured where SHAPETRACE_TRACELENS
names a checkout of github.com/AMD-AGI/TraceLens.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import conditions, interleaved, line, median, write

from traces import write_trace

HERE = Path(__file__).parent
GOALS = {"isal": 7.0, "hta": 0.06, "tracelens": 0.15, "json": None}
"""Our time over each reader's."""
MEMORY_GOAL_MB = 32.0
SMALL_MB, LARGE_MB = 10, 500
READING_SECONDS = 600


def main(arguments: list[str]) -> int:
    """0 if every goal that could be measured is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=100, help="of JSON, for the times")
    parser.add_argument("--out", type=Path, default=Path("bench-out/read.json"))
    parser.add_argument("--readers-python", type=Path, help="an interpreter that has what bench/readers.txt lists")
    options = parser.parse_args(arguments)

    readers = _readers(options.readers_python)
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    events: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="shapetrace-read-") as folder:
        trace = Path(folder) / "trace.json.gz"
        count = write_trace(trace, options.megabytes * 10**6)
        for number, name in interleaved(tuple(readers), options.rounds):
            told = _reading(readers[name], name, trace)
            seconds[name].append(told["seconds"])
            events[name] = told["events"]
            print(f"round {number + 1}/{options.rounds} {name}: {told}", file=sys.stderr, flush=True)
        if events["shapetrace"] != count:
            raise SystemExit(f"{events['shapetrace']} events were indexed of {count}")
        trace.unlink()
        grown = {size: _memory(Path(folder), size, readers["shapetrace"]) for size in (SMALL_MB, LARGE_MB)}
    described = conditions(
        megabytes=options.megabytes, events=count, frames="88%", rounds=options.rounds, packed="isal-1", time="cpu"
    )
    ratios = {name: _ratio(seconds, name) for name in readers if name != "shapetrace"}
    growth = max(0.0, grown[LARGE_MB] - grown[SMALL_MB])
    met = {f"read-{name}": GOALS[name] is None or ratio <= GOALS[name] for name, ratio in ratios.items()}
    met["read-memory"] = growth <= MEMORY_GOAL_MB
    write(
        options.out,
        {"name": "read", "ratios": ratios, "goals": GOALS, "seconds": seconds, "events": events, "grownMB": grown,
         "growthGoalMB": MEMORY_GOAL_MB, "met": met, "conditions": described},
    )  # fmt: skip
    for name, values in seconds.items():
        print(f"{name:12} median {median(values):8.3f} s")
    for name, ratio in ratios.items():
        print(line(f"read-{name}", ratio, described))
    memory = {**described, "fromMB": SMALL_MB, "toMB": LARGE_MB, "grownMB": round(growth, 1), "goalMB": MEMORY_GOAL_MB}
    print(line("read-memory", growth / MEMORY_GOAL_MB, memory))
    print(f"missed: {', '.join(name for name, is_met in met.items() if not is_met) or 'nothing'}")
    return 0 if all(met.values()) else 1


def _readers(python: Path | None) -> dict[str, Mapping[str, str]]:
    """Reader -> environment; the interpreter is in it."""
    own = {**os.environ, "READER_PYTHON": sys.executable}
    found: dict[str, Mapping[str, str]] = dict.fromkeys(("isal", "shapetrace", "json"), own)
    if python is None:
        print("hta, tracelens: not measured, no --readers-python (make bench-read gives one)")
        return found
    found["hta"] = {**os.environ, "READER_PYTHON": str(python)}
    checkout = os.environ.get("SHAPETRACE_TRACELENS")
    if checkout and (Path(checkout) / "TraceLens").is_dir():
        found["tracelens"] = {**found["hta"], "PYTHONPATH": checkout}
    else:
        print("tracelens: not measured, SHAPETRACE_TRACELENS names no checkout of github.com/AMD-AGI/TraceLens")
    return found


def _reading(environment: Mapping[str, str], name: str, trace: Path) -> dict[str, Any]:
    command = [environment["READER_PYTHON"], str(HERE / "reading.py"), name, str(trace)]
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=READING_SECONDS, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _memory(folder: Path, megabytes: int, environment: Mapping[str, str]) -> float:
    trace = folder / f"{megabytes}.json.gz"
    write_trace(trace, megabytes * 10**6)
    grown = float(_reading(environment, "shapetrace", trace)["grownMB"])
    trace.unlink()
    print(f"{megabytes} MB of JSON: memory grew by {grown:.1f} MB", file=sys.stderr, flush=True)
    return grown


def _ratio(seconds: Mapping[str, list[float]], name: str) -> float:
    return median([ours / theirs for ours, theirs in zip(seconds["shapetrace"], seconds[name], strict=True)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
