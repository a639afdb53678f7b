"""What only a GPU can answer: ``python tests/gpu/check_gpu.py [RESULT.json]``.

Needs torch, the capture package and one NVIDIA GPU, and takes under five minutes. Prints a line a question and writes
all that was found as JSON, by default to ``tests/gpu/results/<device>.json``.

Exit code: 0 every requirement holds; 1 one does not, or an experiment failed; 2 bad arguments; 77 there is no GPU:
nothing was checked, and a result file that was named says so (``"ran": false``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # of a module loaded by path, as a test does, too

import questions  # noqa: E402
from experiments import ENVIRONMENT, EXPERIMENTS  # noqa: E402

NO_GPU_EXIT = 77
LIMIT_SECONDS = 285
"""Of all experiments together; one that does not fit is named as not run."""
EXPERIMENT_SECONDS = 120
MAX_ERROR_CHARACTERS = 500


def main(arguments: Sequence[str], environment: Mapping[str, str], program: Sequence[str], device: str = "cuda") -> int:
    """Exit code. ``program`` starts this script again, once for each experiment."""
    parser = argparse.ArgumentParser(prog="check_gpu.py", description="What only a GPU can answer.")
    parser.add_argument("result", nargs="?", type=Path, metavar="RESULT.json", help="where the result goes")
    parser.add_argument("--only", action="append", choices=sorted(EXPERIMENTS), help="some of the experiments")
    parser.add_argument("--experiment", choices=sorted(EXPERIMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    import torch

    if chosen.experiment:
        found = EXPERIMENTS[chosen.experiment](torch, device, chosen.folder)
        (chosen.folder / "found.json").write_text(json.dumps(found))
        return 0
    if not torch.cuda.is_available():
        return no_gpu(chosen.result, str(torch.__version__))
    names = [name for name in EXPERIMENTS if not chosen.only or name in chosen.only]
    with tempfile.TemporaryDirectory(prefix="shapetrace-gpu-") as folder:
        found, failed, seconds = run_all(names, Path(folder), program, environment)
    device_name = torch.cuda.get_device_name()
    path = chosen.result or HERE / "results" / f"{file_name(device_name)}.json"
    return report(path, device_name, found, failed, seconds, is_all=not chosen.only)


def no_gpu(path: Path | None, version: str) -> int:
    """Say that nothing was checked, in the result file too if one was named: silence would be taken for success."""
    reason = f"no GPU: torch {version} finds none, so nothing was checked"
    if path is not None:
        write(path, {"v": 1, "ran": False, "reason": reason, "answers": []})
    print(reason)
    return NO_GPU_EXIT


def run_all(
    names: Sequence[str], folder: Path, program: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str], dict[str, float]]:
    """What each experiment found; why others found nothing; seconds."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}
    seconds: dict[str, float] = {}
    began = time.monotonic()
    for name in names:
        started = time.monotonic()
        left_seconds = LIMIT_SECONDS - (started - began)
        if left_seconds <= 0:
            failed[name] = f"not run: the {LIMIT_SECONDS} s were over"
            continue
        try:
            found[name] = run_one(name, folder / name, program, environment, min(left_seconds, EXPERIMENT_SECONDS))
        except ExperimentError as error:
            failed[name] = str(error)[:MAX_ERROR_CHARACTERS]
        seconds[name] = round(time.monotonic() - started, 1)
        print(f"{name}: {failed.get(name, 'done')}, {seconds[name]} s", flush=True)
    return found, failed, seconds


class ExperimentError(RuntimeError):
    """An experiment that found nothing; the message says why."""


def run_one(
    name: str, folder: Path, program: Sequence[str], environment: Mapping[str, str], limit_seconds: float
) -> dict[str, Any]:
    """What an experiment in a process of its own found; :class:`ExperimentError` for one that crashed or hung."""
    folder.mkdir()
    # the tracer's own variables are what is tried here: nothing of the caller's may decide it
    inherited = {key: value for key, value in environment.items() if not re.match("TEARDOWN_CUPTI|DISABLE_CUPTI", key)}
    own = {"SHAPETRACE_SPOOL": str(folder / "spool"), "SHAPETRACE_CAPTURE": json.dumps({"stacks": "All"})}
    variables = dict(ENVIRONMENT.get(name, {}))
    try:
        ended = subprocess.run(
            [*program, "--experiment", name, "--folder", str(folder)],
            env={**inherited, **own, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_seconds,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ExperimentError(f"it did not end within {limit_seconds:.0f} s") from None
    if ended.returncode:
        raise ExperimentError(f"exit code {ended.returncode}: {last_words(ended.stdout)}")
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return {**found, "environment": variables}


def last_words(output: str) -> str:
    """The last line that names an error, else the last line."""
    lines = output.strip().splitlines() or ["no word"]
    return next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)), lines[-1])


def report(
    path: Path, device: str, found: dict[str, Any], failed: dict[str, str], seconds: dict[str, float], *, is_all: bool
) -> int:
    """Print and write the answers; the exit code. Of some experiments only, no requirement of another is asked."""
    asked = [item for item in questions.answers(found) if is_all or item.yes is not None]
    for item in asked:
        print(item.line)
    for name, why in failed.items():
        print(f"{name} FAILED: {why}")
    good = not failed and not any(item.is_fault for item in asked)
    versions = {"python": platform.python_version(), **(found.get("captures") or {}).get("versions", {})}
    write(
        path,
        {
            "v": 1,
            "ran": True,
            "good": good,
            "device": device,
            "versions": versions,
            "answers": [item.to_json() for item in asked],
            "failed": failed,
            "seconds": seconds,
            "found": found,
        },
    )
    print(f"{'good' if good else 'NOT GOOD'}: {sum(item.yes is True for item in asked)} of {len(asked)} yes; {path}")
    return 0 if good else 1


def file_name(device: str) -> str:
    """``NVIDIA H200`` -> ``nvidia-h200``."""
    return re.sub("[^a-z0-9]+", "-", device.lower()).strip("-") or "unknown"


def write(path: Path, value: Mapping[str, Any]) -> None:
    """A whole JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, (sys.executable, str(HERE / "check_gpu.py"))))
