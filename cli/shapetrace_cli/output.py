"""Writing results to standard output, which may be a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shapetrace_cli.errors import CliError


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
