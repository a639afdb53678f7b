"""Attention of a decode step over a KV cache: dense over the whole context, or sparse over its best tokens."""

from __future__ import annotations

import math
from typing import Any

import torch


def dense(query: Any, keys: Any, values: Any) -> Any:
    """``query [rows, heads, width]``, cache ``[rows, heads, context, width]`` -> ``[rows, heads, width]``."""
    scores = torch.matmul(keys, query.unsqueeze(-1)).squeeze(-1) / math.sqrt(query.shape[-1])
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights.unsqueeze(-2), values).squeeze(-2)


def sparse(query: Any, keys: Any, values: Any, count: int) -> Any:
    """The same over the ``count`` tokens of each head whose keys fit best, found by an index as wide as half a key.

    The cheap index and the gather are what sparse attention consists of; on real weights it would be trained.
    """
    half = query.shape[-1] // 2 or 1
    index = torch.matmul(keys[..., :half], query[..., :half].unsqueeze(-1)).squeeze(-1)
    best = index.topk(count, dim=-1).indices
    positions = best.unsqueeze(-1).expand(*best.shape, keys.shape[-1])
    return dense(query, keys.gather(-2, positions), values.gather(-2, positions))
