"""Whether an engine takes requests yet: it answers one for a page that it does not have.

Not by its health route: SGLang's generates a token for each question, and followers of it answer before they are ready.
Not by a connection alone: the system accepts those for a process that does not answer yet.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

ASK_SECONDS = 5.0
"""How often."""
ANSWER_SECONDS = 1.0
"""Meanwhile nothing else is looked at; an engine that is too busy is asked again."""
REQUEST = b"GET /shapetrace HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n"


def answers(port: int) -> bool:
    """Whether an HTTP server on ``port`` of this machine answers, whatever it says."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(REQUEST)
            return connection.recv(5).startswith(b"HTTP/")
    except OSError:
        return False


class Serves:
    """Since when an engine takes requests."""

    def __init__(self, port: int | None, clock: Callable[[], float], ask: Callable[[int], bool] = answers) -> None:
        self._port, self._clock, self._ask = port, clock, ask
        self._asked_at: float | None = None
        self._since: float | None = None

    @property
    def forever(self) -> bool:
        """Whether it is an engine that serves until it is told to stop."""
        return self._port is not None

    def seconds(self) -> float | None:
        """How long; None while it does not, and for what never serves."""
        now = self._clock()
        if self._since is not None:
            return now - self._since
        if self._port is None or (self._asked_at is not None and now - self._asked_at < ASK_SECONDS):
            return None
        self._asked_at = now
        if not self._ask(self._port):
            return None
        self._since = now
        return 0.0
