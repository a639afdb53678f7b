"""``engine: command``: the user's own command line, as it is. Pure."""

from __future__ import annotations

from shapetrace_contract.settings import CaptureSettings, EngineSettings

from shapetrace_launcher.engines import Command, Context, EngineConfigurationError


def commands(engine: EngineSettings, capture: CaptureSettings, context: Context) -> list[Command]:
    """One process, below which all ranks of the run are (``RANK``, as torchrun sets it, or rank 0)."""
    if not engine.args:
        raise EngineConfigurationError("engine.args is empty: engine command needs a command line")
    return [Command(tuple(engine.args), tuple(range(engine.ranks)))]
