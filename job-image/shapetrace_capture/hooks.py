"""Wrapping an engine's methods so that nothing of ours can reach the engine.

A hook is ``hook(original, *args, **kwargs) -> result``, the AROUND form of SGLang's ``HookRegistry``. It gets a
callable that must be called once, and whatever else goes wrong, the engine sees what its own method did.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from shapetrace_capture.process import described

APPLIED = "applied"
MISSING = "missing"

Hook = Callable[..., Any]
Fault = Callable[[str, BaseException], None]

_MARK = "shapetrace_hook"


class _Original:
    """The engine's method for one call of a hook; remembers what it did."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.called = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def signature(self) -> inspect.Signature:
        """Of the engine's method; also where a subclass with another one called it."""
        return inspect.signature(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        try:
            self.result = self._function(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        return self.result


def guarded(target: str, hook: Hook, fault: Fault) -> Hook:
    """``hook``, with the promise that the engine sees what its own method returned or raised, and that the method runs
    once. What the hook itself raises goes to ``fault(what, error)``."""

    def around(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        original = _Original(function)
        try:
            return hook(original, *args, **kwargs)
        except BaseException as error:
            if original.error is not None:
                raise original.error  # noqa: B904 - the engine's own, as if we were not there
            if not isinstance(error, Exception):
                raise  # an interrupt or an exit that met our code
            fault(f"the hook of {target}", error)
            return original.result if original.called else function(*args, **kwargs)
        finally:
            original.result = original.error = None  # no reference cycle through a frame: results are device memory

    setattr(around, _MARK, target)
    return around


def exists(module: str) -> bool:
    """Whether this version of the engine has ``module``; its parents are imported, it is not."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def wrap(module: ModuleType, path: str, around: Hook) -> str:
    """Replace ``path`` (``Class.method``) in ``module`` by ``around``: ``applied``, ``missing`` or ``error: ...``."""
    try:
        *parents, name = path.split(".")
        owner: Any = functools.reduce(getattr, parents, module)
        function = vars(owner).get(name)
        if not callable(function):
            return MISSING

        @functools.wraps(function)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            return around(function, *args, **kwargs)

        setattr(hooked, _MARK, path)
        setattr(owner, name, hooked)
    except AttributeError:
        return MISSING
    except Exception as error:
        return f"error: {described(error)}"
    return APPLIED


def is_hooked(function: Any) -> bool:
    """Whether a hook of ours is somewhere in the chain of wrappers of ``function``: a wrapper itself, or what a wrapper
    of SGLang's ``HookRegistry`` calls."""
    seen = 0
    while function is not None and seen < 32:  # a chain of wrappers is short; a loop would be a fault of others
        if hasattr(function, _MARK) or any(hasattr(value, _MARK) for value in _closed_over(function)):
            return True
        function, seen = getattr(function, "__wrapped__", None), seen + 1
    return False


def _closed_over(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell.cell_contents


class AfterImport(MetaPathFinder):
    """Calls ``then(module)`` once, right after ``name`` was imported: now, if it is there already.

    So that no process imports an engine's heavy modules only to have them patched.
    """

    def __init__(self, then: dict[str, Callable[[ModuleType], None]]) -> None:
        self._then = dict(then)
        self._searched = threading.local()

    def install(self) -> None:
        """Handle what is imported already, and wait for the rest."""
        for name in [name for name in self._then if name in sys.modules]:
            self._then.pop(name)(sys.modules[name])
        if self._then:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders know, with a loader that tells us afterwards."""
        if fullname not in self._then or getattr(self._searched, "name", None) == fullname:
            return None
        self._searched.name = fullname  # the search below comes by here again
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searched.name = None
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self._tell)
        return spec

    def _tell(self, module: ModuleType) -> None:
        """Once, and only of what was imported: a module may be looked for without, or fail at the first try."""
        then = self._then.pop(module.__name__, None)
        if then is not None:
            then(module)


class _Telling(Loader):
    """Another loader, followed by a call."""

    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._told = then

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copies ask before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._told(module)
