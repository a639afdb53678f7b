"""The converter speaks the API server's dialect, and refuses what has no word there."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from shapetrace_api.scalars import Quantity
from shapetrace_api.schema import ApiModel, ListMap, ListSet, Rule, rules
from shapetrace_api.structural import ConversionError, structural


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Leaf(ApiModel):
    """What a leaf is."""

    model_config = rules(Rule("self.size > 0", "a leaf has a size"))
    size: int = Field(default=1, gt=0, lt=10)
    colour: Colour | None = None


class Tree(ApiModel):
    """What a tree is."""

    leaf: Leaf = Field(description="This leaf.")
    spare: Annotated[Leaf, Rule("self.size < 5", "a spare leaf is small")] | None = Field(None, description="Another.")
    leaves: Annotated[list[Leaf], Field(max_length=3), ListMap(("size",))] = Field(default=[])
    words: Annotated[list[str], ListSet()] | None = None
    kind: Literal["oak"] = "oak"
    planted_by: dict[str, Quantity] = Field(default={})
    first: Leaf = Field(default=Leaf(size=2))


@pytest.fixture
def tree() -> dict[str, Any]:
    return structural(Tree)


def test_references_are_inlined_and_the_place_of_use_describes(tree: dict[str, Any]) -> None:
    assert tree["properties"]["leaf"]["description"] == "This leaf."
    assert tree["properties"]["leaves"]["items"]["description"] == "What a leaf is."
    assert tree["properties"]["leaf"]["properties"]["size"]["type"] == "integer"


def test_exclusive_bounds_become_inclusive(tree: dict[str, Any]) -> None:
    size = tree["properties"]["leaf"]["properties"]["size"]
    assert (size["minimum"], size["maximum"], size["default"]) == (1, 9, 1)


def test_an_optional_field_is_absent_never_null(tree: dict[str, Any]) -> None:
    colour = tree["properties"]["leaf"]["properties"]["colour"]
    assert colour["enum"] == ["red", "blue"]
    assert "default" not in colour
    assert tree["required"] == ["leaf"]


def test_rules_of_the_class_and_of_the_field_are_both_kept(tree: dict[str, Any]) -> None:
    messages = [rule["message"] for rule in tree["properties"]["spare"]["x-kubernetes-validations"]]
    assert messages == ["a leaf has a size", "a spare leaf is small"]


def test_list_types_are_kept(tree: dict[str, Any]) -> None:
    leaves, words = tree["properties"]["leaves"], tree["properties"]["words"]
    assert (leaves["x-kubernetes-list-type"], leaves["x-kubernetes-list-map-keys"]) == ("map", ["size"])
    assert words["x-kubernetes-list-type"] == "set"


def test_one_choice_is_an_enum_and_names_are_camel_case(tree: dict[str, Any]) -> None:
    assert tree["properties"]["kind"]["enum"] == ["oak"]
    assert tree["properties"]["plantedBy"]["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_a_default_object_is_whole_but_holds_no_null(tree: dict[str, Any]) -> None:
    assert tree["properties"]["first"]["default"] == {"size": 2}


class Endless(BaseModel):
    next: Endless | None = None


class Choice(BaseModel):
    value: list[str] | bool


class OptionalChoice(BaseModel):
    value: list[str] | bool | None = None


class Unique(BaseModel):
    values: set[str]


class Anything(BaseModel):
    values: dict[str, Any]


class Untyped(BaseModel):
    value: Any


class Pair(BaseModel):
    value: tuple[int, str]


class Real(BaseModel):
    value: float = Field(gt=0)


class Multiple(BaseModel):
    value: int = Field(multiple_of=2)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Endless, "Endless.next: Endless holds itself"),
        (Choice, "Choice.value: anyOf is nothing the API server takes"),
        (OptionalChoice, "OptionalChoice.value: a choice between types"),
        (Unique, "Unique.values: a set"),
        (Anything, "Anything.values: a map needs a type"),
        (Untyped, "Untyped.value: no type"),
        (Pair, "Pair.value: prefixItems is nothing the API server takes"),
        (Real, "Real.value: exclusiveMinimum"),
        (Multiple, "Multiple.value: multipleOf"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_path(model: type[BaseModel], message: str) -> None:
    with pytest.raises(ConversionError) as refusal:
        structural(model)
    assert str(refusal.value).startswith(message)
