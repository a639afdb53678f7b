"""Names of launched kernels: AMD's tracer writes them beside the launch, which ties a capture to its replays."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from itertools import islice
from typing import Any

MAX_CHARACTERS = 4_000_000
"""Of all distinct names together; a capture has some dozens, of some hundred characters each."""
UNNAMED = 0
_RUN = 65_536
"""Names that are hashed at once."""


class KernelNames:
    """Each distinct name once, by a number."""

    def __init__(self) -> None:
        self._code_of: dict[str, int] = {}
        self._names = [""]
        self._characters = 0
        self.too_many = 0
        """Launches whose name could not be held: then no sequence is known."""

    def code(self, arguments: Any) -> int:
        """The number of what a call launched; :data:`UNNAMED` where its arguments do not say."""
        try:
            name = arguments["kernel"]
        except (KeyError, TypeError, IndexError):  # NVIDIA's tracer, or something else in the place of arguments
            return UNNAMED
        if type(name) is not str or not name:
            return UNNAMED
        code = self._code_of.get(name)
        return self._new_code(name) if code is None else code

    def _new_code(self, name: str) -> int:
        if self._characters + len(name) > MAX_CHARACTERS:
            self.too_many += 1
            return UNNAMED
        self._characters += len(name)
        self._names.append(name)
        code = self._code_of[name] = len(self._names) - 1
        return code

    def sequence_sha256(self, runs: Iterable[array[int]]) -> str | None:
        """SHA-256 of the names in this order, joined by newlines; None without launches, or where one has no name."""
        codes = (code for run in runs for code in run)
        sequence, is_first = hashlib.sha256(), True
        while some := list(islice(codes, _RUN)):
            if UNNAMED in some:
                return None
            text = "\n".join(map(self._names.__getitem__, some))
            sequence.update((text if is_first else "\n" + text).encode("utf-8", "replace"))
            is_first = False
        return None if is_first else sequence.hexdigest()
