"""``engine: command``: what a script that calls us wrongly is told, in its own words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from launched import folder, launch, lines

NOT_A_DICT = 'plan() takes dicts such as {"size": 8, "runner": "R"}, not '
WORK = "torch.ones(2).sin()"


def told(tmp_path: Path, *script: str) -> dict[str, Any]:
    spool = tmp_path / "spool"
    code = "\n".join(["import torch, shapetrace_capture", *script])
    launch(spool, [sys.executable, "-W", "ignore", "-c", code], name="command", targets=[])
    (done,) = lines(folder(spool) / "done.json")
    return done


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param(
            ["with shapetrace_capture.shape(8, unit='batch'): pass"],
            "shape(size=8, unit='batch'): unit 'batch' is not one of bs (requests) and tok (tokens)",
            id="unit",
        ),
        pytest.param(
            ["with shapetrace_capture.shape(8, 'R', lora='x'): pass"],
            "shape(size=8, unit='R', lora='x'): unit 'R' is not one of bs (requests) and tok (tokens)",
            id="a runner in the unit's place",
        ),
        pytest.param(
            ["shapetrace_capture.plan([{'size': 8, 'unit': 'batch'}])"],
            "plan(): unit 'batch' is not one of bs (requests) and tok (tokens)",
            id="unit of a plan",
        ),
        pytest.param(["shapetrace_capture.plan([8, 4])"], NOT_A_DICT + "8", id="sizes"),
        pytest.param(["shapetrace_capture.plan(8)"], NOT_A_DICT + "8", id="a size"),
        pytest.param(["shapetrace_capture.plan([{'bs': 8}])"], NOT_A_DICT + "{'bs': 8}", id="no size"),
        pytest.param(
            [f"with shapetrace_capture.shape(2): {WORK}", "shapetrace_capture.plan([{'size': 2}])"],
            "plan() came after the first shape(): call it before",
            id="late plan",
        ),
        pytest.param(
            ["for size in (2, 4): shapetrace_capture.shape(size)"],
            'shape(...) was called 2 times and never entered: write "with shape(...):"',
            id="never entered",
        ),
        pytest.param(
            [f"with shapetrace_capture.shape(2): {WORK}", "shapetrace_capture.shape(4)"],
            'shape(...) was called 2 times and entered 1 of them: write "with shape(...):"',
            id="entered once",
        ),
        pytest.param(
            ["with shapetrace_capture.shape(2) as capture: capture.watch(torch.ones(2).sin())"],
            "watch() needs a module or function, got Tensor",
            id="watch",
        ),
    ],
)
def test_misuse_is_told_as_what_to_write_instead(torch: Any, tmp_path: Path, script: list[str], reason: str) -> None:
    done = told(tmp_path, *script)
    assert (done["ok"], done["reason"]) == (False, reason)


def test_plans_may_go_on_where_the_first_came_in_time(torch: Any, tmp_path: Path) -> None:
    script = ["for size in (2, 4):", "    shapetrace_capture.plan([{'size': size}])"]
    done = told(tmp_path, *script, f"    with shapetrace_capture.shape(size): {WORK}")
    assert (done["ok"], done["records"]) == (True, 2)


def test_a_watched_forward_that_nobody_called_says_what_has_to_be_called(torch: Any, tmp_path: Path) -> None:
    told(tmp_path, f"with shapetrace_capture.shape(2) as capture: capture.watch(torch.sin); {WORK}")
    (record,) = lines(folder(tmp_path / "spool") / "captures.jsonl")
    assert record["dirty"] == ["the forward ran 0 times: what watch() returned has to be called"]


def test_a_script_that_failed_by_itself_keeps_the_last_word(torch: Any, tmp_path: Path) -> None:
    code = "import shapetrace_capture; shapetrace_capture.shape(2); raise SystemError('mine')"
    ended = launch(tmp_path / "spool", [sys.executable, "-W", "ignore", "-c", code], name="command", targets=[])
    assert ended["reason"] == "EngineFailed"
    assert ended["message"].endswith("SystemError: mine")
