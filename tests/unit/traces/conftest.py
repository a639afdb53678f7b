from __future__ import annotations

from types import ModuleType

import pytest

from . import slow_reader as reader


@pytest.fixture(scope="session")
def slow_reader() -> ModuleType:
    """What the reader is compared with."""
    return reader
