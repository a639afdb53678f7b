"""Hooks: the engine sees what its own method did, whatever a hook does."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from shapetrace_capture.hooks import APPLIED, MISSING, AfterImport, exists, guarded, is_hooked, wrap


class EngineError(Exception):
    """The engine's own."""


@pytest.fixture
def module() -> ModuleType:
    made = ModuleType("engine_module")

    class Backend:
        def __init__(self) -> None:
            self.calls = 0

        def capture(self, size: int) -> int:
            self.calls += 1
            if size < 0:
                raise EngineError("negative")
            return 2 * size

    made.Backend = Backend  # type: ignore[attr-defined]
    return made


def hooked(module: ModuleType, hook: Callable[..., Any]) -> tuple[Any, list[str]]:
    faults: list[str] = []
    around = guarded("Backend.capture", hook, lambda target, error: faults.append(f"{target}: {error}"))
    assert wrap(module, "Backend.capture", around) == APPLIED
    return module.Backend(), faults


def test_a_hook_stands_around_the_method(module: ModuleType) -> None:
    backend, faults = hooked(module, lambda original, self, size: original(self, size + 1))
    assert backend.capture(3) == 8
    assert faults == []
    assert is_hooked(type(backend).capture)


def fails_before(original: Any, *args: Any) -> Any:
    raise ValueError("ours")


def fails_after(original: Any, *args: Any) -> Any:
    original(*args)
    raise ValueError("ours")


@pytest.mark.parametrize("hook", [fails_before, fails_after])
def test_what_a_hook_raises_is_noted_and_the_method_runs_once(module: ModuleType, hook: Callable[..., Any]) -> None:
    backend, faults = hooked(module, hook)
    assert backend.capture(3) == 6
    assert backend.calls == 1
    assert faults == ["the hook of Backend.capture: ours"]


def swallows(original: Any, *args: Any) -> Any:
    try:
        return original(*args)
    except EngineError:
        raise KeyError("ours, on the way out") from None


@pytest.mark.parametrize("hook", [fails_before, swallows, lambda original, *args: original(*args)])
def test_what_the_method_raises_reaches_the_engine(module: ModuleType, hook: Callable[..., Any]) -> None:
    backend, _ = hooked(module, hook)
    with pytest.raises(EngineError, match="negative"):
        backend.capture(-1)
    assert backend.calls == 1


def test_an_interrupt_is_not_kept_from_anybody(module: ModuleType) -> None:
    def interrupted(original: Any, *args: Any) -> Any:
        raise KeyboardInterrupt

    backend, faults = hooked(module, interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.capture(3)
    assert faults == []


@pytest.mark.parametrize("path", ["Backend.renamed", "Other.capture", "Backend.capture.deeper"])
def test_what_a_version_lacks_is_missing(module: ModuleType, path: str) -> None:
    assert wrap(module, path, lambda original: None) == MISSING


def test_a_hook_is_found_below_other_wrappers_and_in_those_of_a_registry(module: ModuleType) -> None:
    backend, _ = hooked(module, lambda original, *args: original(*args))
    function = type(backend).capture

    @functools.wraps(function)
    def foreign(*args: Any) -> Any:
        return function(*args)

    assert is_hooked(foreign)

    def registry(original: Any, hook: Any) -> Any:
        @functools.wraps(original)
        def wrapper(*args: Any) -> Any:
            return hook(original, *args)

        return wrapper

    ours = guarded("x", lambda original, *args: original(*args), lambda target, error: None)
    assert is_hooked(registry(len, ours))
    assert not is_hooked(registry(len, lambda original, *args: original(*args)))
    assert not is_hooked(len)
    assert not is_hooked(None)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "late_engine").mkdir()
    (tmp_path / "late_engine" / "__init__.py").touch()
    (tmp_path / "late_engine" / "backend.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finders = list(sys.meta_path)
    yield "late_engine.backend"
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith("late_engine")]:
        del sys.modules[name]


def test_a_module_is_told_of_once_it_is_imported(package: str) -> None:
    seen: list[int] = []
    AfterImport({package: lambda module: seen.append(module.VALUE)}).install()
    assert seen == []
    importlib.import_module(package)
    importlib.import_module(package)
    assert seen == [1]


def test_a_module_that_is_there_is_told_of_at_once(package: str) -> None:
    importlib.import_module(package)
    seen: list[int] = []
    AfterImport({package: lambda module: seen.append(module.VALUE)}).install()
    assert seen == [1]


def test_whether_a_version_has_a_module_is_asked_without_importing_it(package: str) -> None:
    assert exists(package)
    assert not exists("late_engine.renamed")
    assert not exists("no_such_engine.backend")
    assert package not in sys.modules


def test_a_module_that_was_looked_for_and_not_imported_is_still_told_of(package: str) -> None:
    seen: list[int] = []
    AfterImport({package: lambda module: seen.append(module.VALUE)}).install()
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.loader is not None
    assert found.loader.get_code(package) is not None  # type: ignore[attr-defined]
    importlib.import_module(package)
    assert seen == [1]


def test_a_module_whose_first_import_fails_is_told_of_after_the_second(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "fails", True, raising=False)
    file = importlib.util.find_spec(package)
    assert file is not None
    assert file.origin is not None
    source = Path(file.origin)
    source.write_text("import sys\nif sys.fails: raise ImportError('not yet')\nVALUE = 1\n")
    seen: list[int] = []
    AfterImport({package: lambda module: seen.append(module.VALUE)}).install()
    with pytest.raises(ImportError):
        importlib.import_module(package)
    monkeypatch.setattr(sys, "fails", False)
    importlib.import_module(package)
    assert seen == [1]
