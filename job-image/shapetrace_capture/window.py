"""One profiled window: a fresh profiler, the tag in metadata and spans, a plain JSON file.

A profiler per window costs the same as a long-lived one with a schedule, and has no counter that could walk off.
Compression is not done here: torch's own gzip took 72 to 77 % of the time that a profiled capture costs, and a Python
thread that compresses adds its frames to the next window.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapetrace_contract import VERSION, spool

from shapetrace_capture import tracer

METADATA = "shapetrace"
"""The key in the trace's JSON."""

OWN_FRAMES = frozenset(
    {
        ("api.py", "shape"),
        ("capture.py", "__enter__"),
        ("capture.py", "__exit__"),
        ("capture.py", "_open"),
        ("capture.py", "_close"),
        ("capture.py", "_stop"),
        ("capture.py", "stop"),
        ("capture.py", "_note"),
        ("capture.py", "watch"),
        ("capture.py", "watched"),
        ("device.py", "is_capturing"),
        ("graphs.py", "_note"),
        ("graphs.py", "capture_begin"),
        ("session.py", "<lambda>"),  # is a capture open?
        ("window.py", "open"),
        ("window.py", "close"),
    }
)
"""(file, function) of this package that may stand in a trace with stacks: those that are running when the profiler
starts or stops, and the watched forward call. Everything else of ours in a trace is a fault (tests/torch)."""


class WindowError(RuntimeError):
    """A trace that could not be recorded or stored; the message says why."""


@dataclass(frozen=True)
class Options:
    """What one window records."""

    stacks: bool = False
    record_shapes: bool = True
    flops: bool = False
    memory: bool = False


def metadata(shape: Mapping[str, Any], tag: str, rank: int, stage: str, epoch: int) -> str:
    """The value of :data:`METADATA`. JSON always: any other text would make the whole trace unreadable."""
    return json.dumps({"v": VERSION, "tag": tag, "shape": dict(shape), "rank": rank, "stage": stage, "epoch": epoch})


class Window:
    """``open``, run what is to be recorded, ``close``, ``save``.

    ``settle`` is called just before a recording with stacks starts, outside of the trace.

    ``held`` keeps the profiler's C++ state alive after a window with stacks: the work of a collective refers to it too,
    and a torch before 2.8 crashes if its last owner is a thread without the interpreter's lock (:data:`tracer.FIXED`).
    Let go of it some windows later.
    """

    def __init__(self, torch: Any, options: Options, settle: Callable[[], None] = lambda: None) -> None:
        self._torch = torch
        self._settle = settle
        activity = torch.profiler.ProfilerActivity
        activities = [activity.CPU, activity.CUDA] if torch.cuda.is_initialized() else [activity.CPU]
        self.profile: Any = torch.profiler.profile(
            activities=activities,
            record_shapes=options.record_shapes,
            with_stack=options.stacks,
            with_flops=options.flops,
            profile_memory=options.memory,
        )
        self.held: Any = None
        if options.stacks and tracer.is_fragile(str(torch.__version__)):
            self.held = torch.futures.Future()
        self._spans: list[Any] = []

    def open(self, spans: list[str], value: str) -> None:
        """Start recording; set the metadata (while recording: kineto clears it at any other moment) and the spans."""
        self.profile.prepare_trace()
        if self.profile.with_stack:
            self._settle()
        try:
            self.profile.start_trace()
            self.profile.add_metadata_json(METADATA, value)
            for name in spans:
                span = self._torch.profiler.record_function(name)
                span.__enter__()
                self._spans.append(span)
            if self.held is not None and self._spans:
                # the one thing in Python that takes a reference to this thread's profiler state: a callback, kept by a
                # future that never completes; the span ends by its own exit all the same
                span._call_end_callbacks_on_future(self.held)
                span.run_callbacks_on_exit = True
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise

    def close(self) -> None:
        """End the spans inside the recording, then stop. If that fails the trace is lost, and the next one is not."""
        try:
            try:
                while self._spans:
                    self._spans.pop().__exit__(None, None, None)
            finally:
                self.profile.stop_trace()
        except BaseException:
            tracer.recover(self._torch, self.profile.activities)
            raise

    def save(self, path: Path) -> int:
        """Write the trace by temporary name + rename; its size in bytes. :class:`WindowError` if it is not whole.

        Kineto does not report a failed write (a full spool), so the end of the file is looked at. It keeps the failed
        file open, and its space taken, until the result is freed.
        """
        part = spool.temporary(path)
        try:
            self.profile.export_chrome_trace(str(part))
            raw_bytes = _whole_json_bytes(part)
            part.replace(path)
            return raw_bytes
        except Exception as error:
            fault = str(error)
        self.free()
        for left in path.parent.glob(f"{part.name}*"):
            left.unlink(missing_ok=True)
        raise WindowError(f"the trace could not be written: {fault}")

    def free(self) -> None:
        """Free the result, 10 to 100 ms: called between windows, so that it happens inside none.

        ``torch.profiler.profile`` is part of a reference cycle; left to the garbage collector, which does not see how
        large results are, those of many shapes would pile up.
        """
        if self.profile is not None:
            self.profile.profiler = None
            self.profile = None


def _whole_json_bytes(path: Path) -> int:
    """Size of a JSON object's file; OSError where its end is missing."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 64))
        tail = stream.read()
    if not tail.rstrip().endswith(b"}"):
        raise OSError(f"{size} bytes were written and the end is missing; is the spool full?")
    return size
