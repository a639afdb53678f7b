"""Our plugin in SGLang's own hands: ``load_plugins()``, the model runner's start, the scheduler's loop."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shapetrace_contract import names
from shapetrace_contract.settings import CaptureSettings

from support.engine import server_args, topology


def stand_in_for_start_and_loop() -> None:
    """A model runner that loads no model, a scheduler that serves nobody: their methods keep SGLang's signatures."""
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.model_executor.model_runner import ModelRunner

    for owner, name in ((ModelRunner, "__init__"), (Scheduler, "run_event_loop")):
        original = getattr(owner, name)

        def nothing(self: Any, *args: Any, **kwargs: Any) -> None:
            self.has_run = True

        setattr(owner, name, functools.wraps(original)(nothing))


def load(spool: Path, capture: CaptureSettings | None = None) -> None:
    """Load all plugins as each of SGLang's processes does, with our environment."""
    os.environ[names.ENV_SPOOL] = str(spool)
    os.environ[CaptureSettings.ENV] = (capture or CaptureSettings()).to_env()
    from sglang.srt.plugins import load_plugins

    load_plugins()


def start_model_runner(given: Any, args: Any = None, **more: Any) -> Any:
    """Call the model runner's ``__init__`` with the arguments that this version has."""
    from sglang.srt.model_executor.model_runner import ModelRunner

    known = {**vars(given), "ps": given, "server_args": args or server_args(), **more}
    wanted = list(inspect.signature(ModelRunner.__init__).parameters.values())[1:]
    runner = object.__new__(ModelRunner)
    ModelRunner.__init__(runner, **{item.name: known.get(item.name) for item in wanted})
    assert runner.has_run
    return runner


def run_event_loop(args: Any = None) -> None:
    """The scheduler begins to serve: all graphs are captured."""
    from sglang.srt.managers.scheduler import Scheduler

    scheduler = object.__new__(Scheduler)
    scheduler.server_args = args or server_args()
    Scheduler.run_event_loop(scheduler)
    assert scheduler.has_run


@contextlib.contextmanager
def engine(
    spool: Path, *, capture: CaptureSettings | None = None, args: Any = None, **coordinates: Any
) -> Iterator[None]:
    """A scheduler process of SGLang with our plugin, from its load to the moment it begins to serve."""
    stand_in_for_start_and_loop()
    with topology(**coordinates) as given:
        load(spool, capture)
        start_model_runner(given, args)
        yield
        run_event_loop(args)
