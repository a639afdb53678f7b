"""What the models of the API are made of: base classes, and markers that become ``x-kubernetes-*`` keys of the CRD.

A marker is put on a field through ``Annotated``; rules over several fields of one object go into its ``model_config``
through :func:`rules`. Both end up in pydantic's JSON schema, from which :mod:`shapetrace_api.crd` builds the CRD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

RULES = "x-kubernetes-validations"
LIST_TYPE = "x-kubernetes-list-type"
LIST_MAP_KEYS = "x-kubernetes-list-map-keys"
INT_OR_STRING = "x-kubernetes-int-or-string"

Schema = dict[str, Any]


class ApiModel(BaseModel):
    """An object of the API. camelCase in JSON, snake_case in Python.

    Unknown fields are ignored, because stored objects may be older or newer than this code; typing errors of a person
    are caught by the API server, which knows the schema and validates strictly.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")

    def to_dict(self) -> dict[str, Any]:
        """The object as Kubernetes stores it: camelCase, without the fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


@dataclass(frozen=True)
class Rule:
    """One CEL rule. ``message`` says what is wrong and what to do; unique in the CRD: tests name rules by it."""

    rule: str
    message: str

    def to_schema(self) -> Schema:
        """The entry of ``x-kubernetes-validations``."""
        return {"rule": self.rule, "message": self.message}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        schema = handler(core)
        return {**schema, RULES: [*schema.get(RULES, []), self.to_schema()]}


def rules(*entries: Rule) -> ConfigDict:
    """Rules over the fields of one object, for its ``model_config``."""
    return ConfigDict(json_schema_extra={RULES: [entry.to_schema() for entry in entries]})


@dataclass(frozen=True)
class ListMap:
    """A list whose entries are told apart by ``keys``; two of the same are refused, and appliers merge by them."""

    keys: tuple[str, ...]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {**handler(core), LIST_TYPE: "map", LIST_MAP_KEYS: list(self.keys)}


@dataclass(frozen=True)
class ListSet:
    """A list of scalars without repetition."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {**handler(core), LIST_TYPE: "set"}


@dataclass(frozen=True)
class ListAtomic:
    """A list whose order matters, or whose entries have no key: it is replaced as a whole."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        return {**handler(core), LIST_TYPE: "atomic"}
