"""Accepted: whether the run can be worked on at all. What the schema cannot say is said here, within one cycle."""

from __future__ import annotations

from pydantic import ValidationError
from shapetrace_api.accept import refusals
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.status import ConditionStatus, ConditionType
from shapetrace_contract.message import shorten
from shapetrace_contract.model import identify
from shapetrace_contract.reasons import Reason

from shapetrace_operator import conditions
from shapetrace_operator.decide.model import Draft

_SHOWN_FAULTS = 4
"""More do not fit into a condition's message."""


def read(draft: Draft) -> ProfileRunSpec | None:
    """The spec, or None where it cannot be read; the condition says why."""
    try:
        spec = ProfileRunSpec.model_validate(draft.case.run.get("spec") or {})
    except ValidationError as error:
        refuse(draft, "; ".join(f"spec.{_path(item['loc'])}: {item['msg']}" for item in error.errors()[:_SHOWN_FAULTS]))
        return None
    draft.status.model = identify(spec.models[0].to_dict()).name if spec.models else None
    # a run that was accepted stays so, whatever the limits of a later version
    found = [] if conditions.is_true(draft.status, ConditionType.ACCEPTED) else refusals(spec)
    if found:
        refuse(draft, "; ".join(f"spec.{text}" for text in found))
        return None
    draft.condition(ConditionType.ACCEPTED, ConditionStatus.TRUE, conditions.ACCEPTED)
    return spec


def refuse(draft: Draft, message: str) -> None:
    """Not accepted: ``message`` names the field and what to do."""
    draft.condition(ConditionType.ACCEPTED, ConditionStatus.FALSE, Reason.BAD_CONFIGURATION.value, shorten(message))


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
