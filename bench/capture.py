"""What it costs to record every captured shape, against SGLang's own way of doing it.

In one run, interleaved, each in a process forked after the imports, the real ``DecodeCudaGraphRunner.capture()`` and
full backend of SGLang around the same model on a CPU:

- ``none``: no profiler.
- ``sglang``: ``SGLANG_GRAPH_BATCH_CAPTURE=1``: one long-lived scheduled profiler, all flags, and its ``.json.gz``.
  Its summary tables, which come once at the end, are left out.
- ``shapetrace``: our hooks with the same flags, and the real collector beside it; the time ends when the last finished
  ``.json.gz`` is in the store.
- ``floor``: SGLang's profiler on, nothing exported.

The figure is the added time, total minus ``none`` of the same round: ours over SGLang's, the median over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from collecting import collector
from figures import conditions, interleaved, line, median, write

MODES = ("none", "sglang", "shapetrace", "floor")
SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
ENDS_SECONDS = 120
"""Until all traces of a run must be in the store: many times what it takes."""
GOAL = 0.25


def main(arguments: list[str]) -> int:
    """0 if the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("bench-out/capture.json"))
    parser.add_argument("--collector-python", default=sys.executable, help="an interpreter that has the collector")
    options = parser.parse_args(arguments)

    import torch
    from support.engine import load

    load()
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    front: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        # round 0 is thrown away: it finds files that were never read and bytecode that was never made
        for number, mode in interleaved(MODES, options.rounds + 1):
            work = Path(folder) / f"{number}-{mode}"
            work.mkdir()
            with _beside(mode, work, options.collector_python):
                told = _forked(mode, work)
            if number > 0:
                seconds[mode].append(told["finished"])
                front += [told["returned"]] if mode == "shapetrace" else []
            print(f"round {number}/{options.rounds} {mode}: {told}", file=sys.stderr, flush=True)
    ratio = _ratio(seconds["shapetrace"], seconds)
    import sglang

    described = conditions(
        torch=torch.__version__,
        sglang=sglang.__version__,
        shapes=len(SIZES),
        layers=32,
        rounds=options.rounds,
        device="cpu",
        flags="shapes,stacks,flops,memory",
    )
    result = {
        "name": "capture",
        "ratio": ratio,
        "goal": GOAL,
        "frontRatio": _ratio(front, seconds),
        "floorRatio": _ratio(seconds["floor"], seconds),
        "secondsPerMode": {**seconds, "shapetraceUntilCaptureReturned": front},
        "conditions": described,
    }
    write(options.out, result)
    for mode, values in seconds.items():
        print(f"{mode:12} median {median(values):8.3f} s for {len(SIZES)} shapes")
    print(f"capture-front ratio={result['frontRatio']:.3f} (until the engine goes on)")
    print(f"capture-floor ratio={result['floorRatio']:.3f} (profiler on, nothing exported)")
    print(f"capture goal: at most {GOAL}, {'met' if ratio <= GOAL else 'missed'}")
    print(line("capture", ratio, described))
    return 0 if ratio <= GOAL else 1


def _ratio(values: list[float], seconds: dict[str, list[float]]) -> float:
    rounds = zip(values, seconds["none"], seconds["sglang"], strict=True)
    return median([(value - none) / (sglang - none) for value, none, sglang in rounds])


@contextlib.contextmanager
def _beside(mode: str, work: Path, python: str) -> Iterator[None]:
    if mode != "shapetrace":
        yield
        return
    with collector(work, python=python):
        yield


def _forked(mode: str, work: Path) -> dict[str, float]:
    """Run one mode in a child: the profiler's state, and what memory it keeps, end with it."""
    child = os.fork()
    if child == 0:
        _child(mode, work)
    os.waitpid(child, 0)
    try:
        told: dict[str, float] = json.loads((work / "told.json").read_text())
    except FileNotFoundError:
        raise SystemExit(f"{mode} failed:\n{(work / 'output.txt').read_text()}") from None
    return told


def _child(mode: str, work: Path) -> None:
    log = os.open(work / "output.txt", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(work)  # SGLang leaves a file where it runs
    try:
        told = _measure(mode, work)
        (work / "told.json").write_text(json.dumps(told))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _measure(mode: str, work: Path) -> dict[str, float]:
    import torch
    from stand_in import Decoder
    from support.engine import decode_runner, model_runner

    torch.set_num_threads(1)  # the other core is free for what runs beside
    torch.manual_seed(0)
    with torch.inference_mode(), _mode(mode, work) as ends:
        runner = decode_runner(SIZES, owner=model_runner(model=Decoder()))
        if mode in ("sglang", "floor"):
            runner.enable_profile_cuda_graph = True
            runner._post_process_after_profile = lambda *_: None
        began = time.perf_counter()
        runner.capture()
        returned = time.perf_counter()
        ends()
        finished = time.perf_counter()
    return {"returned": round(returned - began, 4), "finished": round(finished - began, 4)}


@contextlib.contextmanager
def _mode(mode: str, work: Path) -> Iterator[Callable[[], None]]:
    """The mode's setting; what it yields waits until everything of it is finished."""
    if mode == "shapetrace":
        from shapetrace_contract.settings import CaptureSettings
        from support import plugin

        asked = CaptureSettings(stacks="All", recordShapes=True, flops=True, memory=True)
        with plugin.engine(work / "spool", capture=asked):
            yield lambda: _all_stored(work / "spool")
        return
    if mode != "none":
        os.environ["SGLANG_GRAPH_BATCH_CAPTURE"] = "1"
        os.environ["SGLANG_TORCH_PROFILER_DIR"] = str(work / "traces")
    if mode == "floor":
        import torch

        torch.profiler.profile.export_chrome_trace = lambda *_: None
    from support.engine import topology

    with topology():
        yield lambda: _all_written(mode, work)


def _all_written(mode: str, work: Path) -> None:
    found = len(list((work / "traces").rglob("*.json.gz")))
    expected = len(SIZES) if mode == "sglang" else 0
    assert found == expected, f"{mode} left {found} files, {expected} were expected"


def _all_stored(spool: Path) -> None:
    end = time.monotonic() + ENDS_SECONDS
    uploaded = spool / "rank-00000/uploaded.jsonl"
    while not uploaded.exists() or uploaded.read_bytes().count(b"\n") < len(SIZES):
        assert time.monotonic() < end, "not all traces were stored"
        time.sleep(0.005)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
