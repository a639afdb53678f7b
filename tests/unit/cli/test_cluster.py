"""Reading a ProfileRun over HTTP: a server in this process answers as an API server does."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from shapetrace_cli.cluster import Cluster, ClusterOptions
from shapetrace_cli.errors import CliError, UsageError
from shapetrace_cli.source import run_location

from .attempts import UID

RUNS = "/apis/shapetrace.dev/v1alpha1/namespaces/profiling/profileruns"


MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def profile_run(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "demo",
            "namespace": "profiling",
            "uid": UID,
            "creationTimestamp": MADE.strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "spec": {"storage": {"s3": {"bucket": "traces", "endpoint": "http://s3:8333", "pathStyle": True}}},
        "status": status,
    }


@pytest.fixture
def answers() -> dict[str, tuple[int, Any]]:
    return {}


@pytest.fixture
def kubeconfig(answers: dict[str, tuple[int, Any]], tmp_path: Path) -> Iterator[Path]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, {"message": "404 page not found"}))
            if self.headers["Authorization"] != "Bearer token-of-the-person":
                status, body = 401, {"message": "Unauthorized"}
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        path = tmp_path / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                    "users": [{"name": "u", "user": {"token": "token-of-the-person"}}],
                    "contexts": [
                        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "profiling"}},
                        {"name": "bare", "context": {"cluster": "c", "user": "u"}},
                    ],
                }
            )
        )
        try:
            yield path
        finally:
            server.shutdown()
            thread.join()


def test_context_and_namespace_are_taken_as_kubectl_takes_them(
    kubeconfig: Path, answers: dict[str, tuple[int, Any]]
) -> None:
    answers[f"{RUNS}/demo"] = (200, profile_run(attempt=1))
    cluster = Cluster(ClusterOptions(str(kubeconfig)))
    assert cluster.namespace == "profiling"
    assert cluster.profile_run("demo")["metadata"]["uid"] == UID
    assert Cluster(ClusterOptions(str(kubeconfig), "bare")).namespace == "default"
    assert Cluster(ClusterOptions(str(kubeconfig), namespace="other")).namespace == "other"
    with pytest.raises(UsageError, match="no usable kubeconfig"):
        Cluster(ClusterOptions(str(kubeconfig), "nowhere"))


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, {"message": "404 page not found"}, "knows no profileruns"),
        (404, {"message": "not found", "details": {"name": "demo"}}, "no ProfileRun 'demo' in namespace 'profiling'"),
        (403, {"message": "forbidden"}, "refuses to show ProfileRun 'demo'"),
        (500, {"message": "etcd \x1b[31mis gone"}, "failed .500.: etcd is gone"),
        (200, ["no object"], "failed .200."),
    ],
)
def test_a_refusal_says_what_and_where(
    status: int, body: Any, message: str, kubeconfig: Path, answers: dict[str, tuple[int, Any]]
) -> None:
    answers[f"{RUNS}/demo"] = (status, body)
    with pytest.raises(CliError, match=message) as error:
        Cluster(ClusterOptions(str(kubeconfig))).profile_run("demo")
    assert "token-of-the-person" not in error.value.message


def test_what_is_not_in_a_namespace_may_be_elsewhere(kubeconfig: Path, answers: dict[str, tuple[int, Any]]) -> None:
    answers[f"{RUNS}/demo"] = (404, {"message": "not found", "details": {"name": "demo"}})
    answers["/api/v1/namespaces/profiling/secrets/s3"] = (404, {"message": 'secrets "s3" not found'})
    cluster = Cluster(ClusterOptions(str(kubeconfig)))
    with pytest.raises(CliError, match="no ProfileRun 'demo' in namespace 'profiling'") as error:
        cluster.profile_run("demo")
    assert "A deleted run's traces stay in the bucket: fetch s3://" in error.value.hint
    with pytest.raises(CliError, match="no Secret 's3' in namespace 'profiling'") as error:
        cluster.credentials("s3")
    assert "give -n NAMESPACE" in error.value.hint


@pytest.mark.parametrize("given", [True, False])
def test_a_kubeconfig_that_is_not_there_is_named(given: bool, tmp_path: Path) -> None:
    path = tmp_path / "nonexist"
    clean = {**os.environ, "KUBECONFIG": "/unused" if given else str(path)}
    option = ["--kubeconfig", str(path)] if given else []
    command = [sys.executable, "-m", "shapetrace_cli", "watch", "demo", *option]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"no usable kubeconfig in {path}: " in done.stderr


def test_an_api_server_that_is_not_there_is_named(kubeconfig: Path) -> None:
    content = json.loads(kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    kubeconfig.write_text(json.dumps(content))
    with pytest.raises(CliError, match=r"127\.0\.0\.1:9 did not answer"):
        Cluster(ClusterOptions(str(kubeconfig))).profile_run("demo")


@pytest.mark.parametrize("name", ["../secrets/x", "demo?x=y", "Demo", "", "-demo"])
def test_a_name_cannot_change_the_request(name: str, kubeconfig: Path) -> None:
    with pytest.raises(UsageError, match="no name of a ProfileRun"):
        Cluster(ClusterOptions(str(kubeconfig))).profile_run(name)


def test_credentials_come_from_the_secret_and_a_missing_key_is_named(
    kubeconfig: Path, answers: dict[str, tuple[int, Any]]
) -> None:
    data = {"AWS_ACCESS_KEY_ID": base64.b64encode(b"me").decode(), "other": base64.b64encode(b"x").decode()}
    answers["/api/v1/namespaces/profiling/secrets/s3"] = (200, {"data": data})
    cluster = Cluster(ClusterOptions(str(kubeconfig)))
    with pytest.raises(CliError, match="has no AWS_SECRET_ACCESS_KEY"):
        cluster.credentials("s3")
    data["AWS_SECRET_ACCESS_KEY"] = base64.b64encode(b"hush\n").decode()
    assert cluster.credentials("s3") == {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush"}


def test_the_address_comes_from_status_and_the_way_there_from_the_spec() -> None:
    uri = f"s3://traces/team/profiling/demo/{UID}/attempt-2/manifest.json"
    run = profile_run(attempt=2, manifest={"uri": uri, "sha256": "ab" * 32})
    location, settings, sha256 = run_location(run, None, MADE)
    assert location.uri == uri.removesuffix("manifest.json")
    assert (settings.endpoint, settings.pathStyle, sha256) == ("http://s3:8333", True, "ab" * 32)


def test_an_earlier_attempt_is_found_and_has_no_vouched_manifest() -> None:
    location, _, sha256 = run_location(profile_run(attempt=2), 1, MADE)
    assert location.uri == f"s3://traces/profiling/demo/{UID}/attempt-1/"
    assert sha256 == ""


@pytest.mark.parametrize(
    ("status", "attempt", "message"),
    [
        ({}, None, "not finished: not seen by the operator"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "Scheduled", "status": "False", "reason": "Q", "message": "m"}],
            },
            None,
            r"not finished: Pending, nothing stored yet \(Q: m\)",
        ),
        ({"phase": "Capturing", "progress": {"summary": "3/32"}, "attempt": 1}, None, "not finished: Capturing, 3/32"),
        (
            {"phase": "Failed", "failure": {"reason": "StorageDenied", "message": "no such bucket"}},
            None,
            "ended without a manifest.*StorageDenied: no such bucket",
        ),
        ({"phase": "Succeeded", "attempt": 1}, 2, "no attempt 2 yet"),
        ({"manifest": {"uri": "s3://traces/profiling/demo/other-uid/attempt-1/manifest.json"}}, None, "another run"),
    ],
)
def test_nothing_to_fetch_is_explained(status: dict[str, Any], attempt: int | None, message: str) -> None:
    with pytest.raises(CliError, match=message):
        run_location(profile_run(**status), attempt, MADE)


def test_a_run_that_stays_unseen_is_not_to_be_waited_for() -> None:
    with pytest.raises(CliError, match=r"no operator has looked at this run yet.*namespace profiling") as error:
        run_location(profile_run(), None, MADE + timedelta(seconds=31))
    assert "wait" not in error.value.hint
    with pytest.raises(CliError, match="not seen by the operator yet") as error:
        run_location(profile_run(), None, MADE + timedelta(seconds=29))
    assert "kubectl wait" in error.value.hint
