"""The model that we own: column and row parallel layers, a KV cache, LoRA and two kinds of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from shapetrace_engine import attention
from shapetrace_engine.configuration import Configuration
from shapetrace_engine.lora import Adapters
from shapetrace_engine.parallel import ColumnParallelLinear, Placement, RowParallelLinear, gather_columns


class Norm(nn.Module):  # type: ignore[misc]  # torch is not in the lint environment
    """Root mean square norm with unit gains."""

    def forward(self, states: Any) -> Any:
        return states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + 1e-6)


class Layer(nn.Module):  # type: ignore[misc]
    """Attention and a gated feed-forward part, four times as wide as the state."""

    def __init__(self, made: Configuration, place: Placement, rows: int) -> None:
        super().__init__()
        hidden = made.hidden
        self.heads, self.width, self.topk = made.heads // made.tensor, hidden // made.heads, made.topk
        self.norm = Norm()
        self.query, self.key, self.value = (ColumnParallelLinear(hidden, hidden, place) for _ in range(3))
        self.out = RowParallelLinear(hidden, hidden, place)
        self.gate, self.up = (ColumnParallelLinear(hidden, 4 * hidden, place) for _ in range(2))
        self.down = RowParallelLinear(4 * hidden, hidden, place)
        self.adapters = Adapters(hidden, hidden, made.lora_rank, made.adapters, place)
        self.keys, self.values = (self._cache(place, rows, made.context) for _ in range(2))

    def _cache(self, place: Placement, rows: int, context: int) -> Any:
        """``[rows, heads / tensor, context, width]``, filled as if the context had been read."""
        tokens = place.weight(rows * context, self.heads * place.tensor * self.width, dimension=1)
        return tokens.view(rows, context, self.heads, self.width).transpose(1, 2).contiguous()

    def forward(self, states: Any, positions: Any, chosen: Any, variants: Mapping[str, str]) -> tuple[Any, str, str]:
        """The new states, and which attention and which LoRA path ran."""
        rows = states.shape[0]
        inputs = self.norm(states)
        query, lora = self.query(inputs), "nolora"
        if variants.get("lora") == "lora":
            query, lora = query + self.adapters(inputs, chosen), "lora"
        request = torch.arange(rows, device=states.device)
        keys, values = self.keys[:rows], self.values[:rows]
        keys[request, :, positions] = self.key(inputs).view(rows, self.heads, self.width)
        values[request, :, positions] = self.value(inputs).view(rows, self.heads, self.width)
        query = query.view(rows, self.heads, self.width)
        if variants.get("attention") == "sparse":
            mixed, kind = attention.sparse(query, keys, values, self.topk), "sparse"
        else:
            mixed, kind = attention.dense(query, keys, values), "dense"
        states = states + self.out(mixed.reshape(rows, -1))
        inputs = self.norm(states)
        return states + self.down(nn.functional.silu(self.gate(inputs)) * self.up(inputs)), kind, lora


class Decoder(nn.Module):  # type: ignore[misc]
    """One decode step: the next token of each request. Follows the protocol of :mod:`shapetrace_engine.models`."""

    def __init__(self, made: Configuration, place: Placement) -> None:
        super().__init__()
        rows = max(made.sizes)
        self.tensor = made.tensor
        self.embedding = place.weight(made.vocabulary, made.hidden)
        self.layers = nn.ModuleList(Layer(made, place, rows) for _ in range(made.layers))
        self.norm = Norm()
        self.head = ColumnParallelLinear(made.hidden, made.vocabulary, place)
        generator = torch.Generator().manual_seed(made.seed)

        def draw(below: int) -> Any:
            return torch.randint(below, (rows,), generator=generator).to(place.device)

        self._inputs = (draw(made.vocabulary), draw(made.context), draw(made.adapters))
        self._state: dict[str, str] = {}

    def inputs(self, size: int) -> tuple[Any, ...]:
        """Tokens, positions in the cache and adapters of ``size`` requests: slices of the largest size's buffers."""
        return tuple(buffer[:size] for buffer in self._inputs)

    def forward(self, tokens: Any, positions: Any, chosen: Any, *, variants: Mapping[str, str]) -> Any:
        """Logits, ``[rows, vocabulary]``."""
        states = self.embedding[tokens]  # not nn.Embedding: that runs aten::index_select, which marks LoRA
        attended, adapted = set(), set()
        for layer in self.layers:
            states, kind, lora = layer(states, positions, chosen, variants)
            attended.add(kind)
            adapted.add(lora)
        self._state = {"attention": "+".join(sorted(attended)), "lora": "+".join(sorted(adapted))}
        return gather_columns(self.head(self.norm(states)), self.tensor)

    def state(self) -> dict[str, str]:
        """The paths that the last step really took."""
        return dict(self._state)
