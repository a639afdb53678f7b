"""The manifest of our own attempt in a directory that is looked at: it says what else should be there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shapetrace_contract import VERSION, keys

from shapetrace_traces.manifest import Manifest, manifest_fault
from shapetrace_traces.reader.errors import json_fault
from shapetrace_traces.regular import NotRegularError, TooLongFileError, read_regular

_OURS = {"digest", "run", "verdict", "traces"}


@dataclass(frozen=True)
class OwnManifest:
    """What ``manifest.json`` came to; nothing at all where there is none."""

    manifest: Manifest | None = None
    fault: str = ""
    """Why it cannot be used, though something of ours lies there."""
    note: str = ""
    """It is somebody else's."""


def read_own(root: Path, limit_bytes: int = keys.MAX_MANIFEST_BYTES) -> OwnManifest:
    """The manifest directly below ``root``; never raises."""
    place = root / keys.MANIFEST
    try:
        body = read_regular(place, limit_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        gone = isinstance(error, NotADirectoryError) or not place.is_symlink()
        return OwnManifest() if gone else _unusable("it is a link to nothing")
    except NotRegularError as error:
        return _unusable(f"{error.strerror}")
    except OSError as error:
        return _unusable(f"{error.strerror or error}")
    except TooLongFileError as error:
        return _unusable(f"{error}")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        return _unusable(f"it is no JSON: {json_fault(error)}")
    if not isinstance(value, Mapping):
        return _unusable("it is no JSON object")
    if not _OURS & value.keys():
        return OwnManifest(note=f"{keys.MANIFEST} is none of a run of ours, so nothing was taken from it")
    if value.get("v") != VERSION:
        return _unusable(f"it is of version {str(value.get('v'))[:20]!r}, this reads version {VERSION}")
    try:
        return OwnManifest(Manifest.from_bytes(body))
    except ValueError as error:
        return _unusable(manifest_fault(error))


def _unusable(why: str) -> OwnManifest:
    return OwnManifest(fault=f"{keys.MANIFEST} cannot be used: {why}; what it lists was not looked for")
