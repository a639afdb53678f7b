"""What a model is called in manifests and statuses: enough to know which one it was, never a whole path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_COMMIT = r"snapshots/(?P<commit>[0-9a-f]{40})"
_SNAPSHOT = re.compile(rf"(?:.*/)?{_COMMIT}/?")
_CACHED = re.compile(rf"(?:.*/)?models--(?P<name>[^/]+)/{_COMMIT}/?")
"""A folder of the cache of the hub's library, which a volume may hold too."""


class ModelIdentity(NamedTuple):
    """Which model it was."""

    name: str | None
    """As the hub calls it; of a path, or of the path inside a claim, its last part; of a whole claim the claim's."""
    source: str
    """``hub``, ``pvc`` or ``path``: where it was from."""
    commit: str | None = None
    """Of a folder that is a snapshot of the hub's."""


def identify(model: Mapping[str, Any]) -> ModelIdentity:
    """One of ``spec.models``, as the spec has it or as the launcher is told of it."""
    if model.get("name"):
        return ModelIdentity(str(model["name"]), "hub")
    claim = model.get("pvc")
    if not isinstance(claim, Mapping):
        return _by_folder(str(model.get("path") or ""), "path")
    return _by_folder(str(claim.get("path") or claim.get("claimName") or ""), "pvc")


def commit_of(folder: str) -> str | None:
    """The commit that a snapshot's folder is named by; None of any other folder."""
    found = _SNAPSHOT.fullmatch(folder)
    return found["commit"] if found else None


def _by_folder(path: str, source: str) -> ModelIdentity:
    cached = _CACHED.fullmatch(path)
    if cached:
        return ModelIdentity(cached["name"].replace("--", "/", 1), source, cached["commit"])
    return ModelIdentity(path.rstrip("/").rsplit("/", 1)[-1] or None, source, commit_of(path))
