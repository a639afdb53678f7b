"""Whether an engine takes requests yet: by a TCP connection that asks for nothing.

Not by its health route: SGLang's generates a token for each question, and followers of it answer before they are ready.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

ASK_SECONDS = 1.0
"""How often."""
_CONNECT_SECONDS = 0.2
"""Our own machine answers or refuses at once."""


def accepts(port: int) -> bool:
    """Whether somebody listens on ``port`` of this machine."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


class Serves:
    """Since when an engine takes requests."""

    def __init__(self, port: int | None, clock: Callable[[], float], connect: Callable[[int], bool] = accepts) -> None:
        self._port, self._clock, self._connect = port, clock, connect
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
        if not self._connect(self._port):
            return None
        self._since = now
        return 0.0
