"""What is known of the Python tracer behind ``with_stack=True``, and of the versions in which it fails.

Seen on torch 2.6, Python 3.13 and gloo. The tracer walks all thread states of the interpreter and makes each of them
the current one. A thread of torch that drops the last reference to a tensor (gloo does, a moment after the collective
returned) has a thread state for that moment only; freed while the tracer makes it current, it stays counted as traced.
From then on every C call is traced, also with no profiler on, and each later window begins with the return of a call
that it never saw begin: "Python replay stack is empty", on every stop. :mod:`~shapetrace_capture.quiet` keeps the
window from starting at such a moment; :func:`sees_stray_return` tells that it happened all the same.

The same happens to a window in which a thread's C call ends that began in an earlier window
(https://github.com/pytorch/pytorch/pull/159574).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

FIXED = (2, 8)
"""Before it the tracer raises at a return without a call and the whole trace is lost
(https://github.com/pytorch/pytorch/pull/150370), and it frees Python objects without the interpreter's lock when its
last owner is a thread of torch, which ends in SIGSEGV (https://github.com/pytorch/pytorch/pull/151625)."""


def is_fragile(torch_version: str) -> bool:
    """Whether this torch (``2.6.0+debian``) is older than :data:`FIXED`; no for a version that cannot be read."""
    major, _, rest = torch_version.partition(".")
    minor = rest.partition(".")[0]
    return major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) < FIXED


def sees_stray_return() -> bool:
    """Whether a profile function set now would first see a C call return that it did not see begin.

    Asked with Python's own profile function, which must not be set. Python before 3.12 has no such state: there a call
    is traced by whether a function was set when it began.
    """
    if sys.version_info < (3, 12):
        return False
    seen: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        seen.append(event)

    sys.setprofile(None)  # ends the tracing that a thread left on which ended with its own function set
    sys.setprofile(note)
    sys.setprofile(None)
    return seen[:1] == ["c_return"]


def recover(torch: Any, activities: Iterable[Any]) -> None:
    """After a stop that raised, leave torch as one that succeeds would have: with no profiler on, by its own flag too.

    The flag stays set when the stop raises, and whoever looks at it (this package does) would take the process for one
    that is being profiled. Kineto's recording has no end yet: an empty one takes what is left of it.
    """
    autograd = torch.autograd
    with suppress(Exception):
        if autograd._profiler_enabled():
            autograd._disable_profiler()
    with suppress(Exception):
        autograd.profiler._set_is_profiler_enabled(False)
    with suppress(Exception):
        empty = torch.profiler.profile(activities=activities)
        empty.prepare_trace()
        empty.start_trace()
        empty.stop_trace()
