"""All that the launcher is told, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shapetrace_contract import names
from shapetrace_contract.settings import CaptureSettings, EngineSettings, Limits, SettingError


@dataclass(frozen=True)
class Settings:
    """The launcher's part of the environment."""

    spool: Path
    engine: EngineSettings
    capture: CaptureSettings
    limits: Limits

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """:class:`SettingError` names the variable that is missing or cannot be read."""
        spool = environment.get(names.ENV_SPOOL)
        if not spool:
            raise SettingError(f"{names.ENV_SPOOL} is not set: it names the folder that the collector reads")
        capture, limits = CaptureSettings(), Limits()
        if CaptureSettings.ENV in environment:
            capture = CaptureSettings.from_env(environment)
        if Limits.ENV in environment:
            limits = Limits.from_env(environment)
        return cls(Path(spool), EngineSettings.from_env(environment), capture, limits)
