"""How SGLang's objects are read, in all versions from 0.5.14 on. Each function takes them and changes none."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shapetrace_contract.tag import Runner

from shapetrace_capture.ranks import RankId

CAPTURE_MODE = "sglang.srt.model_executor.runner_utils.capture_mode"
CONTEXT = "sglang.srt.runtime_context"

AXES = {"stream_idx": "stream", "dsa_variant": "attention", "attention_variant": "attention"}
"""Field of the key -> axis. A field that is not here is its own axis; ``variant_label`` goes by its value."""
LABELS = (("lora", ("lora", "nolora")), ("greedy", ("greedy",)), ("prefix", ("chunked_prefix",)))


class Kind(NamedTuple):
    """What is known of a backend: the warm-ups before its capture, and what its capture looks like."""

    warmups: int = 2
    mode: str = "FULL"
    expects_graph: bool = False
    expects_stream: bool = False
    ends_with_hook: bool = False


KINDS = {
    "FullCudaGraphBackend": Kind(expects_graph=True, expects_stream=True),
    # a forward in segments; under --debug-cuda-graph it runs eagerly between them
    "BreakableCudaGraphBackend": Kind(mode="PIECEWISE", expects_graph=True),
    "TcPiecewiseCudaGraphBackend": Kind(warmups=1, mode="PIECEWISE", expects_graph=True, ends_with_hook=True),
}
"""Others (graphs of another vendor are not counted here) are taken as :class:`Kind` says by default."""


def classes_with(package: str, method: str) -> list[str]:
    """``module.Class.method`` of each class below ``package`` whose source defines ``method``, without importing it."""
    spec = importlib.util.find_spec(package)
    found = []
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        for path in sorted(Path(folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8", errors="replace")
            if f"def {method}(" not in text:
                continue
            module = ".".join([package, *path.relative_to(folder).with_suffix("").parts])
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and any(_defines(item, method) for item in node.body):
                    found.append(f"{module}.{node.name}.{method}")  # noqa: PERF401 - three levels of loops
    return found


def _defines(node: ast.stmt, method: str) -> bool:
    if not isinstance(node, ast.FunctionDef) or node.name != method:
        return False
    return not any(ast.unparse(each).endswith("abstractmethod") for each in node.decorator_list)


def resolve(target: str, *, imports: bool = False) -> Any:
    """The method, None where this version or platform has none. ``imports`` its module, if it is not there yet."""
    module_name, class_name, method = target.rsplit(".", 2)
    module = sys.modules.get(module_name)
    if module is None and imports:
        with suppress(Exception):  # a backend of another platform may fail in any way
            module = importlib.import_module(module_name)
    return getattr(getattr(module, class_name, None), method, None)


def class_names(value: Any) -> list[str]:
    return [cls.__name__ for cls in type(value).__mro__]


def number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def rank_of(source: Any) -> RankId:
    """Where this process stands. ``source`` knows it, or its ``ps``, or the published topology, as versions differ.

    Data replicas are worlds of their own. Under attention data parallelism ``dp_rank`` is a place inside one of them.
    """
    parallel = importlib.import_module(CONTEXT).get_parallel()

    def read(name: str, default: int | None = None) -> int:
        for holder in (source, getattr(source, "ps", None), parallel):
            with suppress(Exception):  # a topology that is not set up yet raises what it likes
                found = number(getattr(holder, name))
                if found is not None:
                    return found
        if default is None:
            raise LookupError(f"SGLang does not say its {name}")
        return default

    tensor, pipeline, tp, pp = read("tp_size"), read("pp_size"), read("tp_rank"), read("pp_rank")
    server_args = getattr(source, "server_args", None)
    inside = read("attn_dp_size", 1) > 1 or getattr(server_args, "enable_dp_attention", False)
    replica = 0 if inside else read("dp_rank", 0)
    return RankId(replica * tensor * pipeline + tensor * pp + tp, tp=tp, pp=pp, dp=replica, ep=read("moe_ep_rank", 0))


def runner_of(runner: Any) -> Runner:
    """Class, draft index, step and width of a runner; the ordinal is left out."""
    model_runner = getattr(runner, "model_runner", None)
    is_draft = getattr(model_runner, "is_draft_worker", False) or getattr(runner, "_tree_draft_mode", False)
    draft = (number(getattr(model_runner, "draft_model_idx", None)) or 0) if is_draft else None
    step = number(getattr(runner, "step", None))  # of a draft with a layer per step
    if step is None and getattr(getattr(model_runner, "server_args", None), "speculative_adaptive", False):
        step = number(getattr(runner, "speculative_num_steps", None))
    width = width_of(runner)
    return Runner(type(runner).__name__, draft, step, width if width is not None and width > 1 else None)


def width_of(runner: Any) -> int | None:
    """Tokens that a request has in the runner's forward."""
    return number(getattr(runner, "captured_req_width", getattr(runner, "num_tokens_per_bs", None)))


