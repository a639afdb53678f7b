"""What a script of the user's calls under ``engine: command``. Inert without a spool in the environment."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_capture.capture import Capture, NoCapture
from shapetrace_capture.declared import declared_plans, default_runner
from shapetrace_capture.session import Session

HOOK = "shapetrace_capture.shape"
"""The target that ``rank.json`` names."""


class _Script:
    """The session of a script, with the plan it declared or that the run's targets declare."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.runner = default_runner(session.targets)
        session.start({HOOK: "applied"})

    def shape(self, size: int, unit: str, runner: str | None, variants: Mapping[str, Any]) -> Shape:
        values = {axis: str(value) for axis, value in variants.items()}
        whole = int(size)
        if not isinstance(size, str) and whole != size:
            raise TagError(f"size {size!r} is not a whole number")
        return Shape(Runner(runner or self.runner), unit, whole, values)

    def plan(self, shapes: Iterable[Mapping[str, Any]]) -> None:
        groups: dict[tuple[Runner, str], list[Shape]] = {}
        for item in shapes:
            rest = {axis: value for axis, value in item.items() if axis not in ("size", "unit", "runner")}
            shape = self.shape(item["size"], item.get("unit", "bs"), item.get("runner"), rest)
            groups.setdefault((shape.runner, shape.unit), []).append(shape)
        for (runner, unit), group in groups.items():
            self.session.plan(runner, unit, group)

    def plan_declared(self) -> None:
        """The run's targets are the plan of a script that declares none."""
        if not self.session.has_plan:
            for runner, unit, shapes in declared_plans(self.session.targets):
                self.session.plan(runner, unit, shapes)


class _Process:
    """The script's state, made at the first call; a forked child makes its own."""

    def __init__(self) -> None:
        self._pid = 0
        self._script: _Script | None = None
        self._locks: dict[int, threading.Lock] = {}
        """By process: a child that was forked meanwhile must not wait for a thread that it does not have."""

    def script(self) -> _Script | None:
        pid = os.getpid()
        with self._locks.setdefault(pid, threading.Lock()):
            if self._pid != pid:
                session = Session.from_environment(os.environ)
                self._script = None if session is None else _Script(session)
                self._pid = pid
                if session is not None:
                    # graphs counted and faults; the launcher writes done.json from it once it knows the exit code
                    atexit.register(session.process.write)
            return self._script


_process = _Process()


def shape(size: int, unit: str = "bs", runner: str | None = None, **variants: Any) -> Capture | NoCapture:
    """Record what runs in the ``with`` block as the capture of this shape.

    ``size`` counts ``unit`` (``bs`` requests, ``tok`` tokens); every further keyword is a variant, its value a text.
    ``runner`` names the object that captures; by default the one that the run's targets name, else ``Script``. Warm up
    before, and capture the graph inside::

        with shapetrace_capture.shape(size=8, unit="bs", lora="nolora") as capture:
            forward = capture.watch(model)          # optional: witnesses of the call
            with torch.cuda.graph(graph):
                output = forward(inputs)

    Never raises. Without ``SHAPETRACE_SPOOL`` in the environment it does nothing.
    """
    script = _process.script()
    if script is None:
        return NoCapture()
    try:
        made = script.shape(size, unit, runner, variants)
    except Exception as error:
        script.session.fault(f"shape(size={size!r}, unit={unit!r}, runner={runner!r}, **{variants!r})", error)
        return NoCapture()
    script.plan_declared()
    return script.session.capture(made)


def plan(shapes: Iterable[Mapping[str, Any]]) -> None:
    """Say what the script is going to capture: ``plan([{"size": 8, "unit": "bs", "lora": "nolora"}, ...])``.

    Call it before the first :func:`shape`. Without it the plan is what the run's targets declare; where they declare no
    sizes either, it is what was captured, and a shape that is missing cannot be noticed. Never raises.
    """
    script = _process.script()
    if script is None:
        return
    try:
        script.plan(shapes)
    except Exception as error:
        script.session.fault("plan()", error)
