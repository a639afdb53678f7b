"""A number of bytes that several threads share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Budget:
    """Bytes to take from; who asks for more than there is at all gets all of it, alone."""

    def __init__(self, total_bytes: int) -> None:
        self._total = total_bytes
        self._free = total_bytes
        self._returned = threading.Condition()

    @contextmanager
    def take(self, wanted_bytes: int) -> Iterator[int]:
        """Wait for the bytes; what was granted is given back at the end."""
        granted = min(wanted_bytes, self._total)
        with self._returned:
            self._returned.wait_for(lambda: self._free >= granted)
            self._free -= granted
        try:
            yield granted
        finally:
            with self._returned:
                self._free += granted
                self._returned.notify_all()
