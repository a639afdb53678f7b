"""A command line that a person types starts at once: what one command needs, the others do not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("boto3", "botocore", "kubernetes", "pydantic", "rich", "urllib3", "yaml")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["fetch", "--help"], ["show", "--help"], ["watch", "--help"], ["run-local", "--help"]],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from shapetrace_cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:"
    assert len(done.stdout.splitlines()) > 1, "it says something"
