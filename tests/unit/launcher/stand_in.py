"""A launcher around engines that are a few lines of Python: real processes, no torch.

The stand-in replaces the package ``shapetrace_engine`` on the path, so that everything else is the product.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapetrace_contract import spool

PRELUDE = """
import os, signal, sys
from pathlib import Path
from shapetrace_contract import spool
ROOT = Path(os.environ["SHAPETRACE_SPOOL"])
RANK = int(os.environ.get("RANK", "0"))
FOLDER = spool.rank_folder(ROOT, RANK)
def record(**hooks): spool.write_json(FOLDER / spool.RANK, {"rank": RANK, "hooks": hooks or {"engine": "applied"}})
def done(): spool.write_json(FOLDER / spool.DONE, {"records": 0, "ok": True})
def wait_for(path):
    import time
    while not path.exists(): time.sleep(0.01)
def hang():
    while True: signal.pause()
"""


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        time.sleep(0.01)


class Launched:
    """One launcher process and its spool."""

    def __init__(self, root: Path, script: str, *, ranks: int = 1, engine: str = "torch", **limits: int) -> None:
        self.spool = root / "spool"
        self.spool.mkdir()
        self.termination = root / "termination-log"
        package = root / "path" / "shapetrace_engine"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "__main__.py").write_text(PRELUDE + script)
        args = [sys.executable, "-c", PRELUDE + script] if engine == "command" else []
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(root / "path"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SHAPETRACE_SPOOL": str(self.spool),
            "SHAPETRACE_ENGINE": json.dumps({"name": engine, "args": args, "parallelism": {"tensor": ranks}}),
            "SHAPETRACE_LIMITS": json.dumps(limits),
            "SHAPETRACE_TERMINATION_LOG": str(self.termination),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shapetrace_launcher"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def folder(self, rank: int = 0) -> Path:
        return spool.rank_folder(self.spool, rank)

    def has(self, name: str, rank: int | None = None) -> Callable[[], bool]:
        return ((self.spool if rank is None else self.folder(rank)) / name).exists

    def stopped(self) -> dict[str, Any]:
        """The content of stopped.json, once it is there."""
        wait_for("stopped.json", self.has(spool.STOPPED))
        return spool.read_json(self.spool / spool.STOPPED) or {}

    def drain(self, ok: bool = True, missing: int = 0) -> None:
        """What a collector does after stopped.json."""
        self.stopped()
        spool.write_json(self.spool / spool.DRAINED, {"ok": ok, "missing": missing, "parts": ["parts/00000.json"]})

    def end(self) -> tuple[int, dict[str, Any]]:
        """Exit code and termination message."""
        code = self.process.wait(60)
        return code, json.loads(self.termination.read_text())
