from __future__ import annotations

import pytest
from shapetrace_cli.local.advice import advice

ENDED = "EngineFailed: rank 0 ended with exit code 1: "


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "no torch. `make venv-torch` in the checkout makes"),
        ("ModuleNotFoundError: No module named 'torch.cuda.x'", "no torch. `make venv-torch` in the checkout makes"),
        ("/usr/bin/python3: No module named torch", "no torch. `make venv-torch` in the checkout makes"),
        ("ModuleNotFoundError: No module named 'mine'", "no module mine"),
        ("python3: can't open file '/here/run.py': [Errno 2] No such file or directory", "the current folder, /here"),
        ("Killed", ""),
        ("", ""),
    ],
)
def test_an_engine_that_could_not_start_gets_a_hint(cause: str, said: str) -> None:
    text = advice(ENDED + cause, "/here")
    assert said in text
    assert bool(text) is bool(said)
    assert ("--python" in text) is ("module" in cause)
