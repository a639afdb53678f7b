"""Reading a trace once, in blocks, in constant memory, whatever its size and layout.

:mod:`source` gives the plain text in blocks, :mod:`text` cuts it between values, :mod:`walk` goes through the trace.
"""

from __future__ import annotations

from shapetrace_traces.reader.errors import TooLongTraceError, UnreadableTraceError
from shapetrace_traces.reader.source import MAX_RAW_BYTES, Reads, open_blocks
from shapetrace_traces.reader.walk import Walk

__all__ = ["MAX_RAW_BYTES", "Reads", "TooLongTraceError", "UnreadableTraceError", "Walk", "open_blocks"]
