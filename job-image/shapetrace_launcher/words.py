"""What a process said last, as the reason for its end. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ERROR = re.compile(r"(\(\w+ pid=\d+\) |\S+ )?([A-Za-z_][\w.]*)?(Error|Exception)(: |$)")
"""With what engines put before the lines of a process of theirs: ``(EngineCore pid=7) ``, or one word."""
_REFERS = re.compile(r"\bsee (the )?(root cause|stack trace)\b", re.IGNORECASE)
"""What an engine's head says of a part that died: the error before it says why."""

_KINETO = re.compile(r"(USDT|ERROR|WARNING|INFO|STAGE):\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.\w+:\d+\] ")
"""How the profiler begins the lines of its own log, which it writes at the end of a process too."""


def is_error(line: str) -> bool:
    """Whether a line of output is the last of a traceback, such as ``RuntimeError: out of memory``."""
    return _ERROR.match(line) is not None


def last_words(output: bytes, *, of_many: bool) -> str:
    """The last line of ``output`` but for the profiler's own; ``of_many`` processes the last error: their head only
    tells that one below died."""
    texts = output.decode(errors="replace").splitlines()
    lines = ["".join(filter(str.isprintable, text)).strip() for text in texts if text.strip()]
    lines = [line for line in lines if not _KINETO.match(line)]
    chosen: Sequence[str] = [line for line in lines if is_error(line)] if of_many else ()
    chosen = [line for line in chosen if not _REFERS.search(line)] or chosen
    return next(reversed(chosen or lines), "")
