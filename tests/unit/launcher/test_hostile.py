"""Engines that run anybody's code: what they leave in the spool or do with their output never hangs the launcher."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from shapetrace_contract import spool
from stand_in import Launched, wait_for

SPEAKS_ON = """
import subprocess
child = subprocess.Popen(["yes", "still here"], start_new_session=True)
(ROOT / "child").write_text(str(child.pid))
record()
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)"], ids=["ends well", "ends badly"])
def test_a_daemon_that_keeps_printing_does_not_keep_the_launcher(tmp_path: Path, end: str) -> None:
    """It left the process group, holds the engine's output open and fills it faster than anybody reads."""
    with Launched(tmp_path, SPEAKS_ON + end, engine="command", uploadTimeoutSeconds=0) as run:
        wait_for("the daemon", run.has("child"))
        output = run.process.stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)

        def ended() -> bool:
            with contextlib.suppress(BlockingIOError):
                os.read(output.fileno(), 1 << 20)
            return run.process.poll() is not None

        try:
            wait_for("the launcher's end", ended)
        finally:
            os.kill(int((run.spool / "child").read_text()), signal.SIGKILL)
            if run.process.poll() is None:
                run.process.kill()
        code, message = run.end()
    assert (code, message["reason"]) == ((50, "EngineFailed") if end else (52, "UploadTimeout"))


PLACED = {
    "a pipe": "os.mkfifo(FOLDER / NAME)",
    "a folder": "(FOLDER / NAME).mkdir()",
    "a link to an endless file": "(FOLDER / NAME).symlink_to('/dev/zero')",
    "deep JSON": "(FOLDER / NAME).write_text('[' * 200_000)",
    "half a surrogate": '(FOLDER / NAME).write_bytes(b\'{"reason": "\\xff"}\')',
    "other types": '(FOLDER / NAME).write_text(\'{"hooks": [1], "records": "x", "captureBegin": [1], "errors": 5}\')',
}


@pytest.mark.parametrize("name", [spool.RANK, spool.DONE, spool.CAPTURES, "../process-7.json"])
@pytest.mark.parametrize("placed", PLACED.values(), ids=PLACED)
def test_whatever_lies_where_a_record_should_be_the_launcher_ends_with_a_reason(
    tmp_path: Path, name: str, placed: str
) -> None:
    script = f"record()\nNAME = {name!r}\n(FOLDER / NAME).unlink(missing_ok=True)\n{placed}"
    with Launched(tmp_path, script, engine="command", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
        assert run.stopped()["reason"] == message["reason"] or (code, message["reason"]) == (52, "UploadTimeout")
    assert code in (50, 51, 52), message


def test_drained_is_believed_only_when_it_was_written_after_the_end(tmp_path: Path) -> None:
    """A spool that was used before, or an engine that writes anything: only the collector knows what is stored."""
    script = "record(); done(); spool.write_json(ROOT / spool.DRAINED, {'ok': True, 'missing': 0, 'parts': []})"
    with Launched(tmp_path, script, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"], message["drained"]) == (52, "UploadTimeout", False)
