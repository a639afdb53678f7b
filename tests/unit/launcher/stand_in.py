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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import spool

START = """
import os, signal, sys
from pathlib import Path
from shapetrace_contract import spool
ROOT = Path(os.environ["SHAPETRACE_SPOOL"])
def say(name, text="x"):
    (ROOT / f"writing-{name}").write_text(str(text))
    (ROOT / f"writing-{name}").rename(ROOT / name)
"""
PRELUDE = (
    START
    + """
RANK = int(os.environ.get("RANK", "0"))
FOLDER = spool.rank_folder(ROOT, RANK)
def record(**hooks): spool.write_json(FOLDER / spool.RANK, {"rank": RANK, "hooks": hooks or {"engine": "applied"}})
def done(): spool.write_json(FOLDER / spool.DONE, {"records": 0, "ok": True})
def hang():
    while True: signal.pause()
"""
)


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


SERVER = (
    START
    + """
import socket, time
def process(*errors): spool.write_json(spool.process_file(ROOT, os.getpid()), {"errors": list(errors)})
def record(rank=0):
    spool.write_json(spool.rank_folder(ROOT, rank) / spool.RANK, {"rank": rank, "hooks": {"x": "applied"}})
def done(rank=0): spool.write_json(spool.rank_folder(ROOT, rank) / spool.DONE, {"records": 0, "ok": True})
def serve():
    listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
    say("serving", str(os.getpid()))
    while True:
        connection = listening.accept()[0]
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 404 Not Found\\r\\n\\r\\n")
        connection.close()
"""
)
"""A stand-in for an engine that serves: it captures nothing, writes the records that the hooks would, and listens."""
SERVERS = {"sglang": "sglang/launch_server.py", "vllm": "vllm/entrypoints/cli/main.py"}

FAST = """
import os, sys, time
from shapetrace_launcher.__main__ import main
sys.exit(main(os.environ, lambda: float(sys.argv[1]) * time.monotonic()))
"""
"""A launcher whose clock runs as many times as fast as its argument says."""


class Launched:
    """One launcher process and its spool."""

    def __init__(
        self,
        root: Path,
        script: str,
        *,
        ranks: int = 1,
        engine: str = "torch",
        version: str = "",
        settings: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        hub: str = "",
        fast: int = 1,
        **limits: int,
    ) -> None:
        """``version`` installs a stand-in of the engine; ``hub`` is the content of a stand-in for huggingface_hub."""
        self.spool = root / "spool"
        self.spool.mkdir()
        self.termination = root / "termination-log"
        package = root / "path" / "shapetrace_engine"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "__main__.py").write_text(PRELUDE + script)
        args = [sys.executable, "-c", PRELUDE + script] if engine == "command" else []
        if version:
            self._install(root / "path", engine, version, SERVER + script)
        if hub:
            (root / "path" / "huggingface_hub").mkdir()
            (root / "path" / "huggingface_hub" / "__init__.py").write_text(hub)
            constants = "import os\nHF_HUB_CACHE = os.environ['HF_HUB_CACHE']\n"
            (root / "path" / "huggingface_hub" / "constants.py").write_text(constants)
        engine_settings = {"name": engine, "args": args, "parallelism": {"tensor": ranks}, **(settings or {})}
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(root / "path"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SHAPETRACE_SPOOL": str(self.spool),
            "SHAPETRACE_ENGINE": json.dumps(engine_settings),
            # in seconds of the test, whatever the clock of the launcher says
            "SHAPETRACE_LIMITS": json.dumps({"uploadTimeoutSeconds": 300 * fast, **limits}),
            "SHAPETRACE_TERMINATION_LOG": str(self.termination),
            **(variables or {}),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", FAST, str(fast)] if fast > 1 else [sys.executable, "-m", "shapetrace_launcher"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @staticmethod
    def _install(path: Path, engine: str, version: str, script: str) -> None:
        program = path / SERVERS[engine]
        program.parent.mkdir(parents=True)
        program.write_text(script)
        described = path / f"{engine}-{version}.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {engine}\nVersion: {version}\n")

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
