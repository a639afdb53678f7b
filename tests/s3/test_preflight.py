"""The preflight against a real S3 server, and against servers that are not there or do not do what they should."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from shapetrace_collector import preflight
from shapetrace_contract.message import Termination


def run(pod, **more):
    command = [sys.executable, "-m", "shapetrace_collector.preflight"]
    environment = {**pod.environment, **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    secret = environment["AWS_SECRET_ACCESS_KEY"]
    text = (pod.spool / "termination-log").read_text()
    assert secret not in done.stderr + text
    return done.returncode, Termination.from_text(text)


def test_the_attempt_is_claimed_once(pod) -> None:
    for uid, code in (("first", 0), ("first", 0), ("second", 43)):
        assert run(pod, SHAPETRACE_POD_UID=uid)[0] == code
    assert json.loads(pod.objects()["claims/0.json"]) == {"v": 1, "podUid": "first"}


def test_two_pods_at_once_share_no_attempt(pod, server, identities) -> None:
    found = []

    def attempt(uid: str) -> None:
        found.append(preflight.check({**pod.environment, "SHAPETRACE_POD_UID": uid}, time.monotonic() + 60))

    both = [threading.Thread(target=attempt, args=(uid,)) for uid in ("first", "second")]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(str(outcome.reason) for outcome in found) == ["AttemptTaken", "Done"]


@pytest.mark.parametrize("identity", ["reader", "wrong secret", "unknown key"])
def test_who_may_not_write_is_denied(make_pod, identity) -> None:
    code, left = run(make_pod(identity=identity))
    assert (code, left.reason) == (41, "StorageDenied")
    assert "claims/0.json" in left.message
    assert "credentials" in left.message


def test_a_missing_bucket_and_a_missing_right_are_named_together(make_pod) -> None:
    code, left = run(make_pod(bucket="absent"))
    assert (code, left.reason) == (41, "StorageDenied")
    assert "'absent' does not exist, or the credentials lack the right" in left.message


def test_a_store_that_is_away_is_waited_for_and_then_named(make_pod, proxy) -> None:
    pod = make_pod(endpoint=proxy.endpoint)
    proxy.refuse()
    begun = time.monotonic()
    found = preflight.check(pod.environment, begun + 2)
    assert 1 < time.monotonic() - begun < 60
    assert str(found.reason) == "StorageUnreachable"
    assert proxy.endpoint in found.message
    threading.Timer(1, proxy.open).start()
    assert str(preflight.check(pod.environment, time.monotonic() + 60).reason) == "Done"


def test_a_server_that_ignores_conditional_writes_is_refused(make_pod) -> None:
    class Careless(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Careless) as careless:
        threading.Thread(target=careless.serve_forever, daemon=True).start()
        code, left = run(make_pod(endpoint=f"http://127.0.0.1:{careless.server_address[1]}"))
        careless.shutdown()
    assert (code, left.reason) == (42, "ConditionalWritesIgnored")
    assert "If-None-Match" in left.message
