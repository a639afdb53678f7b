"""Writing results to standard output, which may be a full disk."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shapetrace_cli.errors import CliError
from shapetrace_cli.text import plain


@contextmanager
def printing(done: str = "") -> Iterator[None]:
    """Around everything that is printed as a result. ``done`` says what stands though it could not be told."""
    try:
        yield
    except BrokenPipeError:  # whoever read it has seen enough
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        raise CliError(f"standard output could not be written: {error.strerror or error}", done) from None


def next_step(folder: Path) -> str:
    """What to do with a folder of traces, spelled so that it is not taken for a run's name."""
    place = shlex.quote(plain(folder) if "/" in str(folder) else f"./{plain(folder)}")
    return f"next: shapetrace show {place}; shapetrace verify {place}; open a file of {place}/traces in Perfetto"
