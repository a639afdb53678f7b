"""From pydantic's JSON schema to the structural schema that the API server takes.

The two dialects differ in about a dozen ways (Kubernetes documentation, "Specifying a structural schema"). What has no
counterpart is an error here, at generation, never a keyword that the API server would drop or refuse later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from shapetrace_api.schema import INT_OR_STRING, LIST_MAP_KEYS, LIST_TYPE, RULES, Schema

_ORDER = (
    "description", "type", INT_OR_STRING, "anyOf", "enum", "format", "default",
    "minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties",
    LIST_TYPE, LIST_MAP_KEYS, RULES, "required", "properties", "additionalProperties", "items",
)  # fmt: skip
"""All keywords that come through, in the order in which a person reads a field."""
_DROPPED = frozenset({"title", "examples", "$defs"})
"""Noise in a CRD: descriptions say it."""
_NULL = {"type": "null"}


class ConversionError(ValueError):
    """A model uses something that the API server has no word for. The message names the path."""


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of ``model``: no references, no null, only keywords that the API server knows."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}), model.__name__, ())


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Schema], path: str, seen: tuple[str, ...]) -> Schema:
    """One node and all below it. ``seen`` are the references that led here: a model that holds itself has no end."""
    schema = dict(node)
    while True:
        if "$ref" in schema:
            name = str(schema.pop("$ref")).removeprefix("#/$defs/")
            if name in seen:
                raise ConversionError(f"{path}: {name} holds itself, a structural schema cannot")
            seen = (*seen, name)
            schema = _merged(definitions[name], schema)
        elif _NULL in schema.get("anyOf", ()):
            schema = _without_null(schema, path)
        else:
            break
    if schema.get(INT_OR_STRING):
        _check_int_or_string(schema, path)
        return {key: schema[key] for key in _ORDER if key in schema}
    _translate(schema, path)
    unknown = (schema.keys() - set(_ORDER) - _DROPPED) | (schema.keys() & {"anyOf", INT_OR_STRING})
    if unknown:
        raise ConversionError(f"{path}: {', '.join(sorted(unknown))} is nothing the API server takes")
    if "type" not in schema:
        raise ConversionError(f"{path}: no type")
    result = {key: schema[key] for key in _ORDER if key in schema and key != "additionalProperties"}
    if "properties" in result:
        result["properties"] = {
            name: _convert(child, definitions, f"{path}.{name}", seen) for name, child in result["properties"].items()
        }
    if "items" in result:
        result["items"] = _convert(result["items"], definitions, f"{path}[]", seen)
    values = schema.get("additionalProperties", False)
    if isinstance(values, Mapping):
        result["additionalProperties"] = _convert(values, definitions, f"{path}{{}}", seen)
    elif values:
        raise ConversionError(f"{path}: a map needs a type for its values")
    if "default" in result:
        result["default"] = _without_nulls(result["default"])
    return {key: result[key] for key in _ORDER if key in result}


def _without_null(schema: Schema, path: str) -> Schema:
    """``X | None``: the field may be absent, it is never null."""
    branches = [branch for branch in schema["anyOf"] if branch != _NULL]
    if len(branches) != 1:
        raise ConversionError(f"{path}: a choice between types; use an object with optional members and a rule")
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if rest.get("default", ...) is None:
        del rest["default"]
    return _merged(branches[0], rest)


def _merged(general: Schema, specific: Schema) -> Schema:
    """What stands at the place of use overrides what stands at the definition; rules of both hold."""
    found = [*general.get(RULES, []), *specific.get(RULES, [])]
    return {**general, **specific, **({RULES: found} if found else {})}


def _translate(schema: Schema, path: str) -> None:
    """Keywords with another spelling, in place."""
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if schema.pop("uniqueItems", False):
        raise ConversionError(f"{path}: a set; use a list with the marker ListSet")
    for bound, exclusive, step in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        if exclusive in schema:
            if schema.get("type") != "integer":
                raise ConversionError(f"{path}: {exclusive} on something other than an integer")
            schema[bound] = schema.pop(exclusive) + step


def _check_int_or_string(schema: Schema, path: str) -> None:
    if "type" in schema or schema.get("anyOf") != [{"type": "integer"}, {"type": "string"}]:
        raise ConversionError(f"{path}: {INT_OR_STRING} stands with anyOf integer, string and without a type")


def _without_nulls(default: Any) -> Any:
    """A default as an object of the API: a field that is not set is absent.

    Whole, with the defaults of its own fields: the API server evaluates rules on a default as it stands.
    """
    if not isinstance(default, Mapping):
        return default
    return {name: _without_nulls(value) for name, value in default.items() if value is not None}
