"""User annotations: of each name, the first in time."""

from __future__ import annotations

from typing import Any

from shapetrace_traces.fold.calls import Scope
from shapetrace_traces.fold.values import bounded, scalar

MAX_NAMES = 20_000
"""Distinct names held; a capture has its tag and a few of the engine's."""


class Spans:
    """Names of user annotations."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, float, int]] = {}
        self._threads: dict[str, tuple[Any, Any]] = {}
        self.too_many = 0
        """Annotations that came when no more names could be held."""

    def add(self, name: str, start: float, duration: float, event: Any, number: int) -> None:
        """One annotation."""
        name = bounded(name)
        key = (start, -duration, number)
        known = self._first.get(name)
        if known is None and len(self._first) >= MAX_NAMES:
            self.too_many += 1
        elif known is None or key < known:
            self._first[name] = key
            self._threads[name] = scalar(event.get("pid")), scalar(event.get("tid"))

    def names(self) -> list[str]:
        """Each name once, in the order of their first appearance in time."""
        return sorted(self._first, key=self._first.__getitem__)

    def scope(self, name: str) -> Scope | None:
        """The first span of a name."""
        found = self._first.get(name)
        if found is None:
            return None
        return Scope(found[0], found[0] - found[1], self._threads[name])

    def around(self, scope: Scope) -> list[str]:
        """Names whose first span overlaps a scope on its thread."""
        return [
            name
            for name in self.names()
            if self._threads[name] == scope.thread
            and self._first[name][0] <= scope.end
            and self._first[name][0] - self._first[name][1] >= scope.begin
        ]
