"""What vLLM's own objects say: rank, mode, inputs, tables of graphs, adapters. Read, never changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shapetrace_capture.adapters.vllm.keys import agree, fields_of, state_of
from shapetrace_capture.ranks import RankId

GRAPH_TABLES = (
    ("vllm.compilation.cuda_graph", "CUDAGraphWrapper", "concrete_cudagraph_entries", "cudagraph"),
    ("vllm.compilation.breakable_cudagraph", "BreakableCUDAGraphWrapper", "entries", "capture"),
)
"""Module, class, its table of graphs by key, and where an entry of the table has the graph."""


def rank_of(parallel: Any, rank: int) -> RankId:
    """The global rank of the worker with ``rank`` in its world, by vLLM's order: replicas, pipeline, context, tensor.

    Replicas of a dense model are worlds of their own, in which ``data_parallel_rank`` is 0 too; only
    ``data_parallel_index`` tells them apart. With an external launcher one world holds all replicas.
    """
    tensor, pipeline, context = (
        max(1, int(getattr(parallel, f"{axis}_parallel_size", 1))) for axis in ("tensor", "pipeline", "prefill_context")
    )
    replica = tensor * pipeline * context
    inside = rank % replica
    dp_rank = int(getattr(parallel, "data_parallel_rank", 0) or 0)
    dp = max(int(getattr(parallel, "data_parallel_index", 0) or 0), dp_rank, rank // replica)
    stage = tensor * context
    ep = dp_rank * stage + inside % stage if getattr(parallel, "enable_expert_parallel", False) else 0
    return RankId(dp * replica + inside, tp=inside % tensor, pp=inside // stage, dp=dp, ep=ep)


def eager_reason(worker: Any) -> str | None:
    """Why this worker captures no graphs, by the user's or the platform's choice; None if it does."""
    if getattr(getattr(worker, "device", None), "type", "") == "cpu":
        return "the CPU platform of vLLM captures no graphs"
    if getattr(worker.vllm_config.model_config, "enforce_eager", False):
        return "enforce_eager is set"
    mode = worker.vllm_config.compilation_config.cudagraph_mode
    return "compilation_config.cudagraph_mode is NONE" if mode is None or mode.name == "NONE" else None


def is_v2(runner: Any) -> bool:
    """Whether this is the second model runner: both are named alike, the folder tells."""
    return any(cls.__module__.startswith("vllm.v1.worker.gpu.") for cls in type(runner).__mro__)


def model_of(runner: Any) -> tuple[Any, str] | None:
    """Where V1 holds what one forward calls: inside the wrapper that captures whole graphs, if there is one.

    None where a forward is split among threads, or where a wrapper is not known.
    """
    held = getattr(runner.model, "__dict__", {})
    if "concrete_cudagraph_entries" in held:
        return runner.model, "runnable"
    return (runner, "model") if "runnable" not in held else None


def rows_of(
    input_ids: Any = None, positions: Any = None, intermediate: Any = None, inputs_embeds: Any = None, **_: Any
) -> int | None:
    """Rows of a model's inputs; positions may have a row for each dimension of a picture, so their last axis counts."""
    for value in (input_ids, inputs_embeds):
        if value is not None:
            return int(value.shape[0])
    return None if positions is None else int(positions.shape[-1])


def rows_of_closure(forward: Any) -> int | None:
    """Rows of the inputs that V2's factory put into the forward it made."""
    names = getattr(getattr(forward, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(forward, "__closure__", None) or (), strict=False):
        if name == "model_inputs" and isinstance(cell.cell_contents, dict):
            return rows_of(**cell.cell_contents)
    return None


def graph_wrappers(mode: str) -> Iterator[tuple[Any, str, str]]:
    """vLLM's wrappers that capture in ``mode``, each with the names of its table and of the graph in an entry."""
    for module, name, table, graph in GRAPH_TABLES:
        for wrapper in list(getattr(getattr(sys.modules.get(module), name, None), "_all_instances", ())):
            only = vars(wrapper).get("runtime_mode")  # by vars: the wrapper answers for the model that it holds
            if only is None or only.name == mode:
                yield wrapper, table, graph


def is_captured(descriptor: Any, mode: str) -> bool:
    """Whether a wrapper holds a graph under a key that agrees with ``descriptor``."""
    return any(
        getattr(entry, graph, None) is not None and agree(key, descriptor)
        for wrapper, table, graph in graph_wrappers(mode)
        for key, entry in list(vars(wrapper).get(table, {}).items())
    )


Graphs = Mapping[tuple[int, Any], int]
"""Of the tables that hold graphs: (table, key) -> graph."""


def graphs_in_pieces() -> Graphs:
    """Those of the pieces of a model."""
    return {
        (id(wrapper), key): id(held)
        for wrapper, table, graph in graph_wrappers("PIECEWISE")
        for key, entry in list(vars(wrapper).get(table, {}).items())
        if (held := getattr(entry, graph, None)) is not None
    }


def loras_of(runner: Any, descriptor: Any) -> dict[str, str]:
    """The adapters that the batch is mapped to, in the words of the axes; nothing without LoRA.

    A key for N adapters is captured with as many as there are slots and requests for (``maybe_select_dummy_loras`` of
    vLLM, v1/worker/lora_model_runner_mixin.py): that is what it claims, and what is mapped is not always its number.
    """
    manager = getattr(getattr(runner, "lora_manager", None), "_adapter_manager", None)
    mapping = getattr(manager, "_last_mapping", None)
    if mapping is None:
        return {}
    mapped = len({index for index in mapping.index_mapping if index > 0})
    found = {"lora": "true" if mapped else "", "mappedloras": str(mapped)}
    claimed = fields_of(descriptor).get("num_active_loras", (None, None))[0]
    if claimed is not None:
        most = min(claimed, getattr(manager, "lora_slots", claimed), len(mapping.prompt_mapping))
        held = claimed if mapped == most else mapped
        found["activeloras"] = str(held) if held else ""
    return found


class Seen:
    """What the engine itself held during one capture. ``graphs`` are the tables in which it comes to hold the graph."""

    def __init__(self, runner: Any, descriptor: Any, graphs: Callable[[], Graphs] | None = None) -> None:
        self._runner = runner
        self._descriptor = descriptor
        self._graphs = graphs
        self._before = {} if graphs is None else graphs()
        self._context: Any = None

    def rows(self, *args: Any, **kwargs: Any) -> int | None:
        """Rows of the model's inputs; the forward's context is noted on the way."""
        self._context = getattr(sys.modules.get("vllm.forward_context"), "_forward_context", None)
        return rows_of(*args, **kwargs)

    def state(self) -> Mapping[str, str]:
        """The key that the forward's context named, or under which the graph is held since; and the adapters that were
        mapped. All in the words of the axes."""
        found: dict[str, str] = {}
        key, mode = getattr(self._context, "batch_descriptor", None), ""
        if key is not None:
            mode = self._context.cudagraph_runtime_mode.name
        elif self._graphs is not None:
            new = {place[1] for place, graph in self._graphs().items() if self._before.get(place) != graph}
            key = next(iter(new)) if len(new) == 1 else None
            mode = "" if hasattr(key, "cg_mode") else "PIECEWISE"
        if key is not None:
            found = state_of(key, mode)
        found |= loras_of(self._runner, self._descriptor)
        self._context = None
        return found
