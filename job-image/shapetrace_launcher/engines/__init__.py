"""How each engine is started: one file per engine, each with ``commands(settings, context) -> list[Command]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """One process to start. ``ranks`` are the global ranks that run in it or below it."""

    argv: tuple[str, ...]
    ranks: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """On top of the launcher's own."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Where the launcher's own environment does not say otherwise."""
    without: tuple[str, ...] = ()
    """Variables that the process does not get."""
    notes: tuple[str, ...] = ()
    """What the run's log is to say of how it is started."""
    port: int | None = None
    """Where an engine that serves for ever takes requests; None for a program that ends by itself."""
    engine: str = ""
    """Name and version, for messages."""

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
    distribution: str = ""
    """The name under which the engine is installed in this Python."""
    version: str | None = None
    """Version of the engine in this Python; empty if it does not tell, None if the engine is not there."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The launcher's own."""
    deadline_seconds: int = 3600
    """``activeDeadlineSeconds``: nothing of the engine needs to give up earlier by itself."""
    fetched: bool = False
    """Whether models were fetched from a hub, so that the engine needs neither the hub nor its token."""


class EngineConfigurationError(ValueError):
    """Settings that the engine cannot be started with; the message names the field of the ProfileRun."""
