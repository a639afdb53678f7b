"""driver OUT [SCENARIO...]: run scenarios on one version of SGLang, each in a process forked after the imports.

The imports take longer than all scenarios. Each leaves ``OUT/<scenario>/`` with its spool, its output and
``result.json``: ``{"returned": ...}`` or ``{"raised": ...}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import engine, scenarios


def main(out: Path, wanted: list[str]) -> int:
    """0 if every scenario ran to its end."""
    started = time.monotonic()
    engine.load()
    print(f"imported in {time.monotonic() - started:.0f} s", flush=True)
    failed = 0
    for name in wanted or list(scenarios.ALL):
        folder = out / name
        folder.mkdir(parents=True)
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _run(scenarios.ALL[name], folder)
        _, status = os.waitpid(child, 0)
        if not (folder / "result.json").exists():
            text = f"the process ended with status {status}"
            (folder / "result.json").write_text(json.dumps({"raised": text}))
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
        failed += "raised" in json.loads((folder / "result.json").read_text())
    return 1 if failed else 0


def _run(scenario: Callable[[Path], Any], folder: Path) -> None:
    """In the child: never returns."""
    log = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)  # SGLang leaves a file where it runs
    try:
        with engine.topology():
            result = {"returned": scenario(folder)}
    except BaseException:
        result = {"raised": traceback.format_exc()}
    part = folder / "result.part"
    part.write_text(json.dumps(result))
    part.rename(folder / "result.json")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
