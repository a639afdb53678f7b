"""Folders and settings of a local run: what the operator's builder would put into the pod, with local places. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shapetrace_contract import keys, names
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_operator.build import environment as built

from shapetrace_cli.cluster import CREDENTIAL_KEYS
from shapetrace_cli.errors import UsageError
from shapetrace_cli.runfile import RunFile

WORK = ".shapetrace-run-local"
"""Folder within the output while the run goes on."""


@dataclass(frozen=True)
class Layout:
    """Where everything of one local run is."""

    out: Path
    spool: Path
    payload: Path
    run: RunId

    @property
    def work(self) -> Path:
        """What is removed at the end."""
        return self.out / WORK

    @property
    def store(self) -> Path:
        """Root of the folder store."""
        return self.work / "store"

    @property
    def attempt(self) -> Path:
        """The attempt's folder in the store; its content moves to :attr:`out` at the end."""
        run = self.run
        return self.store / keys.attempt_folder("", run.namespace, run.name, run.uid, run.attempt)

    @property
    def logs(self) -> Path:
        """Output of each process."""
        return self.out / "logs"

    def termination_log(self, container: str) -> Path:
        """Where the container's termination message goes."""
        return self.work / f"{container}.termination.json"


def _value(variable: Mapping[str, str]) -> tuple[str, str]:
    """Name and value of a variable of a pod, where ``$`` is written ``$$``."""
    return variable["name"], variable["value"].replace("$$", "$")


def environments(file: RunFile, layout: Layout, base: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The environment of each container: the person's own, then the operator's settings.

    The folder store takes the place of the bucket. :class:`UsageError` where models or the engine's environment refer
    to objects of a cluster. The hub's access token is the person's own, ``HF_TOKEN``, and not that of a Secret.
    """
    spec, run_id = file.spec, layout.run
    _refuse_volumes(file)
    metadata = {"namespace": run_id.namespace, "name": run_id.name, "uid": run_id.uid}
    run = dict([_value(built.run_setting({"metadata": metadata}, run_id.attempt))])
    engine = dict([_value(built.engine_setting(spec))])
    capture = dict([_value(built.capture_setting(spec))])
    limits = dict([_value(built.limits_setting(spec))])
    store = {StoreSettings.ENV: StoreSettings(kind="folder", path=str(layout.store)).to_env()}
    identity = {
        names.ENV_POD_NAME: "run-local",
        names.ENV_POD_UID: run_id.uid,
        names.ENV_NODE_NAME: os.uname().nodename,
        names.ENV_POD_INDEX: "0",
    }
    clean = {key: value for key, value in base.items() if not key.startswith(built.OURS)}
    without_secrets = {key: value for key, value in clean.items() if key not in CREDENTIAL_KEYS}
    spool = {names.ENV_SPOOL: str(layout.spool)}
    ours = {
        names.CONTAINER_PREFLIGHT: {**run, **store, **identity},
        names.CONTAINER_COLLECTOR: {**spool, **run, **store, **engine, **limits, **identity},
        names.CONTAINER_FINISH: {**run, **store, **engine, **capture, **limits, **identity},
        names.CONTAINER_ENGINE: {
            # torch makes this folder at import, by default beside everybody's temporary files
            "TORCHINDUCTOR_CACHE_DIR": clean.get("TORCHINDUCTOR_CACHE_DIR") or str(layout.payload.parent / "inductor"),
            **_user_variables(file),
            **spool,
            **run,
            **capture,
            **engine,
            **limits,
            **identity,
        },
    }
    for container, made in ours.items():
        made[names.ENV_TERMINATION_LOG] = str(layout.termination_log(container))
        ours[container] = {**(without_secrets if container == names.CONTAINER_ENGINE else clean), **made}
    path = ours[names.CONTAINER_ENGINE].get("PYTHONPATH", "")
    ours[names.CONTAINER_ENGINE]["PYTHONPATH"] = os.pathsep.join(part for part in (str(layout.payload), path) if part)
    return ours


def _refuse_volumes(file: RunFile) -> None:
    for index, model in enumerate(file.spec.models):
        if model.pvc is not None:
            raise UsageError(
                f"spec.models[{index}].pvc: there is no cluster here that has volumes",
                "Give the folder of this machine as path in a copy of the file, or the model's name.",
            )


def _user_variables(file: RunFile) -> dict[str, str]:
    made = {}
    for variable in file.spec.engine.env:
        if variable.value is None:
            raise UsageError(
                f"spec.engine.env: {variable.name} comes from a Secret or ConfigMap, and there is no cluster here",
                f"Give it a value in a copy of the file, or export {variable.name} and take it out of engine.env.",
            )
        made[variable.name] = variable.value
    return made
