"""The preflight against a folder; the cases that need a server are in tests/s3."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shapetrace_collector import preflight
from shapetrace_contract.message import Termination, shorten
from shapetrace_contract.reasons import Reason
from shapetrace_traces.store import (
    CredentialsMissing,
    ObjectMissing,
    StoreDenied,
    StoreMisconfigured,
    StoreUnreachable,
)


def run(environment, **more):
    environment = {name: value for name, value in {**environment, **more}.items() if value is not None}
    command = [sys.executable, "-m", "shapetrace_collector.preflight"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    left = Path(environment["SHAPETRACE_TERMINATION_LOG"]).read_text()
    return done.returncode, Termination.from_text(left), done.stderr


def test_the_attempt_is_claimed_and_the_same_pod_passes_again(pod) -> None:
    for _ in range(2):
        code, left, said = run(pod.environment)
        assert (code, left.reason) == (0, "Done")
        assert "claimed" in said
    assert json.loads(pod.store.get("claims/0.json")) == {"v": 1, "podUid": "pod-uid-1"}


def test_another_pod_is_told_whose_attempt_it_is(pod) -> None:
    assert run(pod.environment)[0] == 0
    code, left, _ = run(pod.environment, SHAPETRACE_POD_UID="pod-uid-2")
    assert (code, left.reason) == (43, "AttemptTaken")
    assert "pod-uid-1" in left.message
    assert "claims/0.json" in left.message


def test_each_pod_of_a_run_has_a_claim_of_its_own(pod) -> None:
    assert run(pod.environment)[0] == 0
    assert run(pod.environment, SHAPETRACE_POD_UID="pod-uid-2", SHAPETRACE_POD_INDEX="1")[0] == 0


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"SHAPETRACE_STORE": None}, "SHAPETRACE_STORE"),
        ({"SHAPETRACE_STORE": "{"}, "SHAPETRACE_STORE"),
        ({"SHAPETRACE_STORE": '{"kind": "tape"}'}, "tape"),
        ({"SHAPETRACE_RUN": '{"namespace": "a/b", "name": "n", "uid": "u"}'}, "a/b"),
        ({"SHAPETRACE_POD_UID": None}, "SHAPETRACE_POD_UID"),
        ({"SHAPETRACE_POD_INDEX": "one"}, "SHAPETRACE_POD_INDEX"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(pod, more, named) -> None:
    code, left, _ = run(pod.environment, **more)
    assert (code, left.reason) == (44, "BadConfiguration")
    assert named in left.message


class Overwriting:
    """A store that ignores If-None-Match, as some servers do."""

    location = "there"

    def put(self, *_, **__):
        return None


def test_a_store_that_overwrites_is_refused() -> None:
    found = preflight.claim(Overwriting(), "claims/0.json", "me")
    assert found.reason is Reason.CONDITIONAL_WRITES_IGNORED
    assert "If-None-Match" in found.message


def test_an_unreadable_claim_is_not_ours(pod) -> None:
    pod.store.put("claims/0.json", b"\xff")
    assert preflight.claim(pod.store, "claims/0.json", "me").reason is Reason.ATTEMPT_TAKEN


def test_what_passes_by_itself_is_tried_again(pod, monkeypatch) -> None:
    tries = []
    real = preflight.claim

    def sometimes(*arguments):
        tries.append(arguments)
        if len(tries) < 3:
            raise StoreUnreachable("busy")
        return real(*arguments)

    monkeypatch.setattr(preflight, "claim", sometimes)
    monkeypatch.setattr(preflight, "PAUSE_SECONDS", 0.01)
    assert preflight.check(pod.environment, time.monotonic() + 60).reason is Reason.DONE
    assert len(tries) == 3


def test_a_claim_that_exists_and_is_not_there_is_said(pod, monkeypatch) -> None:
    """A server that answers 412 to every write."""

    def claim(*_: object) -> None:
        raise ObjectMissing("could not read claims/0.json: there is no such object")

    monkeypatch.setattr(preflight, "claim", claim)
    outcome = preflight.check(pod.environment, time.monotonic())
    assert (outcome.reason, "claims/0.json" in outcome.message) == (Reason.STORAGE_UNREACHABLE, True)


@pytest.mark.parametrize(
    ("error", "reason", "fields"),
    [
        (StoreUnreachable, "StorageUnreachable", "spec.storage.s3.endpoint"),
        (StoreDenied, "StorageDenied", "spec.storage.s3.bucket and spec.storage.s3.credentialsSecretRef"),
        (CredentialsMissing, "StorageDenied", "spec.storage.s3.bucket and spec.storage.s3.credentialsSecretRef"),
        (StoreMisconfigured, "BadConfiguration", "spec.storage.s3"),
    ],
)
def test_a_store_that_does_not_let_us_is_told_with_the_fields_to_look_at(
    pod, monkeypatch, error: type[Exception], reason: str, fields: str
) -> None:
    def claim(*_: object) -> None:
        raise error("could not write claims/0.json: HTTP 404" + "x" * 600)

    monkeypatch.setattr(preflight, "claim", claim)
    outcome = preflight.check(pod.environment, time.monotonic())
    assert outcome.reason.value == reason
    assert shorten(outcome.message).startswith(f"look at {fields}: could not write claims/0.json: HTTP 404")


def test_a_check_that_hangs_is_left_behind(pod, monkeypatch) -> None:
    import threading

    hang = threading.Event()
    monkeypatch.setattr(preflight, "check", lambda *_: hang.wait(60))
    monkeypatch.setattr(preflight, "TOTAL_SECONDS", 0.2)
    begun = time.monotonic()
    assert preflight.main(pod.environment) == 40
    assert time.monotonic() - begun < 30
    hang.set()
    left = Termination.from_text((pod.spool / "termination-log").read_text())
    assert left.reason == "StorageUnreachable"
