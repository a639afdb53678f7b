"""Rules of the repository that no other tool keeps."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@pytest.mark.parametrize("folder", ["operator", "tests/unit/operator"])
def test_no_package_hides_the_standard_librarys_operator(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_the_docs_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(CODE.sub("", page.read_text())) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]


def test_files_hold_one_idea() -> None:
    """About 400 lines at most for our own code."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    sources = [ROOT / name for name in listed.split() if not name.startswith("tests/")]
    assert sources
    assert not [str(path) for path in sources if path.exists() and len(path.read_text().splitlines()) > 420]
