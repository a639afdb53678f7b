from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def load(path: Path) -> ModuleType:
    """Tests are no packages, so what they share is loaded by its path."""
    spec = importlib.util.spec_from_file_location(f"shapetrace_tests_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


seaweed = load(HERE / "seaweed.py")
spool_writer = load(HERE.parent / "unit" / "collector" / "spool_writer.py")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A real S3 server; each test takes a prefix of its own."""
    process = seaweed.Seaweed(tmp_path_factory.mktemp("seaweed") / "server")
    try:
        process.wait()
        yield process
    finally:
        process.close()


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def writer() -> ModuleType:
    """The fake engine."""
    return spool_writer


@pytest.fixture
def identities() -> dict[str, dict[str, str]]:
    """Credentials by name of the identity."""
    return {
        "writer": seaweed.credentials(seaweed.WRITER),
        "reader": seaweed.credentials(seaweed.READER),
        "wrong secret": {**seaweed.credentials(seaweed.WRITER), "AWS_SECRET_ACCESS_KEY": "not-the-secret-0123"},
        "unknown key": {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nobodys-secret-4567"},
    }
