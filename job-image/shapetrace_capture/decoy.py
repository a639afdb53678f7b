"""A workaround for torch 2.6 on Python 3.13, where ``with_stack=True`` ends in SIGSEGV.

https://github.com/pytorch/pytorch/issues/144094: the Python tracer recognises module calls by the code object of
``nn.Module.__call__``, which it looks up once per process, and crashes on Python 3.13 in the first such call. Fixed in
torch 2.7. Debian 13 ships exactly this pair. Shown another function at that one look-up, the tracer never sees a module
call: frames of modules are lost, those of functions stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shapetrace_capture import tracer

NO_MODULE_FRAMES = "no module frames"
"""What ``rank.json`` says of stacks where the workaround is in force."""


def is_needed(torch_version: str, python_version: tuple[int, int]) -> bool:
    """Only for torch 2.6 (``2.6.0+debian``) on Python 3.13."""
    return torch_version.split(".")[:2] == ["2", "6"] and python_version == (3, 13)


def _decoy(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Does what ``nn.Module.__call__`` does, for a thread that calls a module during the look-up.

    A function of this module, because the tracer keeps the bare address of its code: freed, that address could become
    the code of a function that is really called.
    """
    return module._wrapped_call_impl(*args, **kwargs)


def show(torch: Any, settle: Callable[[], None]) -> None:
    """Make the tracer look the code up now, and find the decoy. Call once, before the first profiler with stacks.

    ``settle`` is called just before the tracer starts (:mod:`quiet`).
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    profile = torch.profiler.profile(activities=activities, with_stack=True)
    profile.prepare_trace()
    original = torch.nn.Module.__call__
    torch.nn.Module.__call__ = _decoy
    try:
        settle()
        profile.start_trace()
        profile.stop_trace()
    except BaseException:
        tracer.recover(torch, activities)
        raise
    finally:
        torch.nn.Module.__call__ = original