def unit_of(runner: Any) -> str:
    """What a key's size counts."""
    names = class_names(runner)
    if "PrefillCudaGraphRunner" in names or getattr(runner, "ragged_verify_mode", False):
        return "tok"
    return "bs" if "DecodeCudaGraphRunner" in names else "unknown"


def words_for(runner: Any, named: Runner) -> set[str]:
    """The words of ``capture.targets`` that mean this runner."""
    names = class_names(runner)
    role = "draft" if named.draft is not None else "prefill" if "PrefillCudaGraphRunner" in names else "decode"
    return {role, named.name, str(named)}


def axes_of(key: Mapping[str, Any]) -> dict[str, str]:
    """Axis -> value of the fields of a key that are set."""
    axes: dict[str, str] = {}
    for name, value in key.items():
        if name == "size" or value is None:
            continue
        if name == "variant_label":
            axis = next((axis for axis, starts in LABELS if str(value).partition(":")[0] in starts), "variant")
        else:
            axis = AXES.get(name) or re.sub(r"[^a-z0-9]", "", name.lower())
            axis = axis if re.match("[a-z]", axis) and axis != "epoch" else f"x{axis}"
        while axis in axes:
            axis += "x"
        axes[axis] = str(value) or "''"
    return axes


def keys_of(runner: Any) -> Iterator[dict[str, Any]]:
    """The keys that ``runner`` is about to capture, as SGLang's loops make them: the largest size first."""
    if "PrefillCudaGraphRunner" in class_names(runner):
        chunks = runner._prefix_capture_variants if getattr(runner, "_capture_chunked_prefix", False) else ()
        for size in reversed(runner.capture_num_tokens):
            for label in (None, *(f"chunked_prefix:{count}" for count in chunks)):
                yield {"size": size, "variant_label": label}
        return
    streams = range(len(runner.stream_groups)) if getattr(runner, "enable_pdmux", False) else (None,)
    variants = getattr(runner, "attention_graph_variants", None)
    attentions: Iterable[Any] = (None,) if variants is None else variants.capture_labels
    if getattr(runner, "dsa_dual_graph", False):
        attentions = ("dense", "sparse")
    labels: tuple[Any, ...] = ("lora", "nolora") if getattr(runner, "record_nolora_graph", False) else (None,)
    if getattr(runner, "_tree_mode", False):
        labels = (None,)
    if _captures_greedy(runner):
        labels = (None, "greedy")
    width = width_of(runner) or 1
    make = getattr(runner, "_make_graph_key", None)
    fields = len(inspect.signature(make).parameters) if make is not None else 0
    for stream in streams:
        for bs in reversed(getattr(runner, "capture_bs", ())):
            size = bs * width if getattr(runner, "ragged_verify_mode", False) else bs
            for label in labels:
                for attention in attentions:
                    # the runner's own way to make a key, which may leave an axis out
                    values = (size, stream, label, attention)[:fields]
                    yield asdict(make(*values)) if make is not None else {"size": size}


