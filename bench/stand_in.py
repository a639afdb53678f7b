"""The model of the capture benchmark: a decoder of many small layers, so that time goes where it goes on a GPU: into
the number of operators, not into their arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

LAYERS = 32
HIDDEN = 256
HEADS = 8
CONTEXT = 16
VOCABULARY = 512


class Norm(nn.Module):
    """RMS norm, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN), requires_grad=False)

    def forward(self, hidden: Any) -> Any:
        return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    """One step of decoding against a fixed cache."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.keys = nn.Parameter(torch.randn(HEADS, CONTEXT, HIDDEN // HEADS), requires_grad=False)
        self.values = nn.Parameter(torch.randn(HEADS, CONTEXT, HIDDEN // HEADS), requires_grad=False)

    def forward(self, hidden: Any) -> Any:
        rows = hidden.shape[0]
        query, key, value = self.qkv(hidden).view(rows, 3, HEADS, HIDDEN // HEADS).unbind(1)
        scores = torch.einsum("rhd,hcd->rhc", query, self.keys) + (query * key).sum(-1, keepdim=True)
        mixed = torch.einsum("rhc,hcd->rhd", scores.softmax(-1), self.values) + value
        return self.out(mixed.reshape(rows, HIDDEN))


class Layer(nn.Module):
    """Attention and a gated MLP, each with its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.attention, self.between = Norm(), Attention(), Norm()
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden: Any) -> Any:
        hidden = hidden + self.attention(self.before(hidden))
        gate, up = self.up(self.between(hidden)).chunk(2, dim=-1)
        return hidden + self.down(nn.functional.silu(gate) * up)


class Decoder(nn.Module):
    """``forward(input_ids, positions, forward_batch)``, as SGLang calls a model."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)
