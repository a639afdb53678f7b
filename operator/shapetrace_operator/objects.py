"""Small readers of Kubernetes objects: times, conditions, owners."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as the API server sends it."""


def parse_time(text: str | None) -> datetime | None:
    """A time of the API server (RFC 3339); None for none, or for what is none.

    The kubelet writes the epoch as the start of a container that never started (``StartError``); that is none too.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment if moment.timestamp() > 0 else None


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type, whatever its status."""
    found = (obj.get("status") or {}).get("conditions") or []
    return next((item for item in found if item.get("type") == kind), None)


def true_condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type, if it is True."""
    item = condition(obj, kind)
    return item if item is not None and item.get("status") == "True" else None


def owner_of(obj: Object) -> Object | None:
    """The reference to the controller that owns the object."""
    owners = obj.get("metadata", {}).get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def owner_uid(obj: Object) -> str | None:
    """The uid of the controller that owns the object."""
    return (owner_of(obj) or {}).get("uid")


def label(obj: Object, name: str) -> str | None:
    """The value of a label."""
    value = (obj.get("metadata", {}).get("labels") or {}).get(name)
    return str(value) if value is not None else None


MAX_DIGITS = 9
"""Below 2**31. Python itself refuses to read numbers of more than 4300 digits, with an error."""


def parse_number(text: Any) -> int | None:
    """A whole number from 0 on in a foreign text; None for anything else."""
    good = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if good else None
