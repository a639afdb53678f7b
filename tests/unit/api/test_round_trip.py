"""A model, its JSON and the schema agree: nothing that a model says is pruned, and everything read back is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapetrace_api.crd import custom_resource_definition
from shapetrace_api.schema import ApiModel
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.status import ProfileRunStatus

ROOT = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
FEW = 3
"""Entries in a random list: bounds are checked elsewhere, here only the form matters."""


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Random values that the schema takes (rules aside)."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        return st.integers(0, 59).map(lambda second: f"2026-01-31T23:59:{second:02d}Z")
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 999) | st.sampled_from(["1", "500m", "1.5Gi"])
    return MAKERS[schema["type"]](schema)


def _texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    low, high = schema.get("minLength", 0), min(schema["maxLength"], 80)
    if "pattern" in schema:
        found = st.from_regex(schema["pattern"].replace("$", r"\Z"), alphabet=st.characters(codec="ascii"))
        return found.filter(lambda text: low <= len(text) <= schema["maxLength"])
    return st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=low, max_size=high
    )


def _lists(schema: dict[str, Any]) -> st.SearchStrategy[list[Any]]:
    keys = schema.get("x-kubernetes-list-map-keys")
    unique: Callable[[Any], Any] | None = None
    if keys:
        unique = lambda entry: json.dumps([entry.get(key) for key in keys])  # noqa: E731
    elif schema["x-kubernetes-list-type"] == "set":
        unique = json.dumps
    entry = values(schema["items"])
    if keys:  # an entry always names itself
        entry = entry.filter(lambda value: all(key in value for key in keys))
    return st.lists(entry, min_size=schema.get("minItems", 0), max_size=FEW, unique_by=unique)


def _objects(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.sampled_from(["a", "b.c/d", "E_f"]), values(schema["additionalProperties"]), max_size=FEW
        )
    fields = {name: values(child) for name, child in schema["properties"].items()}
    required = set(schema.get("required", []))
    return st.fixed_dictionaries(
        {name: made for name, made in fields.items() if name in required},
        optional={name: made for name, made in fields.items() if name not in required},
    )


MAKERS: dict[str, Callable[[dict[str, Any]], st.SearchStrategy[Any]]] = {
    "string": _texts,
    "integer": lambda schema: st.integers(schema["minimum"], schema["maximum"]),
    "boolean": lambda schema: st.booleans(),
    "array": _lists,
    "object": _objects,
}


def prune(value: Any, schema: dict[str, Any]) -> Any:
    """What the API server keeps of a value: fields that the schema names."""
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {name: prune(child, known[name]) for name, child in value.items() if name in known}
    if isinstance(value, dict):
        return {name: prune(child, schema["additionalProperties"]) for name, child in value.items()}
    if isinstance(value, list):
        return [prune(child, schema["items"]) for child in value]
    return value


def _round_trip(model: type[ApiModel], schema: dict[str, Any], value: dict[str, Any]) -> None:
    read = model.model_validate(value)
    stored = json.loads(json.dumps(read.to_dict()))
    assert prune(stored, schema) == stored, "a field of the model is not in the schema"
    assert model.model_validate(stored) == read
    assert model.model_validate(stored).to_dict() == stored


RELAXED = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
"""Big objects: what is random here is which fields are there."""


@RELAXED
@given(values(ROOT["spec"]))
def test_a_spec_survives_the_api_server(value: dict[str, Any]) -> None:
    _round_trip(ProfileRunSpec, ROOT["spec"], value)


@RELAXED
@given(values(ROOT["status"]))
def test_a_status_survives_the_api_server(value: dict[str, Any]) -> None:
    _round_trip(ProfileRunStatus, ROOT["status"], value)
