"""House rules of the schema, over every node of the CRD. The API server checks structure; this checks the rest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from shapetrace_api.crd import custom_resource_definition

ALLOWED = {
    "additionalProperties", "anyOf", "default", "description", "enum", "format", "items", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "pattern", "properties",
    "required", "type", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type",
    "x-kubernetes-validations",
}  # fmt: skip
RULE_KEYS = {"rule", "message"}


@dataclass(frozen=True)
class Node:
    path: str
    schema: dict[str, Any]
    named: bool
    """Whether a person sees it by name, so that it needs a description."""


def nodes(schema: dict[str, Any], path: str = "", *, named: bool = False) -> Iterator[Node]:
    yield Node(path, schema, named)
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}".lstrip("."), named=True)
    if isinstance(schema.get("items"), dict):
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def complaints(root: dict[str, Any]) -> list[str]:
    """What is wrong with the parts of the schema that are ours: spec and status."""
    found: list[str] = []
    seen = 0
    for part in ("spec", "status"):
        for node in nodes(root.get("properties", {}).get(part, {}), part, named=True):
            seen += 1
            found += [f"{node.path}: {text}" for text in _complaints(node)]
    rules = [rule["message"] for node in nodes(root) for rule in node.schema.get("x-kubernetes-validations", [])]
    found += [f"two rules say {message!r}" for message, count in Counter(rules).items() if count > 1]
    if seen < 50 or not rules:  # a broken walk must not look like a clean schema
        found.append(f"only {seen} nodes and {len(rules)} rules were looked at")
    return found


def _complaints(node: Node) -> Iterator[str]:
    schema = node.schema
    unknown = set(schema) - ALLOWED
    if unknown:
        yield f"keywords {sorted(unknown)}"
    if node.named and not re.search(r"[.)]$", schema.get("description", "")):
        yield "no description that is a sentence"
    yield from _bounds(schema)
    if "pattern" in schema:
        if re.search(r"\(\?[=!<]|\\[1-9]", schema["pattern"]):
            yield "the pattern looks around or back, which the API server's expressions cannot"
        re.compile(schema["pattern"])
    for value in schema.get("enum", []):
        if not isinstance(value, str):
            yield f"enum value {value!r} is no text"
    for rule in schema.get("x-kubernetes-validations", []):
        if set(rule) != RULE_KEYS or not all(rule.values()) or len(rule["message"]) > 200:
            yield f"rule {rule} is more or less than an expression and a message of at most 200 characters"


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if kind is not None or "pattern" not in schema or "maxLength" not in schema:
            yield "an amount needs a pattern and a length, and no type"
    elif kind == "string":
        if not {"maxLength", "enum", "format"} & set(schema):
            yield "a text without maxLength"
    elif kind == "integer":
        if not {"minimum", "maximum"} <= set(schema):
            yield "a number without bounds"
    elif kind == "array":
        if "maxItems" not in schema:
            yield "a list without maxItems"
        yield from _list_type(schema)
    elif kind == "object":
        if "properties" not in schema and not {"additionalProperties", "maxProperties"} <= set(schema):
            yield "a map without maxProperties"
        if "properties" in schema and "additionalProperties" in schema:
            yield "fields and a map in one"
    elif kind != "boolean":
        yield f"type {kind!r}"


def _list_type(schema: dict[str, Any]) -> Iterator[str]:
    kind = schema.get("x-kubernetes-list-type")
    items = schema["items"]
    if kind == "map":
        keys = schema.get("x-kubernetes-list-map-keys") or []
        required = set(items.get("required", []))
        fields = items.get("properties", {})
        if not keys or any(key not in required and "default" not in fields.get(key, {}) for key in keys):
            yield "the keys of a list map are required or have defaults"
    elif kind == "set":
        if items.get("type") not in ("string", "integer"):
            yield "a set of something other than texts or whole numbers"
    elif kind != "atomic":
        yield "a list without a list type"


def _root() -> dict[str, Any]:
    root: dict[str, Any] = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root


def test_the_schema_keeps_the_house_rules() -> None:
    assert complaints(_root()) == []


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": "string", "maxLength": 3}, "no description"),
        ({"description": "A text.", "type": "string"}, "without maxLength"),
        ({"description": "A number.", "type": "integer", "minimum": 0}, "without bounds"),
        ({"description": "A list.", "type": "array", "maxItems": 2, "items": {"type": "boolean"}}, "list type"),
        ({"description": "A map.", "type": "object", "additionalProperties": {"type": "boolean"}}, "maxProperties"),
        ({"description": "A set.", "type": "boolean", "uniqueItems": True}, "uniqueItems"),
        ({"description": "A text.", "type": "string", "maxLength": 3, "pattern": "^(?!a)"}, "looks around"),
        (
            {
                "description": "A list.", "type": "array", "maxItems": 2, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {"name": {}}},
            },
            "required or have defaults",
        ),
    ],
)  # fmt: skip
def test_the_linter_sees_a_bad_field(field: dict[str, Any], expected: str) -> None:
    root = _root()
    root["properties"]["spec"]["properties"]["bad"] = field
    assert any(text.startswith("spec.bad: ") and expected in text for text in complaints(root))


def test_the_linter_does_not_pass_an_empty_schema() -> None:
    assert complaints({}) != []


def test_the_linter_sees_two_rules_of_one_name() -> None:
    root = _root()
    rule = root["properties"]["spec"]["x-kubernetes-validations"][0]
    root["x-kubernetes-validations"].append(rule)
    assert complaints(root) == [f"two rules say {rule['message']!r}"]
