from __future__ import annotations

import base64
import hashlib
import importlib.util
import socket
import time
from pathlib import Path

import pytest
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import Patience, Store, StoreDenied, StoreUnreachable, open_store


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(f"shapetrace_tests_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


behaviour = _load(Path(__file__).parents[1] / "unit" / "store" / "behaviour.py")


PATIENT = Patience(connect_timeout_seconds=5, read_timeout_seconds=60, attempts=1)
"""SeaweedFS lets conditional writes of one key pass one by one, and a writer that waits asks again after about two
seconds: of eight at once the last is answered after 6 s on an idle machine."""
BRIEF = Patience(connect_timeout_seconds=1, read_timeout_seconds=2, attempts=1)
"""For a server that never answers."""


def open_bucket(
    server, prefix: str, credentials: dict[str, str], attempt: int = 1, patience: Patience = PATIENT, **more: object
) -> Store:
    settings = StoreSettings(**server.settings(prefix=prefix, **more))
    run = RunId(namespace="team", name="run", uid="u-1", attempt=attempt)
    return open_store(settings, run, credentials, patience)


@pytest.fixture
def store(server, prefix, identities) -> Store:
    return open_bucket(server, prefix, identities["writer"])


@pytest.fixture
def other(server, prefix, identities) -> Store:
    return open_bucket(server, prefix, identities["writer"], attempt=2)


class TestS3(behaviour.StoreBehaviour):
    pass


def test_the_server_checks_and_keeps_the_sha256_of_what_is_stored(server, store: Store, prefix: str) -> None:
    store.put("parts/00000.json", b"{}")
    key = f"{prefix}/team/run/u-1/attempt-1/parts/00000.json"
    answer = server.client().head_object(Bucket="traces", Key=key, ChecksumMode="ENABLED")
    assert base64.b64decode(answer["ChecksumSHA256"]) == hashlib.sha256(b"{}").digest()
    # a body that is not what was announced never becomes an object
    with pytest.raises(Exception, match=r"parts/00001\.json"):
        store.put("parts/00001.json", b"{}", sha256="00" * 32)
    assert store.head("parts/00001.json") is None


def test_a_list_goes_on_over_pages(server, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"parts/{number:05d}.json" for number in range(7)]
    for name in names:
        store.put(name, b"")
    whole = store._client.list_objects_v2
    monkeypatch.setattr(store._client, "list_objects_v2", lambda **arguments: whole(**arguments, MaxKeys=3))
    assert [item.key for item in store.list()] == names


@pytest.mark.parametrize("who", ["reader", "wrong secret", "unknown key"])
def test_who_may_not_write_is_denied_and_no_secret_is_told(server, prefix, identities, who: str) -> None:
    with pytest.raises(StoreDenied) as fault:
        open_bucket(server, prefix, identities[who]).put("claims/0.json", b"{}")
    assert server.endpoint in str(fault.value)
    assert identities[who]["AWS_SECRET_ACCESS_KEY"] not in str(fault.value)
    assert len(str(fault.value)) <= 512


def test_a_missing_bucket_is_named_together_with_a_missing_right(server, prefix, identities) -> None:
    with pytest.raises(StoreDenied, match="'absent' does not exist, or the credentials lack the right"):
        open_bucket(server, prefix, identities["writer"], bucket="absent").put("claims/0.json", b"{}")


def test_a_closed_port_is_unreachable_at_once(server, prefix, identities) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(StoreUnreachable, match="check the endpoint"):
            open_bucket(server, prefix, identities["writer"], endpoint=endpoint).head("x")
    assert time.monotonic() - begun < 45


def test_a_server_that_accepts_and_says_nothing_is_given_up(prefix, server, identities) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(StoreUnreachable, match="Read timeout"):
            open_bucket(server, prefix, identities["writer"], patience=BRIEF, endpoint=endpoint).put("x", b"")
    assert time.monotonic() - begun < 45


def test_a_certificate_nobody_vouches_for_is_refused_and_the_setting_named(server, prefix, identities) -> None:
    with pytest.raises(StoreUnreachable, match="not trusted: set storage caBundle"):
        open_bucket(server, prefix, identities["writer"], endpoint=server.tls_endpoint).put("x", b"")


def test_with_its_ca_bundle_a_private_server_is_used_and_the_body_need_not_be_signed(
    server, prefix, identities, tmp_path
) -> None:
    tls = {"endpoint": server.tls_endpoint, "caBundle": str(server.certificate)}
    store = open_bucket(server, prefix, identities["writer"], **tls)
    sent = []
    store._client.meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.append(request.headers))
    store.put("parts/00000.json", b"{}")
    assert store.get("parts/00000.json") == b"{}"
    assert sent[0]["x-amz-content-sha256"] == b"UNSIGNED-PAYLOAD"
    plain = open_bucket(server, prefix, identities["writer"])
    plain._client.meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.append(request.headers))
    plain.put("parts/00001.json", b"{}")
    assert sent[1]["x-amz-content-sha256"] == hashlib.sha256(b"{}").hexdigest().encode()
