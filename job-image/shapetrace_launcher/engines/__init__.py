"""How each engine is started: one file per engine, each with ``commands(settings, context) -> list[Command]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """One process to start. ``ranks`` are the global ranks that run in it or below it."""

    argv: tuple[str, ...]
    ranks: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of the launcher's own."""

    @property
    def name(self) -> str:
        """``rank 3``, or ``engine`` where one process holds several."""
        return f"rank {self.ranks[0]}" if len(self.ranks) == 1 else "engine"


@dataclass(frozen=True)
class Context:
    """What a command line needs beside the settings."""

    python: str
    """The interpreter to start, ``sys.executable``."""
    master_port: int
    """A free port of this pod."""
    cores: int
    """CPUs that this container may use, at least 1."""


class EngineConfigurationError(ValueError):
    """Settings that the engine cannot be started with; the message names the field of the ProfileRun."""


def flags_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """``[("--sizes", "1,2")] -> ["--sizes", "1,2"]``."""
    return [part for pair in pairs for part in pair]
