"""Tests on SGLang's real classes: skipped, saying so, where it is not (``make test-sglang`` brings an environment)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

ENVIRONMENT = os.environ.get("SHAPETRACE_TEST_SGLANG", "")
IMPORTS_AND_SCENARIOS_SECONDS = 900
"""A minute on a machine at rest; several when others use it."""

if not ENVIRONMENT:
    collect_ignore_glob = ["test_capture.py", "test_faults.py", "test_flags.py", "test_foreign.py", "test_upstream.py"]


def versions() -> list[str]:
    """The versions of SGLang that are unpacked here, the newest last."""
    folder = Path(ENVIRONMENT, "versions")
    names = [path.name for path in folder.iterdir()] if ENVIRONMENT else []
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


class Ran:
    """The scenarios of one version, run once, all in one process tree: the imports take longest."""

    def __init__(self, out: Path, version: str, *, all_of_them: bool) -> None:
        from support.names import ON_EVERY_VERSION

        wanted = [] if all_of_them else list(ON_EVERY_VERSION)
        path = [str(HERE), os.environ.get("PYTHONPATH", ""), str(Path(ENVIRONMENT, "versions", version))]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("SGLANG_", "SHAPETRACE_"))
        }
        environment.update(PYTHONPATH=":".join(path), CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
        self.version = version
        self._out = out
        ran = subprocess.run(
            [sys.executable, "-m", "support.driver", str(out), *wanted],
            env=environment,
            capture_output=True,
            text=True,
            timeout=IMPORTS_AND_SCENARIOS_SECONDS,
            check=False,
        )
        self._log = ran.stdout + ran.stderr
        print(f"SGLang {version}: {ran.stdout}")

    def folder(self, scenario: str) -> Path:
        """The scenario's folder; the test fails if SGLang, or we, did not come to its end."""
        folder = self._out / scenario
        assert (folder / "result.json").exists(), self._log[-3000:]
        result = json.loads((folder / "result.json").read_text())
        assert "raised" not in result, f"{result['raised']}\n{(folder / 'output.txt').read_text()[-2000:]}"
        return folder

    def returned(self, scenario: str) -> Any:
        return json.loads((self.folder(scenario) / "result.json").read_text())["returned"]


@pytest.fixture(scope="session")
def run_version(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Ran]]:
    """The versions that are asked for, as many at once as there are cores: most of it is imports, on one core each."""
    last = versions()[-1]
    wanted = {item.callspec.params.get("sglang", last) for item in request.session.items if hasattr(item, "callspec")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # the newest first: it has the most to do
        runs = {
            version: pool.submit(
                Ran, tmp_path_factory.mktemp(f"sglang-{version}"), version, all_of_them=version == last
            )
            for version in reversed(versions())
            if version in {*wanted, last}
        }
        yield lambda version: runs[version].result()


@pytest.fixture
def newest(run_version: Callable[[str], Ran]) -> Ran:
    """The newest version, with every scenario."""
    return run_version(versions()[-1])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a version waits for its scenarios."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(IMPORTS_AND_SCENARIOS_SECONDS + 60))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``version``: one of those that are here; ``sglang`` is that version, run."""
    if "sglang" in metafunc.fixturenames:
        metafunc.parametrize("sglang", versions(), indirect=True)


@pytest.fixture
def sglang(request: pytest.FixtureRequest, run_version: Callable[[str], Ran]) -> Ran:
    return run_version(request.param)
