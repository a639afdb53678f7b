"""What stands where the store should be: proxies, default backends, servers that answer nonsense. Over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import Store, StoreMisconfigured, StoreUnreachable, open_store

PAGE = b"<html><body><h1>default backend</h1></body></html>"


class Answering(ThreadingHTTPServer):
    daemon_threads = True
    status, body, headers = 200, b"", {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answering

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.server.status)
        for name, value in {"Content-Length": str(len(self.server.body)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.server.body)

    do_GET = do_PUT = do_HEAD = _answer  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def listening() -> Iterator[Answering]:
    with Answering(("127.0.0.1", 0), _Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@pytest.fixture
def server(listening: Answering) -> Answering:
    listening.status, listening.body, listening.headers = 200, b"", {}
    return listening


@pytest.fixture(scope="module")
def store(listening: Answering) -> Store:
    """One for all: making a client of the SDK takes longer than all that is asked of it here."""
    settings = StoreSettings(bucket="traces", endpoint=f"http://127.0.0.1:{listening.server_port}", pathStyle=True)
    return open_store(settings, RunId("team", "run", "uid"), {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})


CALLS: dict[str, Callable[[Store], object]] = {
    "put": lambda store: store.put("traces/x", b"x"),
    "get": lambda store: store.get("traces/x"),
    "list": lambda store: list(store.list("traces/")),
}


def fault(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, PAGE),
        (404, b""),
        (408, PAGE),
        (421, PAGE),
        (425, b""),
        (400, fault("BadDigest")),
        (400, fault("IncompleteBody")),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_no_word_of_the_store_is_tried_again(server, store, status: int, body: bytes, call) -> None:
    """An ingress that has no backend for a moment answers 404: that must not cost a trace or hide a manifest."""
    server.status, server.body = status, body
    with pytest.raises(StoreUnreachable, match=str(status)):
        call(store)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("status", [302, 307])
def test_a_redirect_in_a_circle_is_an_error_of_ours(server, store, status: int, call) -> None:
    server.status, server.headers = status, {"Location": f"http://127.0.0.1:{server.server_port}/login"}
    with pytest.raises(StoreMisconfigured, match="redirect"):
        call(store)


@pytest.mark.parametrize(
    "token", ["", "<NextContinuationToken>again</NextContinuationToken>"], ids=["none", "the same"]
)
def test_a_list_that_does_not_end_is_given_up(server, store, token: str) -> None:
    server.body = f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>".encode()
    with pytest.raises(StoreUnreachable, match="list"):
        list(store.list("traces/"))


def test_an_object_that_is_not_there_is_none_on_head(server, store) -> None:
    server.status = 404
    assert store.head("traces/x") is None
