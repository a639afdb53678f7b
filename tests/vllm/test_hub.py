"""Fetching a model with the real huggingface_hub, from a small stand-in for the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="no hub's library here: make test-vllm has an environment with it")

TOKEN = "hf_hush"
COMMIT = "a" * 40
FILES = ("config.json", "model.safetensors", "pytorch_model.bin", "original/x.pth")
NO = {"gated": (403, "GatedRepo"), "absent": (404, "RepoNotFound"), "unrevised": (404, "RevisionNotFound")}


class Hub(BaseHTTPRequestHandler):
    """The routes that are asked for: the list of files, and each file."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        name = next((name for name in NO if f"/{name}/" in self.path), "")
        listing = "/tree/" in self.path or "/revision/" in self.path
        if name and not (name == "gated" and listing):
            code, word = NO[name]
            self._say(code, b"{}", {"X-Error-Code": word, "X-Error-Message": "no"})
        elif "/tree/" in self.path:
            files = [{"type": "file", "path": path, "oid": "c" * 40, "size": 4} for path in FILES]
            self._say(200, json.dumps(files).encode(), {"Content-Type": "application/json"})
        elif listing:
            info = {"id": "org/x", "sha": COMMIT, "siblings": [{"rfilename": path} for path in FILES]}
            self._say(200, json.dumps(info).encode(), {"Content-Type": "application/json"})
        else:
            etag = f'"{abs(hash(self.path)):040x}"'
            self._say(200, b"text", {"X-Repo-Commit": COMMIT, "ETag": etag})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _say(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def fetch(home: Path, endpoint: str, name: str, **variables: str) -> tuple[int, str]:
    """Exit code and output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment.update(HF_HOME=str(home), HF_ENDPOINT=endpoint, HF_TOKEN=TOKEN, HF_HUB_DISABLE_XET="1", **variables)
    request = json.dumps([{"name": f"org/{name}", "revision": None, "weights": True}])
    done = subprocess.run(
        [sys.executable, "-m", "shapetrace_launcher.fetch", str(home / "answer"), request],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert TOKEN not in done.stdout + done.stderr
    return done.returncode, done.stdout


def test_weights_come_once_and_are_found_again_without_the_hub(hub: str, tmp_path: Path) -> None:
    code, said = fetch(tmp_path, hub, "model")
    assert code == 0, said
    (folder,) = json.loads((tmp_path / "answer").read_text())
    assert {path.name for path in Path(folder).iterdir()} == {"config.json", "model.safetensors"}
    (tmp_path / "answer").unlink()
    code, said = fetch(tmp_path, hub, "model", HF_HUB_OFFLINE="1")
    assert code == 0, said
    assert json.loads((tmp_path / "answer").read_text()) == [folder]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gated", "access to it is gated"),
        ("absent", "there is no such model"),
        ("unrevised", "it has no such revision"),
    ],
)
def test_what_the_hub_refuses_is_bad_configuration(hub: str, tmp_path: Path, name: str, words: str) -> None:
    code, said = fetch(tmp_path, hub, name)
    assert code == 44, said
    assert f"models: org/{name}: {words}" in said.splitlines()[-1]


def test_a_hub_that_cannot_be_reached_is_said_to_be_so(tmp_path: Path) -> None:
    code, said = fetch(tmp_path, "http://127.0.0.1:1", "model", HF_HUB_OFFLINE="1")
    assert code == 50, said
    assert "the hub cannot be reached and the cache has no copy" in said.splitlines()[-1]
