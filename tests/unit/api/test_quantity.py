"""Amounts are read as Kubernetes reads them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from shapetrace_api.quantity import QuantityError, parse
from shapetrace_api.scalars import QUANTITY_PATTERN, Quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("4", "4"),
        ("500m", "0.5"),
        ("1.5", "1.5"),
        ("16Gi", str(16 * 2**30)),
        ("2k", "2000"),
        ("0", "0"),
        ("1.5Ki", "1536"),
    ],
)
def test_an_amount_is_read_in_base_units(text: str, amount: str) -> None:
    assert parse(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1 Gi", "Gi", "1gi", "1K", "0x1", "١", "1.", ".5", "1Ei"])
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)
    with pytest.raises(ValidationError):
        TypeAdapter(Quantity).validate_python(text)


@given(st.from_regex(QUANTITY_PATTERN.replace("[0-9]+", "[0-9]{1,12}", 1), fullmatch=True))
def test_whatever_the_schema_takes_can_be_read(text: str) -> None:
    assert parse(TypeAdapter(Quantity).validate_python(text)) >= 0


def test_a_number_of_yaml_is_an_amount_and_a_truth_value_is_none() -> None:
    assert TypeAdapter(Quantity).validate_python(2) == "2"
    with pytest.raises(ValidationError):
        TypeAdapter(Quantity).validate_python(True)
