"""Faults made from outside: signals to the processes of a container, found through the kernel, never through a hook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cluster import Cluster
from waiting import wait_until


def capture_pod(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    """The newest pod of the capture Job."""
    pods = cluster.list("pods", namespace, "shapetrace.dev/role=capture")
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])) if pods else None


def progress(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """What the collector says right now; empty while nothing answers."""
    pod = capture_pod(cluster, namespace)
    address = ((pod or {}).get("status") or {}).get("podIP")
    if not address:
        return []
    try:
        with urllib.request.urlopen(f"http://{address}:8090/progress", timeout=1) as answer:
            ranks: list[dict[str, Any]] = json.load(answer)["ranks"]
            return ranks
    except (OSError, ValueError):
        return []


def captured(cluster: Cluster, namespace: str) -> int:
    """Captures of all ranks so far."""
    return sum(int(entry.get("captured") or 0) for entry in progress(cluster, namespace))


@contextmanager
def half_way(cluster: Cluster, namespace: str, at_least: int) -> Iterator[int]:
    """Wait until that many traces are captured, and hold the ranks there as long as the block lasts, however fast they
    are; how many are captured."""

    def engine_states() -> list[dict[str, Any]]:
        pod = capture_pod(cluster, namespace) or {"status": {}}
        return [entry["state"] for entry in pod["status"].get("containerStatuses", []) if entry["name"] == "engine"]

    wait_until("the engine runs", lambda: any("running" in state for state in engine_states()), 300, engine_states)
    launcher = container_pid(cluster, namespace, "engine")  # before there is anything to be late for
    count = wait_until(
        f"{at_least} traces are captured",
        lambda: (count := captured(cluster, namespace)) >= at_least and count,
        300,
        engine_states,
    )
    ranks = descendants(launcher)
    send(ranks, signal.SIGSTOP)
    try:
        yield count
    finally:
        send(ranks, signal.SIGCONT)


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def container_pid(cluster: Cluster, namespace: str, container: str) -> int:
    """The pid, on this machine, of a container's first process."""
    pod = capture_pod(cluster, namespace)
    assert pod is not None
    status = pod["status"]
    entries = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
    identity = next(entry["containerID"] for entry in entries if entry["name"] == container).removeprefix(
        "containerd://"
    )
    for socket in sorted(cluster.run_dir.glob("node-*/containerd.sock")):
        tasks = subprocess.run(
            ["ctr", "-a", str(socket), "-n", "k8s.io", "tasks", "ls"], capture_output=True, text=True, check=True
        ).stdout
        for line in tasks.splitlines():
            words = line.split()
            if words and words[0] == identity:
                return int(words[1])
    raise AssertionError(f"no task of container {container}")


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            text = entry.read_text()
            parent = int(text[text.rindex(")") + 2 :].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = list(children.get(pid, []))
    for child in found:
        found.extend(children.get(child, []))
    return found


def rank_pid(launcher: int, rank: int) -> int:
    """The engine process of a rank, known by its environment."""
    for pid in descendants(launcher):
        with suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if f"RANK={rank}".encode() in environment and b"shapetrace_engine" in command:
                return pid
    raise AssertionError(f"no engine process of rank {rank} below {launcher}")


def kill_whole_container(pid: int) -> None:
    """SIGKILL to everything in a container at once, its first process included: what a cgroup v2 OOM does."""
    everyone = [pid, *descendants(pid)]
    send(everyone, signal.SIGSTOP)
    send(reversed(everyone), signal.SIGKILL)


def memory_limit_file(pid: int) -> tuple[Path, Path]:
    """(limit, usage) files of the memory cgroup that holds a process, cgroup v1 or v2."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            return folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes"
        if controllers == "":
            folder = Path("/sys/fs/cgroup") / path.lstrip("/")
            if (folder / "memory.max").exists():
                return folder / "memory.max", folder / "memory.current"
    raise AssertionError(f"no memory cgroup of process {pid}")
