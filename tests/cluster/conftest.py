"""Fixtures of the cluster tests: `make test` brings the cluster up; each test has its own namespace and bucket."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent / "support"), str(Path(__file__).parents[1] / "localcluster")]

import s3 as objectstore  # noqa: E402
from cluster import ROOT, Cluster, Operator  # noqa: E402
from objects import SECRET, make_secret  # noqa: E402
from runs import finished  # noqa: E402
from waiting import wait_until  # noqa: E402

LOGS = ROOT / "test-logs"


RUN_SECONDS = 300
"""For a run to end: half a minute on a machine at rest, of which torch's import takes most."""
TEST_SECONDS = 900
"""More than all that a test waits for: what did not come is then told by name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in item.path.parts:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    setattr(item, f"report_{outcome.get_result().when}", outcome.get_result())


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    cache = os.environ.get("SHAPETRACE_CACHE_DIR") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shapetrace"
    )
    found = Cluster(Path(cache) / "cluster")
    if not found.kubeconfig.exists():
        pytest.fail("no local cluster runs: make cluster-up", pytrace=False)
    # one worker at a time: two that create the CRD at once meet "already exists"
    with (found.run_dir / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds/shapetrace.dev_profileruns.yaml")
        )
        found.kubectl("wait", "--for=condition=Established", "crd/profileruns.shapetrace.dev", "--timeout=120s")
    return found


@pytest.fixture
def kubectl(cluster: Cluster) -> Callable[..., Any]:
    return cluster.kubectl


@contextmanager
def fresh_namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace under Pod Security `restricted`, removed afterwards; a failed test leaves its state in test-logs/."""
    word = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:30].strip("-")
    name = f"t-{word}-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    wait_until("the default ServiceAccount", lambda: cluster.get("serviceaccount", "default", name), 120)
    try:
        yield name
    finally:
        report = getattr(request.node, "report_call", None)
        if report is None or report.failed:
            leave_logs(cluster, name, request.node.name)
        cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh namespace of the test's own."""
    with fresh_namespace(cluster, request) as name:
        yield name


def leave_logs(cluster: Cluster, namespace: str, test: str) -> None:
    folder = LOGS / re.sub(r"[^A-Za-z0-9_.-]+", "_", test)
    folder.mkdir(parents=True, exist_ok=True)
    kinds = "profileruns,jobs,pods,events"
    (folder / "objects.yaml").write_text(
        cluster.kubectl("get", kinds, "-n", namespace, "-o", "yaml", check=False).stdout
    )
    for pod in cluster.list("pods", namespace):
        name = pod["metadata"]["name"]
        done = cluster.kubectl("logs", "-n", namespace, name, "--all-containers", "--prefix", "--tail=500", check=False)
        (folder / f"{name}.log").write_text(done.stdout + done.stderr)


@pytest.fixture(scope="session")
def store() -> objectstore.Store:
    """The cluster's own object store."""
    return objectstore.shared()


@contextmanager
def fresh_bucket(cluster: Cluster, namespace: str, store: objectstore.Store) -> Iterator[str]:
    """A bucket named as the namespace, and the Secret `shapetrace-s3` of an identity that may use this bucket only."""
    store.create_bucket(namespace)
    make_secret(cluster, namespace, *store.limited_identity(namespace))
    try:
        yield namespace
    finally:
        client = store.admin_client()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=namespace):
            for item in page.get("Contents", []):
                client.delete_object(Bucket=namespace, Key=item["Key"])
        client.delete_bucket(Bucket=namespace)


@pytest.fixture
def bucket(cluster: Cluster, namespace: str, store: objectstore.Store) -> Iterator[str]:
    """A fresh bucket of the test's own."""
    with fresh_bucket(cluster, namespace, store) as name:
        yield name


def storage_in(bucket: str, store: objectstore.Store) -> dict[str, Any]:
    """`spec.storage.s3` for a bucket of the cluster's store."""
    return {
        "bucket": bucket,
        "prefix": "traces",
        "endpoint": store.endpoint,
        "region": "us-east-1",
        "pathStyle": True,
        "credentialsSecretRef": {"name": SECRET},
    }


@pytest.fixture
def storage(bucket: str, store: objectstore.Store) -> dict[str, Any]:
    """`spec.storage.s3` for the test's bucket."""
    return storage_in(bucket, store)


@pytest.fixture
def make_namespace(
    cluster: Cluster, store: objectstore.Store, request: pytest.FixtureRequest
) -> Iterator[Callable[[], tuple[str, dict[str, Any]]]]:
    """Makes further namespaces with a bucket each, from any thread: (namespace, storage)."""
    with ExitStack() as stack:
        lock = threading.Lock()

        def make() -> tuple[str, dict[str, Any]]:
            with lock:
                name = stack.enter_context(fresh_namespace(cluster, request))
                return name, storage_in(stack.enter_context(fresh_bucket(cluster, name, store)), store)

        yield make


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Operator]:
    """An operator for this namespace only, as a process of this machine, with the chart's rights."""
    process = Operator(cluster, namespace, tmp_path)
    process.grant()
    process.start()
    yield process
    process.stop()
    report = getattr(request.node, "report_call", None)
    if report is None or report.failed:
        folder = LOGS / re.sub(r"[^A-Za-z0-9_.-]+", "_", request.node.name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "operator.log").write_bytes(process.log.read_bytes())


@pytest.fixture
def apply_run(cluster: Cluster, namespace: str) -> Callable[[dict[str, Any]], str]:
    """Apply a ProfileRun in the test's namespace; its name."""

    def apply(run: dict[str, Any]) -> str:
        cluster.apply({**run, "metadata": {**run["metadata"], "namespace": namespace}})
        return str(run["metadata"]["name"])

    return apply


@pytest.fixture
def wait_finished(cluster: Cluster, namespace: str) -> Callable[..., dict[str, Any]]:
    """Wait until a run has ended; the run."""

    def wait(name: str, timeout_seconds: float = RUN_SECONDS) -> dict[str, Any]:
        def probe() -> dict[str, Any] | None:
            run = cluster.get("profilerun", name, namespace)
            return run if finished(run) else None

        return wait_until(
            f"run {name} finished",
            probe,
            timeout_seconds,
            lambda: (cluster.get("profilerun", name, namespace) or {}).get("status"),
        )

    return wait
