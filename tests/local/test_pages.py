"""Pages whose example is a program with its run: what they show is written down and run, word for word."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/own-program.md"


def block(language: str) -> str:
    """The first block of the page in a language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert found is not None, language
    return found[1]


@pytest.mark.torch
def test_the_program_of_the_page_is_recorded_by_its_commands(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(block("python"))
    (tmp_path / "mine.yaml").write_text(block("yaml"))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", block("bash")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/manifest.json").read_text())
    assert found["verdict"] == "Complete"
    assert found["reasons"] == []
    assert {(item["tag"], item["support"]["size"]) for item in found["traces"]} == {
        (f"MyRunner__bs_{size}", "proven") for size in (1, 2, 4, 8)
    }
    assert "MyRunner" in done.stdout
