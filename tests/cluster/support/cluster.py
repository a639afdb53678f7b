"""The local cluster as tests see it: kubectl, images, the operator with exactly the chart's rights, an object store."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import localcluster
import yaml
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


class Cluster(localcluster.Cluster):
    """The running cluster, with calls that tests read well."""

    @property
    def bin(self) -> Path:
        return self.run_dir / "bin"

    def image(self, name: str) -> str:
        """Reference by content of ``shapetrace`` or ``shapetrace-engine``."""
        return localcluster.image(name)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_seconds: float = 180
    ) -> subprocess.CompletedProcess[str]:
        """kubectl with the admin's kubeconfig."""
        done = subprocess.run(
            [str(self.bin / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done

    def apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(list(objects)))

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """The object, None where it does not exist."""
        done = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def list(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        return json.loads(self.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json").stdout)["items"]

    def helm(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.bin / "helm"), "--kubeconfig", str(self.kubeconfig), *arguments],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def free_port() -> int:
    """Of those that are not given to connections, which could take it before the operator listens."""
    while True:
        port = random.randrange(23_000, 28_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port


@dataclass
class Operator:
    """The operator as a process of this machine, with a token of a ServiceAccount that has the chart's rights only."""

    cluster: Cluster
    namespace: str
    folder: Path
    server: str = ""
    """Another address than the API server's own, such as a proxy before it (plain HTTP)."""
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "operator.log"

    def grant(self) -> None:
        """ServiceAccount and rights as the chart renders them for this namespace."""
        rendered = self.cluster.helm(
            "template",
            "st",
            str(ROOT / "charts/shapetrace"),
            "-n",
            self.namespace,
            "--set",
            f"namespaces={{{self.namespace}}}",
            "-s",
            "templates/rbac.yaml",
            "-s",
            "templates/serviceaccount.yaml",
        )
        self.cluster.kubectl("apply", "-f", "-", stdin=rendered)
        self.token = self.cluster.kubectl(
            "create", "token", "st-shapetrace", "-n", self.namespace, "--duration", "3h"
        ).stdout.strip()

    def start(self, wait: bool = True) -> Operator:
        admin = yaml.safe_load(self.cluster.kubeconfig.read_text())
        entry = admin["clusters"][0]["cluster"]
        if self.server:
            entry = {"server": self.server}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": entry}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = self.folder / "operator.kubeconfig"
        path.touch(0o600)
        path.write_text(yaml.safe_dump(config))
        self.probe_port = free_port()
        environment = {
            **os.environ,
            "KUBECONFIG": str(path),
            "SHAPETRACE_IMAGE": self.cluster.image("shapetrace"),
            "SHAPETRACE_ENGINE_IMAGE": self.cluster.image("shapetrace-engine"),
            "SHAPETRACE_IMAGE_PULL_POLICY": "IfNotPresent",
            "SHAPETRACE_PROBE_PORT": str(self.probe_port),
            **self.environment,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shapetrace_operator", "--namespace", self.namespace],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        if wait:
            wait_until("the operator is ready", self.ready, 180, lambda: self.log.read_text()[-2000:])
        return self

    def ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the operator ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.probe_port}/readyz", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL, as a lost node does it."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
