"""Tensor parallel linear layers, split as in Megatron: by columns without, by rows with an all-reduce."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Placement:
    """Where a rank's weights lie and how they are made: alike on every rank, whatever the number of ranks."""

    rank: int
    tensor: int
    device: Any
    dtype: Any
    seed: int
    _made: int = 0

    def weight(self, rows: int, columns: int, dimension: int | None = None) -> Any:
        """A random matrix, of which this rank keeps its part along ``dimension`` (all of it for None).

        The whole matrix is drawn everywhere, so that two ranks hold halves of what one rank would hold.
        """
        self._made += 1
        generator = torch.Generator(device=self.device).manual_seed(self.seed * 1_000_003 + self._made)
        whole = torch.empty(rows, columns, device=self.device, dtype=torch.float32)
        whole.normal_(std=1 / math.sqrt(columns), generator=generator)
        if dimension is not None:
            whole = whole.chunk(self.tensor, dimension)[self.rank]
        return nn.Parameter(whole.to(self.dtype).contiguous(), requires_grad=False)


class ColumnParallelLinear(nn.Module):  # type: ignore[misc]  # torch is not in the lint environment
    """``[rows, inputs] -> [rows, outputs / tensor]``: each rank has some of the outputs."""

    def __init__(self, inputs: int, outputs: int, place: Placement) -> None:
        super().__init__()
        self.weight = place.weight(outputs, inputs, dimension=0)

    def forward(self, states: Any) -> Any:
        return nn.functional.linear(states, self.weight)


class RowParallelLinear(nn.Module):  # type: ignore[misc]
    """``[rows, inputs / tensor] -> [rows, outputs]``: each rank has some of the inputs, the sums are added up."""

    def __init__(self, inputs: int, outputs: int, place: Placement) -> None:
        super().__init__()
        self.tensor = place.tensor
        self.weight = place.weight(outputs, inputs, dimension=1)

    def forward(self, states: Any) -> Any:
        partial = nn.functional.linear(states, self.weight)
        if self.tensor > 1:
            dist.all_reduce(partial)
        return partial


def gather_columns(states: Any, tensor: int) -> Any:
    """``[rows, columns / tensor] -> [rows, columns]`` over all ranks."""
    if tensor == 1:
        return states
    parts = [torch.empty_like(states) for _ in range(tensor)]
    dist.all_gather(parts, states)
    return torch.cat(parts, dim=-1)
