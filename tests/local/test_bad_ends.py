"""How run-local ends though the program itself ended well: what the operator calls Failed is no success here either."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ONE_SIZE = """
import torch
import shapetrace_capture

weight = torch.randn(16, 16)
with shapetrace_capture.shape(size=8, runner="R"):
    torch.randn(8, 16) @ weight
"""


def spec(script: Path, text: str, **capture: Any) -> dict[str, Any]:
    script.write_text(text)
    engine = {"name": "command", "image": "not-used", "args": ["python3", str(script)]}
    storage = {"s3": {"bucket": "not-used"}}
    return {"engine": engine, "capture": capture, "accelerator": {"vendor": "none"}, "storage": storage}


@pytest.mark.torch
def test_a_strict_run_that_is_not_proven_fails_and_its_last_line_says_so(
    run_local: Callable[..., Any], tmp_path: Path
) -> None:
    code, _, err = run_local(spec(tmp_path / "one.py", ONE_SIZE, strict=True)).end()
    found = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (found["verdict"], found["failure"]["reason"]) == ("Complete", "NotProven")
    assert code == 1, err
    evidence = next(text for text in found["traces"][0]["evidence"] if text.startswith("size: "))
    assert err.splitlines()[-1] == (
        "error: NotProven: strict is set, and 1 of 1 traces are not proven, first rank 0 R__bs_8 (size consistent); "
        + evidence
    )


@pytest.mark.torch
def test_a_block_in_which_nothing_ran_fails_the_run_and_the_last_line_says_so(
    run_local: Callable[..., Any], tmp_path: Path
) -> None:
    before = "\n".join([*ONE_SIZE.splitlines()[:-1], "    pass"])
    code, _, err = run_local(spec(tmp_path / "empty.py", before)).end()
    assert code == 1, err
    assert err.splitlines()[-1] == "error: Partial: rank 0: R__bs_8 is dirty: no operator ran inside its block"
