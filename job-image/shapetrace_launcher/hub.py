"""Models that are named by their place on a hub: fetched before the engine starts, by a process of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shapetrace_contract.arguments import given
from shapetrace_contract.model import commit_of
from shapetrace_contract.reasons import EXIT_CODES, Reason
from shapetrace_contract.settings import EngineSettings

from shapetrace_launcher.cause import Cause, Exit
from shapetrace_launcher.engines import Command

SHARE_OF_DEADLINE = 0.8
"""What fetching may take of activeDeadlineSeconds: with less than the rest no engine loads and captures."""
NO_WEIGHTS = ("tokenizer",)
"""Roles of which only the small files are wanted."""


def on_hub(engine: EngineSettings) -> list[Mapping[str, Any]]:
    """The models that have to be fetched."""
    return [model for model in engine.models if model.get("name")]


def command(engine: EngineSettings, python: str, answer: Path) -> Command:
    """The process that fetches them, and puts their folders into ``answer``."""
    option = given(engine.args, "--load-format")
    dummy = option is not None and option.value == "dummy"
    requests = [
        {
            "name": model["name"],
            "revision": model.get("revision"),
            # random weights need no files; an adapter is always read
            "weights": model.get("role") not in NO_WEIGHTS and not (dummy and model.get("role") != "adapter"),
        }
        for model in on_hub(engine)
    ]
    argv = (python, "-m", "shapetrace_launcher.fetch", str(answer), json.dumps(requests))
    # bars that draw themselves over and over are no lines of a log
    return Command(argv, (), {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONUNBUFFERED": "1"})


def with_folders(engine: EngineSettings, folders: Sequence[str]) -> EngineSettings:
    """The settings with the fetched models in their folders; their names stay, for what is called after them."""
    left = iter(folders)
    models = [{**model, "path": next(left)} if model.get("name") else model for model in engine.models]
    return replace(engine, models=models)


def resolved(engine: EngineSettings, folders: Sequence[str]) -> list[dict[str, Any]]:
    """What each revision was when it was fetched: a branch moves on, and one that is not given says nothing."""
    return [
        {"name": model["name"], "revision": model.get("revision"), "resolvedRevision": commit_of(folder)}
        for model, folder in zip(on_hub(engine), folders, strict=True)
    ]


def read_folders(answer: Path) -> list[str]:
    """What the process wrote; ValueError or OSError where it did not."""
    folders = json.loads(answer.read_text())
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise ValueError("no list of folders")
    return folders


def cause(end: Exit) -> Cause:
    """Why the models are not there."""
    known = EXIT_CODES.get(end.code)
    reason = Reason.BAD_CONFIGURATION if known is Reason.BAD_CONFIGURATION else Reason.ENGINE_FAILED
    text = end.last_words or f"fetching the models ended with exit code {end.code}"
    if end.code < 0:
        text = f"fetching the models was killed by signal {-end.code}: {text}"
    return Cause(reason, text, exit_code=end.code if end.code >= 0 else None)


def too_slow(seconds: float) -> Cause:
    """Why fetching was given up."""
    text = f"models: fetching them took more than {seconds:.0f} s, {SHARE_OF_DEADLINE:.0%} of activeDeadlineSeconds; "
    text += "raise it, or keep the models on a volume (pvc, or engine.cache.pvc)"
    return Cause(Reason.ENGINE_FAILED, text)
