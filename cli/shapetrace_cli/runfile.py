"""Reading a ProfileRun from a file, with the refusals that the API server and the operator would give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from shapetrace_api.accept import refusals
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_contract import names

from shapetrace_cli.cluster import checked_name
from shapetrace_cli.errors import UsageError
from shapetrace_cli.text import plain

_MAX_FILE_BYTES = 3 * 1024 * 1024
"""What an API server takes as one request; no ProfileRun is near it."""
_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
_SHOWN = 8


@dataclass(frozen=True)
class RunFile:
    """A ProfileRun as it would be applied."""

    name: str
    namespace: str
    spec: ProfileRunSpec


def read_run(path: Path, name: str = "") -> RunFile:
    """The one ProfileRun in ``path``, or the one called ``name``; :class:`UsageError` lists what is wrong with it."""
    value = _choose(path, _documents(path), name)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise UsageError(
            f"{path}: metadata.name is missing, or no text", "YAML reads names such as n or 1 otherwise: quote."
        )
    checked_name("ProfileRun", metadata["name"])
    faults = [f"{key}: no such field" for key in value if key not in _TOP]
    spec = value.get("spec")
    if not isinstance(spec, dict):
        raise UsageError(f"{path}: spec is missing, or no object")
    try:
        model = ProfileRunSpec.model_validate(spec)
    except ValidationError as error:
        faults += [f"spec.{_place(item['loc'])}: {item['msg']}" for item in error.errors()]
    else:
        faults += [f"{place}: no such field" for place in unknown_fields("spec", spec, _known(model))]
        faults += [f"spec.{message}" for message in refusals(model)]
        if not faults:
            namespace = str(metadata.get("namespace") or "default")
            checked_name("namespace", namespace)
            return RunFile(metadata["name"], namespace, model)
    more = [f"... and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
    raise UsageError(
        f"{path} is not accepted: " + "; ".join(plain(fault, 300) for fault in faults[:_SHOWN] + more),
        f"`kubectl explain {names.PLURAL}.spec` or docs/api.md describe each field.",
    )


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(f"{path} has more than {_MAX_FILE_BYTES} bytes, no ProfileRun is that long")
        documents = list(yaml.safe_load_all(path.read_text()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no YAML: {plain(error, 300)}") from None
    return [value for value in documents if isinstance(value, dict)]


def _choose(path: Path, documents: list[dict[str, Any]], name: str) -> dict[str, Any]:
    ours = f"{names.GROUP}/{names.API_VERSION}"
    runs = [value for value in documents if value.get("kind") == names.KIND and value.get("apiVersion") == ours]
    named = [value for value in runs if not name or (value.get("metadata") or {}).get("name") == name]
    if len(named) == 1:
        return named[0]
    if not named:
        what = f"called {name!r} " if name else ""
        raise UsageError(f"{path} holds no ProfileRun {what}of {ours}", f"It begins with apiVersion: {ours}.")
    there = ", ".join(str((value.get("metadata") or {}).get("name")) for value in named)
    raise UsageError(f"{path} holds {len(named)} ProfileRuns: {plain(there, 200)}", "Choose one with --name.")


def _known(model: ProfileRunSpec) -> dict[str, Any]:
    """What the model took of what was given, in the API's spelling."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def unknown_fields(place: str, given: Any, known: Any) -> Iterator[str]:
    """The fields of ``given`` that ``known`` lost: what the API server refuses under strict validation."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                yield f"{place}.{key}"
            else:
                yield from unknown_fields(f"{place}.{key}", value, known[key])
    elif isinstance(given, list) and isinstance(known, list):
        for index, (left, right) in enumerate(zip(given, known, strict=False)):
            yield from unknown_fields(f"{place}[{index}]", left, right)


def _place(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
