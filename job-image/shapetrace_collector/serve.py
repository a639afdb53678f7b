"""``GET /progress`` and ``GET /healthz``."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from shapetrace_contract import VERSION, names
from shapetrace_contract.progress import RankProgress, body

MAX_THREADS = 16
"""Answers at once; the operator asks once a second."""
_SLOWEST_CLIENT_SECONDS = 5.0


class ProgressServer(ThreadingHTTPServer):
    """Serves what ``snapshot`` returns, until it is closed."""

    daemon_threads = True
    # a client that never sends its request must not keep a collector from ending
    block_on_close = False

    def __init__(self, host: str, port: int, snapshot: Callable[[], list[RankProgress]]) -> None:
        self.snapshot = snapshot
        self._free = threading.BoundedSemaphore(MAX_THREADS)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)
        threading.Thread(target=self.serve_forever, name="progress", daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind; an IPv6 socket takes IPv4 too."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread, or drop the request where too many are at work."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer in a thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


def serve(host: str, port: int, snapshot: Callable[[], list[RankProgress]]) -> ProgressServer:
    """Start the server. ``host`` empty: every address of the pod, IPv6 too where the node has it."""
    if host:
        return ProgressServer(host, port, snapshot)
    try:
        return ProgressServer("::", port, snapshot)
    except OSError:
        return ProgressServer("0.0.0.0", port, snapshot)  # noqa: S104 - a pod's port is there for the operator


class _Handler(BaseHTTPRequestHandler):
    timeout = _SLOWEST_CLIENT_SECONDS
    server: ProgressServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == names.PROGRESS_PATH:
            self._answer(200, body(self.server.snapshot()))
        elif path == "/healthz":
            self._answer(200, {"v": VERSION, "ok": True})
        else:
            self._answer(404, {"v": VERSION, "error": f"there is {names.PROGRESS_PATH} and /healthz"})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a poll a second is no event."""
