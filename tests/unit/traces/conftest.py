from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def slow_reader() -> ModuleType:
    """What the reader is compared with; tests are no packages, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("shapetrace_slow_reader", Path(__file__).with_name("slow_reader.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
