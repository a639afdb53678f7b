"""Directories of capture traces that others wrote: what each file really holds, and rightly named copies.

Nothing here believes a name: names are claims, and what the events show decides. :mod:`names` reads the claims,
:mod:`scan` the files, :mod:`captures` finds the captures in them, :mod:`findings` judges them, :mod:`report` says what
that makes of the directory, :mod:`plan` and :mod:`relabel` write the copies.
"""

from __future__ import annotations

from shapetrace_traces.foreign.report import Report, Standing, make_report
from shapetrace_traces.foreign.scan import File, list_files, read_file

__all__ = ["File", "Report", "Standing", "list_files", "make_report", "read_file"]
