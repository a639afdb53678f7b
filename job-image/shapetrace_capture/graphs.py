"""Counts ``torch.cuda.CUDAGraph.capture_begin``: graphs captured in all, inside a capture of ours, and elsewhere.

So a place that captures graphs and that no hook covers is seen: ``done.json`` names its callers. Graphs that an engine
captures only to measure their memory, and throws away, are counted apart.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

MAX_CALLERS = 32
"""Bounds ``done.json``; capture sites of an engine are a handful."""

_OWN = "shapetrace_original"
_SKIPPED = ("torch/cuda/graphs.py", "shapetrace_capture/graphs.py", "contextlib.py", "torch/utils/_contextlib.py")


class GraphCounter:
    """The counts of one process."""

    def __init__(self) -> None:
        self.all = 0
        self.tagged = 0
        self.measured = 0
        self.measuring = False
        """Set by an engine's adapter while the engine only measures."""
        self._untagged: dict[str, None] = {}

    def install(self, graph_class: Any, is_tagged: Callable[[], bool]) -> str:
        """Wrap ``graph_class.capture_begin``; ``applied``, ``missing`` or ``error: ...``, never an exception."""
        try:
            original = getattr(graph_class, "capture_begin", None)
            if original is None:
                return "missing"
            original = getattr(original, _OWN, original)  # a later counter takes over, calls are never counted twice

            @functools.wraps(original)
            def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
                self._note(is_tagged)
                return original(graph, *args, **kwargs)

            setattr(capture_begin, _OWN, original)
            graph_class.capture_begin = capture_begin
        except Exception as error:
            return f"error: {error}"
        return "applied"

    def _note(self, is_tagged: Callable[[], bool]) -> None:
        try:
            if self.measuring:
                self.measured += 1
                return
            self.all += 1
            if is_tagged():
                self.tagged += 1
            elif len(self._untagged) < MAX_CALLERS:
                self._untagged.setdefault(_caller())
        except Exception:  # counting must not cost the engine its graph
            return

    def to_json(self) -> dict[str, Any]:
        """``captureBegin`` of ``done.json``."""
        return {
            "all": self.all,
            "tagged": self.tagged,
            "untagged": list(self._untagged),
            "measured": self.measured,
        }


def _caller() -> str:
    """``folder/file.py:line function`` of the first frame outside torch's graph class and this file."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_SKIPPED):
        frame = frame.f_back
    path = "/".join(frame.f_code.co_filename.split("/")[-3:])
    return f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
