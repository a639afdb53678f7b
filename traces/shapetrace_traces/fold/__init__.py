"""What is kept of a trace's events while they pass by: counts, and a few numbers of each event that time must order."""

from __future__ import annotations

from shapetrace_traces.fold.events import Fold

__all__ = ["Fold"]
