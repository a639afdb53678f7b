"""LoRA adapters, one per request: each row is multiplied with the adapter that its request chose."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from shapetrace_engine.parallel import Placement


class Adapters(nn.Module):  # type: ignore[misc]  # torch is not in the lint environment
    """``count`` adapters of ``lora_rank`` beside one column parallel layer."""

    def __init__(self, inputs: int, outputs: int, lora_rank: int, count: int, place: Placement) -> None:
        super().__init__()
        down = place.weight(count * inputs, lora_rank)
        up = [place.weight(lora_rank, outputs, dimension=1) for _ in range(count)]
        self.down = nn.Parameter(down.view(count, inputs, lora_rank), requires_grad=False)
        self.up = nn.Parameter(torch.stack(up), requires_grad=False)

    def forward(self, states: Any, chosen: Any) -> Any:
        """``states [rows, inputs]`` and an adapter per row -> what is to be added, ``[rows, outputs / tensor]``."""
        down = self.down.index_select(0, chosen)
        up = self.up.index_select(0, chosen)
        return torch.bmm(torch.bmm(states.unsqueeze(1), down), up).squeeze(1)
