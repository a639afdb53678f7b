"""The entry points of both engines. Inert without a spool in the environment; nothing here raises into an engine.

SGLang calls what is registered under ``sglang.srt.plugins``, vLLM (which does not guard the call) what is registered
under ``vllm.general_plugins``; each in every process that it starts. The adapter is imported only then.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from shapetrace_contract import names

from shapetrace_capture.process import Process


def register_sglang() -> None:
    """Hook SGLang in this process."""
    _register("sglang")


def register_vllm() -> None:
    """Hook vLLM in this process."""
    _register("vllm")


def _register(engine: str) -> None:
    """Ask the engine's adapter to register its hooks, and write the record of this process whatever comes of it."""
    folder = os.environ.get(names.ENV_SPOOL)
    if not folder:
        return
    process = Process(Path(folder), os.environ, engine)
    try:
        importlib.import_module(f"shapetrace_capture.adapters.{engine}").register(process)
    except Exception as error:
        process.fault(f"the plugin for {engine}", error)
    process.write()
