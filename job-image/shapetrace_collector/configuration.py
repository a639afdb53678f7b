"""What a collector is told: the run, the store, the limits and its place in the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shapetrace_contract import names
from shapetrace_contract.settings import EngineSettings, Limits, RunId, SettingError, StoreSettings


@dataclass(frozen=True)
class Configuration:
    """Settings of one collector; everything comes from the environment."""

    run: RunId
    store: StoreSettings
    engine: EngineSettings
    limits: Limits
    spool: Path
    pod_index: int = 0
    pod: str | None = None
    node: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Configuration:
        """Read all of it; :class:`SettingError` names the variable that cannot be used."""
        spool = environment.get(names.ENV_SPOOL)
        if not spool:
            raise SettingError(f"{names.ENV_SPOOL} is not set: it names the spool folder")
        return cls(
            run=RunId.from_env(environment),
            store=StoreSettings.from_env(environment),
            engine=EngineSettings.from_env(environment),
            limits=Limits.from_env(environment),
            spool=Path(spool),
            pod_index=pod_index(environment),
            pod=environment.get(names.ENV_POD_NAME) or None,
            node=environment.get(names.ENV_NODE_NAME) or None,
        )

    @property
    def ranks(self) -> range:
        """The global ranks of this pod: pods hold equal, consecutive shares."""
        share = max(1, self.engine.ranks // max(1, int(self.engine.parallelism.get("nodes", 1))))
        return range(self.pod_index * share, (self.pod_index + 1) * share)


def pod_index(environment: Mapping[str, str]) -> int:
    """The pod's completion index; 0 without one."""
    text = environment.get(names.ENV_POD_INDEX) or "0"
    if not text.isdecimal():
        raise SettingError(f"{names.ENV_POD_INDEX} is {text!r}, it should be a whole number")
    return int(text)
