"""What happens around the beginning of a recording, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from shapetrace_capture.warmups import Warmups
from shapetrace_contract import spool
from shapetrace_contract.tag import Runner, Shape

from .fake_torch import session_with, torch_with

SHAPE = Shape(Runner("DecodeCudaGraphRunner"), "bs", 8)


def test_the_device_is_waited_for_before_a_recording_begins(tmp_path: Path) -> None:
    """The tail of a warm-up runs on the device after its call came back: it must not be in the trace."""
    torch = torch_with()
    with session_with(torch, tmp_path).capture(SHAPE):
        assert torch.log == ["synchronise", "start"]


@pytest.mark.parametrize("warmups", [1, 2])
def test_after_the_last_warm_up_the_engines_own_hook_comes_first(tmp_path: Path, warmups: int) -> None:
    torch = torch_with()
    session = session_with(torch, tmp_path)
    watched = Warmups(warmups, lambda refused: session.capture(SHAPE, refused=refused), lambda: False, session.fault)
    forward = watched.forward(lambda: torch.log.append("forward"), lambda: 8)
    hook = watched.after_warmup(lambda: torch.log.append("hook"))
    for _ in range(warmups):
        forward()
        hook()
    forward()
    watched.end(None)
    assert torch.log == [*["forward", "hook"] * warmups, "synchronise", "start", "forward"]
    (line,) = spool.read_lines(spool.rank_folder(tmp_path, 0) / spool.CAPTURES)
    assert (line["tag"], line["witnesses"]["forwards"]) == (SHAPE.tag, 1)
