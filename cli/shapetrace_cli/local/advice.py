"""What a person can do about an engine that could not start here, from its last words. Pure."""

from __future__ import annotations

import re

_MODULE = re.compile(r"No module named '?([A-Za-z_][A-Za-z0-9_]*)")
_FILE = re.compile(r"can't open file '([^']*)'")
"""What CPython says of a script that is not there."""
GET_TORCH = "`make venv-torch` in the checkout makes a Python with it, .venv-torch/bin/python; name that, or another"


def advice(cause: str, current_folder: str) -> str:
    """A sentence, empty where nothing is known to help. ``cause`` ends with the engine's last words."""
    if module := _MODULE.search(cause):
        missing = f"module {module[1]}: install it there, or name one"
        if module[1] == "torch":
            missing = f"torch. {GET_TORCH}"
        return f"The engine's Python has no {missing} that has it with --python (it comes first in PATH)."
    if _FILE.search(cause):
        return f"Relative paths of engine.args are taken from the current folder, {current_folder}."
    return ""
