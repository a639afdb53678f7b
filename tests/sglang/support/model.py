"""A model whose operators show what it was asked to compute: rows by a product, each variant by an operator of its own.

The variant is read from where SGLang's own models read it, never from a key or a name.
"""

from __future__ import annotations

from typing import Any

import torch

WIDTH = 16
MARKERS = {
    ("lora", "lora"): "cosh",
    ("lora", "nolora"): "sinh",
    ("attention", "dense"): "tan",
    ("attention", "sparse"): "atan",
    ("greedy", "greedy"): "expm1",
    ("stream", "0"): "erf",
    ("stream", "1"): "erfc",
}
"""(axis, value) -> the operator that only this variant runs."""
CHUNK = "lgamma"
"""Run once for each chunk of a prefix, as a model's attention is."""


class Body(torch.nn.Module):
    """``forward(input_ids, positions, forward_batch)``."""

    shared_experts_config = None

    def __init__(self, runner_stream: Any = lambda: None, cut: Any = lambda: None) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(64, WIDTH), requires_grad=False)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)
        self._stream = runner_stream
        self._cut = cut
        self.forwards = 0

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:
        self.forwards += 1
        ids = positions if input_ids is None else input_ids
        hidden = torch.mm(self.table[ids], self.weight)
        self._cut()
        for axis, value in self._variants(forward_batch).items():
            hidden = getattr(torch, MARKERS[axis, value])(hidden)
        for _ in range(forward_batch.num_prefix_chunks or 0):
            hidden = getattr(torch, CHUNK)(hidden)
        return hidden

    def _variants(self, forward_batch: Any) -> dict[str, str]:
        from sglang.srt.model_executor.runner_utils import capture_mode as mode

        named = ("get_capture_attention_variant", "get_capture_dsa_variant")  # before 0.5.18 there is neither
        attention = [getattr(mode, name)() for name in named if hasattr(mode, name)]
        found = {
            "lora": mode.get_capture_lora_variant(),
            "attention": attention[0] if attention else None,
            "stream": self._stream(),
            "greedy": "greedy" if getattr(forward_batch.sampling_info, "is_all_greedy", False) else None,
        }
        return {axis: str(value) for axis, value in found.items() if value is not None}
