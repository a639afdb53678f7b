"""Amounts of resources as Kubernetes writes them: ``4``, ``500m``, ``1.5``, ``16Gi``."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "": Decimal(1), "m": Decimal("0.001"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip
_FORM = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]{1,9})?)(?P<unit>[a-zA-Z]{0,2})", re.ASCII)


class QuantityError(ValueError):
    """A text that is no quantity, or not one of the spellings that the API takes."""


def parse(text: str) -> Decimal:
    """The amount in base units: cores, bytes, pieces."""
    match = _FORM.fullmatch(text)
    if match is None or match["unit"] not in _UNITS:
        raise QuantityError(f"{text!r} is no amount: write it as 4, 500m, 1.5 or 16Gi")
    return Decimal(match["number"]) * _UNITS[match["unit"]]
