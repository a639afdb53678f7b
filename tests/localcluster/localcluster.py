"""The local cluster as tests see it: paths, image references, commands.

cluster = localcluster.running()            # raises NotRunningError, saying what to do
cluster.kubeconfig                          # for kubernetes.aio, kopf, helm
cluster.kubectl("get", "pods", "-A")
localcluster.image("shapetrace")            # what `cluster images` built last from this checkout
cluster.audit_events()                      # who wrote what to our kind and to Jobs
localcluster.run("restart", "apiserver")
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parent / "cluster"
# A first build compiles Kubernetes, which may take ten minutes on two cores, and may wait for another one's lock.
COMMAND_TIMEOUT_SECONDS = 3600.0


class NotRunningError(RuntimeError):
    """No local cluster runs; the message says how to start one."""


class CommandFailedError(RuntimeError):
    """A command of the cluster script or kubectl failed; the message holds what it printed."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster's files. `run_dir` is the folder that `cluster up` made."""

    run_dir: Path

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig; everything is in the file, so that it can be copied."""
        return self.run_dir / "admin.kubeconfig"

    @property
    def server(self) -> str:
        """The API server's URL, the same from pods and from this machine."""
        return "https://10.244.0.1:6443"

    @property
    def audit_log(self) -> Path:
        """JSON lines, at most 32 MiB, then rotated to `audit-<time>.log` twice."""
        return self.run_dir / "audit.log"

    def binary(self, name: str) -> Path:
        """kubectl, helm, kubelet, ... of the version that runs."""
        return self.run_dir / "bin" / name

    def nodes(self) -> list[str]:
        """The nodes that were started: node-1, perhaps node-2."""
        return sorted(path.parent.name for path in self.run_dir.glob("node-*/containerd.sock"))

    def kubectl(self, *arguments: str, input_text: str | None = None, timeout_seconds: float = 60.0) -> str:
        """Run kubectl as admin; its output. Raises CommandFailedError with what it said."""
        command = [str(self.binary("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments]
        return _run(command, timeout_seconds, input_text)

    def audit_events(self) -> Iterator[dict[str, Any]]:
        """Audit events (level Metadata, stage ResponseComplete and later), oldest first, rotated files included."""
        rotated = sorted(self.run_dir.glob("audit-*.log"))
        for path in [*rotated, self.audit_log]:
            if not path.exists():
                continue
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):  # the last one may be half written
                        yield json.loads(line)


def cache_dir() -> Path:
    """Where binaries, images and the run folder are; the script's rule."""
    chosen = os.environ.get("SHAPETRACE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shapetrace"


def running() -> Cluster:
    """The cluster that runs. Raises NotRunningError."""
    cluster = Cluster(cache_dir() / "cluster")
    if not cluster.kubeconfig.exists():
        raise NotRunningError("no local cluster runs: make cluster-up (as root), or tests/localcluster/cluster up")
    return cluster


def image(name: str) -> str:
    """The reference, by content, of what was built last from this checkout: `shapetrace` or `shapetrace-engine`."""
    return run("image-ref", name).strip()


def run(*arguments: str, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> str:
    """Run a command of the cluster script (`up`, `node2`, `restart apiserver`, ...); its standard output."""
    return _run([str(SCRIPT), *arguments], timeout_seconds)


def _run(command: list[str], timeout_seconds: float, input_text: str | None = None) -> str:
    standard_input: dict[str, Any] = {"input": input_text} if input_text is not None else {"stdin": subprocess.DEVNULL}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_seconds, check=False, **standard_input
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise CommandFailedError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout
