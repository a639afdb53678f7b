"""Which operand of a matrix product holds its rows: data, one line per operator, each with the source of the rule.

The first dimension of the first input is not it: ``addmm`` takes the bias first, and a router's bias has as many
entries as there are experts, which may well equal the batch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True)
class GemmRule:
    """Positions among an operator's inputs."""

    rows_operand: int
    """The input whose dimensions but the last are the rows."""
    weight_operand: int
    """The input that is the same in every shape of one model; it tells the products of a layer apart."""
    source: str


_SCHEMA = "PyTorch aten/src/ATen/native/native_functions.yaml: "

GEMM_RULES: dict[str, GemmRule] = {
    "aten::mm": GemmRule(0, 1, _SCHEMA + "mm(self, mat2)"),
    "aten::linear": GemmRule(0, 1, _SCHEMA + "linear(input, weight, bias)"),
    "aten::addmm": GemmRule(1, 2, _SCHEMA + "addmm(self, mat1, mat2): the bias comes first"),
    "aten::_addmm_activation": GemmRule(1, 2, _SCHEMA + "_addmm_activation(self, mat1, mat2)"),
    "aten::_scaled_mm": GemmRule(0, 1, _SCHEMA + "_scaled_mm(self, mat2, scale_a, scale_b)"),
    "aten::_int_mm": GemmRule(0, 1, _SCHEMA + "_int_mm(self, mat2)"),
    "aiter::gemm_a16w16": GemmRule(0, 1, "seen in an SGLang trace of Qwen3-8B on MI300X (TraceLens, tests/traces)"),
    "vllm::rocm_unquantized_gemm": GemmRule(0, 1, "seen in a vLLM trace on MI300X (TraceLens, tests/traces)"),
}

NOT_ROWS = {
    "aten::bmm": "the leading dimension is batch x heads, not rows",
    "aten::baddbmm": "the leading dimension is batch x heads, not rows",
    "aten::matmul": "calls mm or bmm, which are counted themselves",
}
"""Products that are left out on purpose, and why."""


MAX_DIMENSION = 2**40
"""No tensor has more; a damaged trace may say anything."""


def _dimensions(value: Any) -> list[int] | None:
    if not isinstance(value, list) or not 2 <= len(value) <= 8:
        return None
    whole = all(isinstance(item, int) and not isinstance(item, bool) and 0 < item < MAX_DIMENSION for item in value)
    return value if whole else None


def rows_and_weight(operator: str, input_dims: Any) -> tuple[int, str] | None:
    """``(rows, weight)`` of one call, the weight spelled ``4096x6144``; None where there is no rule or no shape.

    ``input_dims`` is Kineto's ``Input Dims``: a list with the dimensions of each input. Rows are the product of all
    dimensions but the last: ``linear`` takes ``[batch, tokens, width]`` as well as ``[rows, width]``.
    """
    rule = GEMM_RULES.get(operator)
    if rule is None or not isinstance(input_dims, Sequence):
        return None
    if len(input_dims) <= max(rule.rows_operand, rule.weight_operand):
        return None
    left, right = _dimensions(input_dims[rule.rows_operand]), _dimensions(input_dims[rule.weight_operand])
    if left is None or right is None:
        return None
    return prod(left[:-1]), "x".join(str(size) for size in right)
