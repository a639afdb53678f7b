"""The record of one process of an engine: what was loaded into it, and what went wrong.

An engine loads its plugins in every process it starts: launcher, controllers, detokenizer, schedulers, workers. Most of
them never have a rank, and one that should have had one may die before: this record is there from the load on.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import spool

from shapetrace_capture.told import told, told_configuration

MAX_FAULTS = 50
"""Bounds the record."""
MAX_ERROR_CHARACTERS = 1000
"""Bounds one fault: an engine's exception may carry a whole configuration."""


def described(error: BaseException) -> str:
    """Class and text of an exception of anybody's: asking for the text may raise too."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as fault:
        return f"{name}: (its text cannot be had: {type(fault).__name__})"


class Process:
    """What ``process-<pid>.json`` says. The engine's adapter fills in ``version`` and ``hooks``."""

    def __init__(self, folder: Path, environment: Mapping[str, str], engine: str = "") -> None:
        self.folder = folder
        self.environment = environment
        self.engine = engine
        self.version = ""
        self.configuration: dict[str, Any] = {}
        """The engine's, as it resolved what it was given: :meth:`tell_configuration`."""
        self.hooks: dict[str, str] = {}
        self.required: tuple[str, ...] = ()
        """The hooks without which captures would go unseen."""
        self.faults: list[str] = []
        self.who = f"process {os.getpid()}"
        self.more: Callable[[], Mapping[str, Any]] = dict
        """What the rank in this process, once there is one, adds to the record."""

    def fault(self, what: str, error: BaseException | str) -> None:
        """Note that something of ours went wrong, and write it down at once: what failed may be what would have done
        so later, and a process may end without a word. The engine goes on. ``what`` is empty where the text says it."""
        if self._note(what, error):
            self.write()

    def _note(self, what: str, error: BaseException | str) -> bool:
        """False where it is known already or one too many."""
        said = described(error) if isinstance(error, BaseException) else error
        text = (f"{what}: {said}" if what else said)[:MAX_ERROR_CHARACTERS]
        if text in self.faults or len(self.faults) >= MAX_FAULTS:
            return False
        self.faults.append(text)
        with contextlib.suppress(Exception):
            print(f"shapetrace: {self.who}: {text}", file=sys.stderr, flush=True)
        return True

    def tell_configuration(self, holders: Callable[[], Mapping[str, Any]]) -> None:
        """Keep what may be told of the engine's configuration, an object or mapping by prefix
        (:func:`~shapetrace_capture.told.told_configuration`). Never raises: it is for the manifest only."""
        try:
            self.configuration = told_configuration(holders())
        except Exception as error:
            self.fault("the engine's configuration", error)

    def engine_json(self) -> dict[str, Any] | None:
        """``engine`` of rank and process record; None for a script of the user's own."""
        if not self.engine:
            return None
        return {"name": self.engine, "version": self.version, "configuration": self.configuration}

    def write(self) -> None:
        """Write the record (again). Never raises."""
        try:
            record: dict[str, Any] = {
                "pid": os.getpid(),
                "rank": None,
                "engine": self.engine_json(),
                "versions": {},
                "environment": told(self.environment),
                "hooks": dict(self.hooks),
                "required": list(self.required),
            }
            record.update(self.more())
            record["versions"] = {"python": platform.python_version(), **record["versions"]}
            record["errors"] = list(self.faults)
            spool.write_json(spool.process_file(self.folder, os.getpid()), record)
        except Exception as error:
            self._note("the process record", error)
