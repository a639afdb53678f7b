"""Where a run stands, from its status: what keeps it from going on, and whether any operator looked at it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from shapetrace_cli.text import plain

_MAX_CAUSES = 2
"""More than these make no line that is read; `kubectl describe` shows all."""
_AGE = timedelta(seconds=30)
"""An operator writes a status within a second; its restart, or a cluster under load, takes longer."""


def causes(status: Mapping[str, Any]) -> list[str]:
    """``Unschedulable: 1 Insufficient cpu``: what keeps a run from going on, what is False before what is unknown.

    A condition that is not True and has a message says so on purpose; steps that are merely to come have none.
    """
    conditions = [item for item in status.get("conditions") or [] if isinstance(item, dict) and item.get("message")]
    open_ones = [item for item in conditions if item.get("status") != "True" and item.get("type") != "Finished"]
    open_ones.sort(key=lambda item: item.get("status") != "False")
    texts = [plain(f"{item.get('reason')}: {item['message']}", 300) for item in open_ones]
    return list(dict.fromkeys(texts))[:_MAX_CAUSES]


def is_unseen(status: Mapping[str, Any]) -> bool:
    """Whether no operator ever wrote this status: it begins with a phase and conditions."""
    return not status.get("phase") and not status.get("conditions")


def unseen(namespace: str) -> str:
    """What is to be asked then."""
    return (
        "no operator has looked at this run yet: is shapetrace installed, and does it serve namespace "
        f"{namespace} (the chart's `namespaces`)?"
    )


def is_old(run: Mapping[str, Any], now: datetime) -> bool:
    """Whether an operator had time enough. False where the run does not say when it was made."""
    try:
        made = datetime.fromisoformat(str((run.get("metadata") or {}).get("creationTimestamp")))
        return now - made > _AGE
    except (ValueError, TypeError):
        return False
