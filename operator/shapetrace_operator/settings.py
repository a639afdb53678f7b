"""What the operator is told at its start: by arguments, else by the environment, else by default."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapetrace_contract import names

from shapetrace_operator.build.defaults import Defaults

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True)
class Settings:
    """Settings of one operator process."""

    defaults: Defaults
    namespaces: tuple[str, ...] = ()
    """Namespaces that are served; all of them where empty."""
    probe_port: int = names.PROBE_PORT
    kubeconfig: str | None = None
    """Outside a cluster; None: the ServiceAccount of the pod."""
    server: str | None = None
    """Another address of the same API server, such as a proxy's."""
    workers: int = 4
    log_json: bool = False
    log_level: str = "INFO"


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read the command line; exits with 2 and a message for one that cannot be used."""
    parser = argparse.ArgumentParser(prog="shapetrace_operator", description="Runs ProfileRuns on Kubernetes.")
    text = environment.get
    parser.add_argument("--namespace", action="append", default=[], help="serve this namespace only (repeatable)")
    parser.add_argument("--image", default=text("SHAPETRACE_IMAGE"), help="image of shapetrace [SHAPETRACE_IMAGE]")
    parser.add_argument(
        "--engine-image", default=text("SHAPETRACE_ENGINE_IMAGE"), help="image of torch [SHAPETRACE_ENGINE_IMAGE]"
    )
    parser.add_argument(
        "--image-pull-policy", choices=PULL_POLICIES, default=text("SHAPETRACE_IMAGE_PULL_POLICY") or "IfNotPresent"
    )
    parser.add_argument(
        "--image-pull-secret",
        action="append",
        default=[name for name in (text("SHAPETRACE_IMAGE_PULL_SECRETS") or "").split(",") if name],
        help="Secret in the run's namespace to pull images with (repeatable) [SHAPETRACE_IMAGE_PULL_SECRETS, commas]",
    )
    parser.add_argument("--probe-port", type=int, default=int(text("SHAPETRACE_PROBE_PORT") or names.PROBE_PORT))
    parser.add_argument("--kubeconfig", default=text("KUBECONFIG"), help="[KUBECONFIG]; the pod's own identity without")
    parser.add_argument("--server", default=text("SHAPETRACE_API_SERVER"), help="another address of the API server")
    parser.add_argument("--log-json", action="store_true", default=text("SHAPETRACE_LOG_FORMAT") == "json")
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    level = (text("SHAPETRACE_LOG_LEVEL") or "INFO").upper()
    parser.add_argument("--log-level", choices=levels, default=level)
    given = parser.parse_args(list(arguments))
    for name in ("image", "engine_image"):
        if not getattr(given, name):
            parser.error(f"--{name.replace('_', '-')} is needed, or SHAPETRACE_{name.upper()} in the environment")
    namespaces = given.namespace or [name for name in (text("SHAPETRACE_NAMESPACES") or "").split(",") if name]
    return Settings(
        defaults=Defaults(
            image=given.image,
            engine_image=given.engine_image,
            image_pull_policy=given.image_pull_policy,
            image_pull_secrets=tuple(given.image_pull_secret),
        ),
        namespaces=tuple(dict.fromkeys(namespaces)),
        probe_port=given.probe_port,
        kubeconfig=given.kubeconfig or None,
        server=given.server or None,
        log_json=given.log_json,
        log_level=given.log_level,
    )
