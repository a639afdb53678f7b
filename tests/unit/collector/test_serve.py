from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request

import pytest
from shapetrace_collector import serve as module
from shapetrace_collector.serve import serve
from shapetrace_contract.progress import RankProgress


@pytest.fixture
def start():
    servers = []

    def begin(snapshot, host="127.0.0.1"):
        servers.append(serve(host, 0, snapshot))
        return servers[-1]

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def get(server, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
        return answer.headers["Content-Type"], json.load(answer)


def test_progress_is_json_with_the_ranks_entries(start) -> None:
    server = start(lambda: [RankProgress(rank=3, state="Capturing", captured=2, uploaded=1, pod="p", node="n")])
    kind, body = get(server, "/progress?x=1")
    assert kind == "application/json"
    assert body["v"] == 1
    assert [RankProgress.from_json(entry) for entry in body["ranks"]] == server.snapshot()


def test_every_address_of_the_pod_is_served(start) -> None:
    assert get(start(list, host=""), "/healthz")[1]["ok"] is True


def test_other_paths_are_not_found(start) -> None:
    with pytest.raises(urllib.error.HTTPError) as fault:
        get(start(list), "/metrics")
    assert fault.value.code == 404
    fault.value.close()


def test_clients_that_say_nothing_do_not_keep_others_out_for_ever(start, monkeypatch, until) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.2)
    server = start(list)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(module.MAX_THREADS + 4)]

    def answered() -> bool:
        try:
            return get(server, "/progress")[1]["ranks"] == []
        except OSError:
            return False

    until(answered)
    answering = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
    assert len(answering) <= module.MAX_THREADS + 1, "one may have answered and not ended yet"
    for client in silent:
        client.close()
