"""The status as it is stored, read so that a run goes on whatever somebody has written into it by hand.

The API server checks the schema only: a time of the year 0, which no clock here can count from, passes it.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from shapetrace_api.status import ProfileRunStatus

from shapetrace_operator.objects import Object


def read(stored: Object) -> ProfileRunStatus:
    """The status; what cannot be read is left out, item by item, and made anew by the decision."""
    try:
        return ProfileRunStatus.model_validate(stored)
    except ValidationError as error:
        kept: dict[str, Any] = dict(stored)
        wrong = [item["loc"] for item in error.errors()]
    for name in {location[0] for location in wrong if location}:
        value = kept.pop(str(name), None)
        bad = {location[1] for location in wrong if len(location) > 1 and location[0] == name}
        if isinstance(value, list):
            kept[str(name)] = [item for index, item in enumerate(value) if index not in bad]
    try:
        return ProfileRunStatus.model_validate(kept)
    except ValidationError:
        return ProfileRunStatus()
