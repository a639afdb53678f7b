"""The payload is mounted into images of any Python from 3.10 on: it is parsed as the oldest reads it, and run by each
interpreter that is here."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PAYLOAD = Path(__file__).parents[3] / "job-image"
PACKAGES = ("shapetrace_contract", "shapetrace_capture", "shapetrace_launcher", "shapetrace_engine")
FILES = sorted(path for package in PACKAGES for path in (PAYLOAD / package).rglob("*.py"))
NEEDS_TORCH = {"shapetrace_engine"}
IMPORT_ALL = """
import importlib, pkgutil, sys
names = []
for package in sys.argv[1:]:
    module = importlib.import_module(package)
    found = pkgutil.walk_packages(module.__path__, package + ".")
    names += [item.name for item in found if not item.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names), "torch" in sys.modules)
"""


def test_every_file_is_what_the_oldest_python_reads() -> None:
    assert len(FILES) > 50
    for path in FILES:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))


def _interpreter(minor: int) -> str | None:
    """pyenv's first: its ``python3.x`` in the path may be a name only."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(root.glob(f"versions/3.{minor}.*/bin/python3"))
    return str(found[-1]) if found else shutil.which(f"python3.{minor}")


@pytest.mark.parametrize("minor", range(10, 15))
def test_each_python_imports_all_of_it_without_anything_installed(minor: int) -> None:
    program = _interpreter(minor)
    if program is None:
        pytest.skip(f"there is no python3.{minor} here")
    packages = [package for package in PACKAGES if package not in NEEDS_TORCH]
    done = subprocess.run(
        [program, "-S", "-c", IMPORT_ALL, *packages],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PAYLOAD), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, has_torch = done.stdout.split()
    assert (int(count) > 40, has_torch) == (True, "False")
