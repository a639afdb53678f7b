"""The real collector beside a benchmark: it hashes, indexes, compresses and stores in processes of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shapetrace_contract import keys, names
from shapetrace_contract.settings import EngineSettings, Limits, RunId, StoreSettings

RUN = RunId(namespace="bench", name="capture", uid="bench", attempt=1)
STOP_SECONDS = 30
"""A collector that is told to end has a drain to finish first."""


@contextlib.contextmanager
def collector(work: Path, ranks: int = 1, python: str = sys.executable) -> Iterator[Path]:
    """A collector of ``work/spool`` into the folder store ``work/store``; gives the attempt's folder in it.

    ``python`` is an interpreter that has the collector; the benchmark's own may have an engine instead.
    """
    spool, store = work / "spool", work / "store"
    spool.mkdir(parents=True, exist_ok=True)
    environment = {
        **_clean(os.environ),
        names.ENV_SPOOL: str(spool),
        names.ENV_RUN: RUN.to_env(),
        names.ENV_STORE: StoreSettings(kind="folder", path=str(store)).to_env(),
        names.ENV_ENGINE: EngineSettings(parallelism={"tensor": ranks}).to_env(),
        names.ENV_LIMITS: Limits().to_env(),
        names.ENV_TERMINATION_LOG: str(work / "collector.termination.json"),
    }
    command = [python, "-m", "shapetrace_collector", "--host", "127.0.0.1", "--port", "0"]
    with (work / "collector.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_until_it_serves(process, work / "collector.log")
            yield store / keys.attempt_folder("", RUN.namespace, RUN.name, RUN.uid, RUN.attempt)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_it_serves(process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        if b"progress on port" in log.read_bytes():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    raise RuntimeError(f"the collector ended with {process.returncode}:\n{log.read_text()}")


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if not name.startswith("SHAPETRACE_")}
    kept.pop("PYTHONPATH", None)  # the engine's
    return kept
