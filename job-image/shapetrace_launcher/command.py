"""From settings to the command lines and environments of the engine's processes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shapetrace_contract.settings import CaptureSettings, EngineSettings

from shapetrace_launcher.engines import Command, Context, EngineConfigurationError, sglang, vllm
from shapetrace_launcher.engines import command as command_engine
from shapetrace_launcher.engines import torch as torch_engine

Builder = Callable[[EngineSettings, CaptureSettings, Context], list[Command]]

BUILDERS: Mapping[str, Builder] = {
    "torch": torch_engine.commands,
    "command": command_engine.commands,
    "sglang": sglang.commands,
    "vllm": vllm.commands,
}
"""``engine.name`` -> how it is started."""

ENGINE_DEFAULTS = {
    "USE_LIBUV": "0",  # Debian's torch is built without libuv, and its TCPStore fails unless told so
    "UCX_HANDLE_ERRORS": "none",  # UCX would print 2 kB of backtrace on SIGSEGV, over what says why
    # kineto tears CUPTI down between sessions, which breaks graphs captured under it before CUDA 12.6; torch sets these
    # two itself, but only for graphs that its own compiler captures (torch/profiler/profiler.py, prepare_trace)
    "DISABLE_CUPTI_LAZY_REINIT": "1",
    "TEARDOWN_CUPTI": "0",
    "PYTHONUNBUFFERED": "1",  # the log shows what happened last, also after a SIGKILL
}
"""For every engine, unless the run's ``engine.env`` says otherwise."""


def build(engine: EngineSettings, capture: CaptureSettings, context: Context) -> list[Command]:
    """The processes to start; :class:`EngineConfigurationError` names the field at fault."""
    builder = BUILDERS.get(engine.name)
    if builder is None:
        raise EngineConfigurationError(
            f"engine.name {engine.name!r}: this version starts {' and '.join(sorted(BUILDERS))}"
        )
    return builder(engine, capture, context)


def environment_of(command: Command, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a process: defaults, then what the pod says, then what the rank must have.

    The pod sets HOME, USER and cache folders on a writable volume; where nobody did, torch still needs a user's name
    (it calls ``getpass.getuser``) and a place for its caches.
    """
    home = base.get("HOME") or "/tmp"  # noqa: S108 - only a default, for caches
    defaults = {
        **ENGINE_DEFAULTS,
        "HOME": home,
        "USER": "shapetrace",
        "XDG_CACHE_HOME": f"{home}/.cache",
        **command.defaults,
    }
    made = {
        **defaults,
        **{key: value for key, value in base.items() if value or key not in defaults},
        **command.environment,
    }
    return {key: value for key, value in made.items() if key not in command.without}
