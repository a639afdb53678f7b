"""Inside the engine's process: a fresh profiler around each captured graph, records to the spool.

Never raises into the engine. Standard library and torch only, Python 3.10 and later, no network. A script of the
user's calls :func:`shape` and :func:`plan`.
"""

from __future__ import annotations

from shapetrace_capture.api import plan, shape

__all__ = ["plan", "shape"]
