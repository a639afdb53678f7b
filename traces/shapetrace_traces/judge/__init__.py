"""Judging: how well each trace's label is supported, and what that makes of a rank and of the run.

Pure functions from parts to verdicts; docs/verdicts.md has the rules as a table.
"""

from __future__ import annotations

from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.ranks import RankVerdict, TraceVerdict
from shapetrace_traces.judge.verdicts import Verdicts, judge

__all__ = ["RankVerdict", "Trace", "TraceVerdict", "Verdicts", "judge"]
