"""What marks a variant in a trace, one table for each engine: the only place that knows it.

A marker speaks for the operators of *that engine's own model*. It proves a label, and where it is the marker of another
value of the same axis it says what the trace really holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapetrace_traces.judge.evidence import Trace


@dataclass(frozen=True)
class Marker:
    """A sign that a trace holds ``value`` of ``axis``.

    It does if one of ``present`` is called (where any is named) and none of ``absent``; and, where ``windows`` is
    given, if the trace has so many stream captures.
    """

    axis: str
    value: str
    source: str
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    windows: range | None = None
    is_exclusive: bool = True
    """False where traces of another value may bear the sign too: it speaks for its value until one does, and against
    none."""

    def holds(self, trace: Trace) -> bool:
        """Whether the trace is so marked.

        Only where its list of operators was not cut is absence a sign. A trace without operators is marked by nothing.
        """
        operators = trace.operators
        if not operators or (self.absent and not trace.has_all_operators):
            return False
        if self.windows is not None and (trace.windows is None or trace.windows not in self.windows):
            return False
        called = {name for name in (*self.present, *self.absent) if _own_calls(name, operators) > 0}
        return (not self.present or bool(called & set(self.present))) and not called & set(self.absent)


CALLED_BY: dict[str, str] = {"aten::index_select": "aten::embedding"}
"""Operator -> the operator that calls it once each time (PyTorch, aten/src/ATen/native/Embedding.cpp): those calls mark
nothing."""


def _own_calls(name: str, operators: Mapping[str, int]) -> int:
    return operators.get(name, 0) - operators.get(CALLED_BY.get(name, ""), 0)


_TORCH = "shapetrace_engine: "
_VLLM_MODE = "0.32.0, v1/worker/gpu/cudagraph_utils.py and compilation/cuda_graph.py: stream captures "
MAX_WINDOWS = 1_000_000
"""More stream captures than any trace has."""
_SOFTMAX = ("aten::softmax", "aten::_softmax", "aten::_safe_softmax")

MARKERS: dict[str, tuple[Marker, ...]] = {
    "torch": (
        Marker("attention", "sparse", _TORCH + "sparse attention picks its tokens by topk", present=("aten::topk",)),
        Marker(
            "attention", "dense", _TORCH + "dense attention reads every token", present=_SOFTMAX, absent=("aten::topk",)
        ),
        Marker("lora", "lora", _TORCH + "adapters are gathered per request", present=("aten::index_select",)),
        Marker("lora", "nolora", _TORCH + "without adapters nothing is gathered", absent=("aten::index_select",)),
    ),
    "vllm": (
        Marker("mode", "PIECEWISE", _VLLM_MODE + "of several pieces each", windows=range(2, MAX_WINDOWS)),
        # a model may have no place to cut at: one piece looks like a whole
        Marker("mode", "FULL", _VLLM_MODE + "of the whole", windows=range(1, 2), is_exclusive=False),
    ),
}
"""Engine -> markers. An engine, or a model of the user's, that is not here has none: its variants are told apart by
their operator sequences."""

NO_MARKERS: dict[tuple[str, str], str] = {
    ("sglang", "attention"): (
        "both values run the top-k; dense leaves out the indexer's logits (0.5.23, srt/layers/attention/dsa/"
        "dsa_indexer.py, _forward_cuda_k_only), and those are a Triton kernel of aiter, no operator"
    ),
    ("sglang", "lora"): (
        "Triton kernels called without the dispatcher (0.5.23, srt/lora/backend); the one operator, sglang::"
        "fused_moe_lora, is for experts only"
    ),
    ("sglang", "stream"): "the same operators on another stream",
    ("vllm", "lora"): (
        "vllm::lora_shrink and vllm::lora_expand are called with and without LoRA, and return early by a flag "
        "(0.32.0, lora/ops/triton_ops/lora_shrink_op.py, no_lora_flag_cpu)"
    ),
}
"""(engine, axis) that were looked at and have no operator that is honest, and why."""


def table_name(engine: str, arguments: Sequence[str]) -> str:
    """The name under which the markers of this engine are known; empty where they do not speak for its model.

    ``--model module:factory`` gives the torch engine a model of the user's: its operators mark nothing.
    """
    own_model = any(text == "--model" or text.startswith("--model=") for text in arguments)
    return "" if engine == "torch" and own_model else engine


@dataclass(frozen=True)
class MarkerTable:
    """The markers of one engine, by axis."""

    markers: tuple[Marker, ...] = field(default=())

    @classmethod
    def of(cls, engine: str) -> MarkerTable:
        """The table of an engine; empty for one that has none."""
        return cls(MARKERS.get(engine, ()))

    def find(self, axis: str, trace: Trace) -> Marker | None:
        """The one marker of ``axis`` that the trace shows; None where it shows none, or more than one."""
        found = [item for item in self.markers if item.axis == axis and item.holds(trace)]
        return found[0] if len(found) == 1 else None

    def knows(self, axis: str, value: str) -> bool:
        """Whether there is a marker of this value."""
        return any(item.axis == axis and item.value == value for item in self.markers)
