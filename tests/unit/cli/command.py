"""The command line, called in this process."""

from __future__ import annotations

import pytest
from shapetrace_cli.main import main


def run(*arguments: object) -> int:
    """The exit code; what is printed is for ``capsys``."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert isinstance(end.value.code, int)
    return end.value.code
