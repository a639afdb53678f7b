"""The command line that the launcher makes for a run, and what SGLang's own parser reads in it."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

from shapetrace_contract.settings import CaptureSettings, EngineSettings
from shapetrace_launcher.command import build
from shapetrace_launcher.engines import Context

MODELS = [
    {"role": "target", "path": "/models/target"},
    {"role": "draft", "path": "/models/draft"},
    {"role": "adapter", "path": "/loras/a"},
    {"role": "tokenizer", "path": "/models/tokenizer"},
]


def command_line(folder: Path) -> dict[str, Any]:
    """Field of ``ServerArgs`` -> value, those that are simple."""
    parallelism = {"tensor": 2, "pipeline": 3, "dataReplicas": 4}
    args = ["--speculative-algorithm", "EAGLE", "--load-format", "dummy"]
    targets: list[dict[str, Any]] = [
        {"runner": "decode", "unit": "bs", "sizes": [8, 1]},
        {"runner": "prefill", "unit": "tok", "sizes": [64]},
    ]
    version = importlib.metadata.version("sglang")
    (command,) = build(
        EngineSettings("sglang", args, MODELS, parallelism, "cpu"),
        CaptureSettings(targets=targets),
        Context("python3", 30_001, 4, "sglang", version, deadline_seconds=1800),
    )
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    read = vars(parser.parse_args(command.argv[3:]))
    return {key: value for key, value in read.items() if isinstance(value, str | int | list | None)}
