"""`kubectl get prun -o wide` says in one word what a run waits for, as long as it does, and why it is suspended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cluster import Cluster, Operator
from runs import condition, profile_run
from waiting import wait_until

SHOWN_WITHIN_SECONDS = 120
"""A pod is scheduled and its first containers have run; half a minute on a machine at rest."""


def test_the_column_tells_what_a_run_waits_for_and_a_suspension_keeps_it(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Callable[[dict[str, Any]], str],
) -> None:
    name = apply_run(profile_run("waits", storage, spec={"engine": {"image": "localhost/no-such-image:1"}}))

    def column() -> str:
        head, line, *_ = cluster.kubectl("get", "prun", name, "-n", namespace, "-o", "wide").stdout.splitlines()
        return line[head.index("REASON") : head.index("MANIFEST")].strip()

    def run() -> dict[str, Any]:
        return cluster.get("profilerun", name, namespace) or {}

    def suspend(value: bool) -> None:
        patch = json.dumps({"spec": {"suspend": value}})
        cluster.kubectl("patch", "prun", name, "-n", namespace, "--type", "merge", "-p", patch)

    def wait_for_column(reason: str) -> None:
        wait_until(f"REASON {reason or 'empty'}", lambda: column() == reason, SHOWN_WITHIN_SECONDS, column)

    wait_for_column("ImagePullFailed")
    assert run()["status"]["phase"] == "Preparing"
    assert "failure" not in run()["status"]
    suspend(True)
    wait_until(
        "suspended", lambda: run()["status"]["phase"] == "Suspended", SHOWN_WITHIN_SECONDS, lambda: run()["status"]
    )
    assert column() == "Suspended"
    said = condition(run(), "Succeeded")["message"]
    assert said.startswith("suspended by spec.suspend; set it to false to start attempt 2; attempt 1 could not start: ")
    assert "ImagePullFailed: the image localhost/no-such-image:1" in said
    suspend(False)
    wait_for_column("")
    wait_for_column("ImagePullFailed")
