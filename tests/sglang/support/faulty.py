"""SGLang's captures while a function of ours raises: for each of them a process, which ends with what SGLang did."""

from __future__ import annotations

import importlib
import json
import os
import traceback
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from support import plugin
from support.engine import decode_runner, prefill_runner, topology
from support.names import OUR_FAULTS

ALONE = "alone"
"""SGLang without our plugin."""


class OurFaultError(RuntimeError):
    """Of ours."""


def failing(*_: Any, **__: Any) -> Any:
    raise OurFaultError("on purpose")


def faults_of_ours(folder: Path) -> dict[str, Any]:
    """What SGLang did alone and beside each fault, whose records are in the folder of its number.

    The plugin is registered once, which takes longer than the captures.
    """
    did = {ALONE: _in_a_process(folder / ALONE, _capture)}
    plugin.stand_in_for_start_and_loop()
    with topology() as given:
        plugin.load(folder / "spool")
        for index, fault in enumerate(OUR_FAULTS):
            place = folder / str(index)
            (folder / "spool").mkdir(exist_ok=True)
            did[fault] = _in_a_process(place, lambda fault=fault: _capture_beside(fault, given))
            (folder / "spool").rename(place / "spool")
    return did


def _in_a_process(place: Path, work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or the trace of what it raises. What it prints is in ``place``."""
    place.mkdir()
    child = os.fork()
    if child == 0:
        log = os.open(place / "output.txt", os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            did = work()
        except BaseException:
            did = traceback.format_exc()
        (place / "did.json").write_text(json.dumps(did))
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads((place / "did.json").read_text())


def _capture_beside(fault: str, given: Any) -> Any:
    module_name, path = fault.split(":")
    *parents, name = path.split(".")
    owner = reduce(getattr, parents, importlib.import_module(f"shapetrace_capture.{module_name}"))
    assert callable(getattr(owner, name)), fault
    setattr(owner, name, failing)
    plugin.start_model_runner(given)
    did = _capture()
    plugin.run_event_loop()
    return did


def _capture() -> list[dict[str, Any]]:
    """What SGLang holds and did after the captures of a decode runner and of a prefill runner."""
    runners = (
        decode_runner((1, 2)),
        prefill_runner((16,), chunks=(2,), backend="breakable"),
        prefill_runner((16,), backend="piecewise"),
    )
    for runner in runners:
        runner.capture()
    return [
        {
            "forwards": runner.model_runner.model.forwards,
            "hooks": runner.attn_backend.hooks,
            "graphs": sorted(map(str, getattr(runner.backend, "_graphs", ()))),
        }
        for runner in runners
    ]