def _captures_greedy(runner: Any) -> bool:
    """Whether the EAGLE draft captures a second, greedy graph at each size (from 0.5.22 on)."""
    draft = next((cls for cls in type(runner).__mro__ if cls.__name__ == "EAGLEDraftCudaGraphRunner"), None)
    if draft is None or not hasattr(sys.modules[draft.__module__], "_GREEDY_VARIANT"):
        return False
    return bool(importlib.import_module(CONTEXT).get_spec().speculative_use_rejection_sampling)


def variables_of(forward: Callable[..., Any]) -> dict[str, Any]:
    """The variables of the engine's method in which ``forward`` was made."""
    names = getattr(getattr(forward, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(forward, "__closure__", None) or (), strict=False):
        with suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def rows_of(around: Mapping[str, Any]) -> int | None:
    """The rows that the forward is fed: those of its batch, not what the key says."""
    batches = [around.get("forward_batch")]
    for step in around.get("items") or ():  # a draft's steps in one graph have a batch each, of the same rows
        batches += step if isinstance(step, tuple) else ()
    for batch in batches:
        for name in ("input_ids", "positions"):
            value = getattr(batch, name, None)
            if value is not None and len(value.shape) == 1:
                return int(value.shape[0])
    return None


def witnesses(runner: Any) -> dict[str, int]:
    """The factors between a key's size and the rows of the model's operators."""
    gathered = getattr(runner, "require_mlp_tp_gather", False)
    found = {
        "width": width_of(runner),
        "steps": number(getattr(runner, "speculative_num_steps", None)),
        "draftTokens": number(getattr(runner, "speculative_num_draft_tokens", None)),
        "topk": number(getattr(runner, "topk", None)),
        "gathered": number(getattr(runner, "num_dp_ranks", getattr(runner, "dp_size", None))) if gathered else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def engine_state(around: Mapping[str, Any]) -> dict[str, str]:
    """SGLang's own words on the variant it captures, which are not those of the key."""
    mode, state = sys.modules.get(CAPTURE_MODE), {}
    for axis, names in (
        ("lora", ("get_capture_lora_variant",)),
        ("attention", ("get_capture_attention_variant", "get_capture_dsa_variant")),
    ):
        for name in names:
            value = getattr(mode, name)() if hasattr(mode, name) else None
            if value is not None:
                state[axis] = str(value)
    if "EAGLEDraftCudaGraphRunner" in class_names(around.get("self")):
        sampling = getattr(around.get("forward_batch"), "sampling_info", None)
        if sampling is not None:  # no text is the other graph of the size, whose key says nothing
            state["greedy"] = "greedy" if getattr(sampling, "is_all_greedy", False) else ""
    return state


def eager_reason(server_args: Any) -> str | None:
    """Why SGLang captures no graphs, by its user's or its own choice; None if that is not known."""
    if getattr(server_args, "disable_cuda_graph", False):
        return "disable_cuda_graph is set"
    config = getattr(server_args, "cuda_graph_config", None)
    with suppress(Exception):  # where it is resolved apart from the arguments
        config = importlib.import_module(CONTEXT).get_exec().graph.cuda_graph_config
    backends = {phase: getattr(getattr(config, phase, None), "backend", None) for phase in ("decode", "prefill")}
    if set(backends.values()) == {"disabled"}:
        return "cuda_graph_config: the backends of decode and prefill are disabled"
    if str(getattr(server_args, "device", "")).startswith("cpu"):
        return "SGLang captures no graphs on device cpu"
    return None


def configuration_of(server_args: Any) -> Any:
    """The arguments as SGLang resolved them: newer versions keep what was given apart from what became of it."""
    resolved = getattr(server_args, "resolved_dict", None)
    return resolved() if callable(resolved) else server_args
