"""The one write of a cycle: what changed in the status, and whether it can wait."""

from __future__ import annotations

from typing import Any

from shapetrace_operator.objects import Object

COUNTERS_SECONDS = 3.0
"""Counters are written this often at the most: every watcher of every run gets each of these writes."""
_COUNTERS = ("progress", "ranks", "observedGeneration")


def merge_patch(old: Any, new: Any) -> Any:
    """A JSON merge patch (RFC 7386) that turns ``old`` into ``new``; lists are replaced as a whole."""
    patch: Object = {name: None for name in old if name not in new}
    for name, value in new.items():
        known = old.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            inner = merge_patch(known, value)
            if inner:
                patch[name] = inner
        elif value != known:
            patch[name] = value
    return patch


def can_wait(old: Object, patch: Object) -> bool:
    """Whether only counters and texts differ: phases, conditions, causes and results are written at once."""
    for name in patch:
        if name in _COUNTERS:
            continue
        if name == "conditions" and _essence(old.get("conditions")) == _essence(patch["conditions"]):
            continue
        return False
    return True


def _essence(conditions: Any) -> Any:
    return [(item.get("type"), item.get("status"), item.get("reason")) for item in conditions or []]
