"""The status patch, and which changes may wait for the next one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_operator.status_patch import can_wait, merge_patch

scalars = st.one_of(st.integers(), st.text(max_size=4), st.booleans())
values = st.recursive(
    scalars | st.lists(scalars, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(objects, objects)
def test_the_patch_makes_the_new_status_of_the_old_one(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merged(old, merge_patch(old, new)) == new


@given(objects)
def test_there_is_no_patch_where_nothing_changed(old: dict[str, Any]) -> None:
    assert merge_patch(old, old) == {}


def condition(status: str = "Unknown", reason: str = "InProgress", message: str = "") -> dict[str, Any]:
    return {"type": "Captured", "status": status, "reason": reason, "message": message}


OLD = {"phase": "Capturing", "progress": {"captured": 1}, "ranks": [{"rank": 0}], "conditions": [condition()]}


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({"progress": {"captured": 2}}, True),
        ({"ranks": [{"rank": 0, "captured": 2}]}, True),
        ({"conditions": [condition(message="another text")]}, True),
        ({"conditions": [condition(status="True")]}, False),
        ({"conditions": [condition(reason="Other")]}, False),
        ({"phase": "Finishing"}, False),
        ({"failure": {"reason": "EngineFailed"}}, False),
        ({"verdict": "Complete"}, False),
        ({"attempt": 2}, False),
    ],
)
def test_counters_wait_and_everything_else_does_not(change: dict[str, Any], waits: bool) -> None:
    assert can_wait(OLD, merge_patch(OLD, {**OLD, **change})) is waits
