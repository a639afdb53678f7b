"""The operator killed at any of its API requests reaches the same end state, with no second child.

A proxy before the API server counts the operator's requests and kills the operator at the k-th: before the request
reaches the server, or after the server has answered and the answer is lost. The product has no hook for this.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster import Cluster, Operator
from proxy import ApiProxy, Seen
from runs import finished, profile_run
from waiting import wait_until

WORKERS = 3
"""Runs at once: each takes some 12 s of one core for importing torch."""
INTERESTING = ("create ", "patch ", "delete ", "update ")


def upstream(cluster: Cluster, folder: Path) -> tuple[str, str]:
    """The API server's address, and a file with the authority that the kubeconfig carries."""
    entry = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    path = folder / "ca.crt"
    path.write_bytes(base64.b64decode(entry["certificate-authority-data"]))
    return entry["server"], str(path)


def points_of(requests: list[Seen]) -> list[tuple[str, int]]:
    """Every write, and the first list and watch of each kind: as (kind, its how-manieth)."""
    counts: dict[str, int] = {}
    points = []
    for seen in requests:
        counts[seen.kind] = counts.get(seen.kind, 0) + 1
        first_look = counts[seen.kind] == 1 and seen.kind.startswith(("list ", "watch "))
        if seen.kind.startswith(INTERESTING) or first_look:
            points.append((seen.kind, counts[seen.kind]))
    return points


def end_state(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    status = (cluster.get("profilerun", name, namespace) or {})["status"]
    jobs = cluster.list("jobs", namespace, "shapetrace.dev/run")
    return {
        "phase": status["phase"],
        "verdict": status["verdict"],
        "attempt": status["attempt"],
        "progress": {key: value for key, value in status["progress"].items() if key != "bytes"},
        "ranks": [
            (entry["rank"], entry["state"], entry["captured"], entry["uploaded"], entry["verdict"])
            for entry in status["ranks"]
        ],
        "conditions": sorted((item["type"], item["status"], item["reason"]) for item in status["conditions"]),
        "children": sorted(job["metadata"]["labels"]["shapetrace.dev/role"] for job in jobs),
        "pods": len(cluster.list("pods", namespace, "shapetrace.dev/run")),
        "manifest": status["manifest"]["uri"].split("/attempt-")[1],
    }


class Scene:
    """One namespace with a run, and an operator behind a proxy."""

    def __init__(self, cluster: Cluster, namespace: str, storage: dict[str, Any], folder: Path) -> None:
        self.cluster, self.namespace, self.storage, self.folder = cluster, namespace, storage, folder
        folder.mkdir(parents=True)

    def play(
        self, kind: str | None = None, nth: int = 0, lose_answer: bool = False
    ) -> tuple[dict[str, Any], list[Seen]]:
        """Run to the end; kill the operator once at the nth request of a kind, and start it again."""
        server, ca_file = upstream(self.cluster, self.folder)
        killed = threading.Event()
        counted = 0
        lock = threading.Lock()

        def strike(seen: Seen) -> bool:
            nonlocal counted
            with lock:
                if killed.is_set() or seen.kind != kind:
                    return False
                counted += 1
                if counted != nth:
                    return False
                operator.kill()
                killed.set()
                return True

        with ApiProxy(server, ca_file) as proxy:
            operator = Operator(self.cluster, self.namespace, self.folder, server=proxy.url)
            operator.grant()
            if lose_answer:
                proxy.after = strike
            else:
                proxy.before = strike
            try:
                operator.start(wait=False)
                run = profile_run("small", self.storage, sizes=(1, 2))
                self.cluster.apply({**run, "metadata": {"name": "small", "namespace": self.namespace}})

                def over() -> bool:
                    if killed.is_set() and operator.process is not None and operator.process.poll() is not None:
                        operator.start(wait=False)
                    return finished(self.cluster.get("profilerun", "small", self.namespace))

                wait_until(
                    f"the run ends, operator killed at {kind} {nth}",
                    over,
                    300,
                    lambda: (
                        (self.cluster.get("profilerun", "small", self.namespace) or {}).get("status"),
                        operator.log.read_text()[-1500:],
                    ),
                )
            finally:
                operator.stop()
            assert kind is None or killed.is_set(), f"there was no {kind} number {nth}"
            return end_state(self.cluster, self.namespace, "small"), list(proxy.requests)


@pytest.mark.disruptive  # three runs at once fill two cores: alone
@pytest.mark.timeout(1800)
def test_killed_at_every_write_and_first_look(
    cluster: Cluster, make_namespace: Callable[[], tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    quiet, requests = Scene(cluster, *make_namespace(), tmp_path / "undisturbed").play()
    assert (quiet["phase"], quiet["verdict"], quiet["children"]) == ("Succeeded", "Complete", ["capture", "finish"])
    points = points_of(requests)
    print(f"{len(requests)} requests, killed at {len(points)} of them: {points}")
    assert any(kind.startswith("create jobs") for kind, _ in points)

    def play(number: int, point: tuple[str, int]) -> str:
        kind, nth = point
        # a write is struck before it arrives and after it was done, in turn; a look is struck before
        lose_answer = (kind.startswith(INTERESTING) and number % 2 == 1) or kind.startswith("create")
        try:
            state, _ = Scene(cluster, *make_namespace(), tmp_path / f"k{number}").play(kind, nth, lose_answer)
        except AssertionError as error:
            if "there was no" in str(error):
                return ""  # fewer progress writes than in the undisturbed run: nothing to be killed at
            return f"{point}: {error}"
        return "" if state == quiet else f"{point}, answer lost: {lose_answer}: {state} instead of {quiet}"

    with ThreadPoolExecutor(WORKERS) as pool:
        faults = [fault for fault in pool.map(play, range(len(points)), points) if fault]
    assert not faults, "\n".join(faults)
