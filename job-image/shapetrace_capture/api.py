"""What a script of the user's calls under ``engine: command``. Inert without a spool in the environment."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_capture.capture import Capture, NoCapture
from shapetrace_capture.declared import declared_plans, default_runner
from shapetrace_capture.session import Session

HOOK = "shapetrace_capture.shape"
"""The target that ``rank.json`` names."""
UNITS = ("bs", "tok")
"""What a size of a script may count; the CRD has the same two."""


class MisuseError(Exception):
    """A call that cannot be meant so; the text is told as it is."""


class _Script:
    """The session of a script, with the plan it declared or that the run's targets declare."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.runner = default_runner(session.targets)
        self._has_planned = False
        self._calls = 0
        self._open: list[Capture] = []
        """Those that nobody has entered so far."""
        session.start({HOOK: "applied"})

    def shape(self, size: int, unit: str, runner: str | None, variants: Mapping[str, Any]) -> Shape:
        values = {axis: str(value) for axis, value in variants.items()}
        whole = int(size)
        if not isinstance(size, str) and whole != size:
            raise TagError(f"size {size!r} is not a whole number")
        if unit not in UNITS:
            raise TagError(f"unit {unit!r} is not one of bs (requests) and tok (tokens)")
        return Shape(Runner(runner or self.runner), unit, whole, values)

    def capture(self, shape: Shape) -> Capture | NoCapture:
        self._plan_declared()
        made = self.session.capture(shape)
        self._calls += 1
        if isinstance(made, Capture):
            self._open = [*(one for one in self._open if not one.was_entered), made]
        return made

    def plan(self, shapes: Iterable[Mapping[str, Any]]) -> None:
        if self._calls and not self._has_planned:
            raise MisuseError("plan() came after the first shape(): call it before")
        self._has_planned = True
        groups: dict[tuple[Runner, str], list[Shape]] = {}
        for item in shapes if isinstance(shapes, Iterable) else [shapes]:
            if not isinstance(item, Mapping) or "size" not in item:
                raise MisuseError(f'plan() takes dicts such as {{"size": 8, "runner": "R"}}, not {item!r}')
            rest = {axis: value for axis, value in item.items() if axis not in ("size", "unit", "runner")}
            shape = self.shape(item["size"], item.get("unit", "bs"), item.get("runner"), rest)
            groups.setdefault((shape.runner, shape.unit), []).append(shape)
        for (runner, unit), group in groups.items():
            self.session.plan(runner, unit, group)

    def _plan_declared(self) -> None:
        """The run's targets are the plan of a script that declares none."""
        if not self.session.has_plan:
            for runner, unit, shapes in declared_plans(self.session.targets):
                self.session.plan(runner, unit, shapes)

    def end(self) -> None:
        """At the end of the process: what only then is known, and the graphs counted. The launcher writes ``done.json``
        from it once it knows the exit code. Never raises."""
        never = sum(not one.was_entered for one in self._open)
        if never and not hasattr(sys, "last_value"):  # a script that failed has said why, and has the last word
            how = "never entered" if never == self._calls else f"entered {self._calls - never} of them"
            times = "once" if self._calls == 1 else f"{self._calls} times"
            self.session.fault("", f'shape(...) was called {times} and {how}: write "with shape(...):"')
        self.session.process.write()


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
                if self._script is not None:
                    atexit.register(self._script.end)
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
        script.session.fault(_spelled(size, unit, runner, variants), _said(error))
        return NoCapture()
    return script.capture(made)


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
    except MisuseError as error:
        script.session.fault("", str(error))
    except Exception as error:
        script.session.fault("plan()", _said(error))


def _spelled(size: object, unit: object, runner: object, variants: Mapping[str, Any]) -> str:
    """The call as the script has it, but for what it left out."""
    given = {"size": size, "unit": None if unit == "bs" else unit, "runner": runner, **variants}
    return f"shape({', '.join(f'{name}={value!r}' for name, value in given.items() if value is not None)})"


def _said(error: Exception) -> str | Exception:
    """Ours say it in words; of others the class belongs to what they say."""
    return str(error) if isinstance(error, TagError) else error
