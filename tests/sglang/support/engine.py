"""SGLang's real runners and backends on a CPU, with a body of ours where the model would be.

Real: ``capture``, the loops over streams, sizes, LoRA and attention, ``capture_one_shape``, keys, backends, capture
mode, topology. Not real: what is in :mod:`gpu`, the attributes that a runner's ``__init__`` reads from a whole engine,
the dummy batch, the attention backend.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from support import gpu
from support.model import Body

RUNNERS = "sglang.srt.model_executor.runner"
BACKENDS = "sglang.srt.model_executor.runner_backend"
MODULES = (
    f"{RUNNERS}.decode_cuda_graph_runner",
    f"{RUNNERS}.prefill_cuda_graph_runner",
    f"{BACKENDS}.full_cuda_graph_backend",
    f"{BACKENDS}.breakable_cuda_graph_backend",
    f"{BACKENDS}.tc_piecewise_cuda_graph_backend",
    "sglang.srt.speculative.eagle_draft_cuda_graph_runner",
    "sglang.srt.managers.scheduler",
)


def load() -> None:
    """Import what an engine's scheduler process imports, and put the stand-ins in place."""
    gpu.install(*[importlib.import_module(name) for name in MODULES])
    with contextlib.suppress(ImportError):  # the first forward of newer versions would, in each scenario's process
        importlib.import_module("sglang.srt.layers.attention.deepseek_v4_backend")


class Anything:
    """An object of the engine whose methods do nothing here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Never:
    """A question that is always answered by no: ``spec_algorithm.is_eagle()``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: False


class FakeAttention:
    """An attention backend. Its hook after a warm-up runs an operator that belongs into no trace."""

    def __init__(self) -> None:
        self.hooks = 0

    def on_after_cuda_graph_warmup(self) -> None:
        self.hooks += 1
        torch.frac(torch.ones(3))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class FakeModelRunner(SimpleNamespace):
    """The attributes of a model runner that capture reads."""

    __hash__ = object.__hash__


def server_args(**more: Any) -> Any:
    """The arguments that capture reads."""
    values = {
        "enable_cudagraph_gc": False,
        "debug_cuda_graph": False,
        "enable_torch_compile": False,
        "enable_dp_attention": False,
        "disable_cuda_graph": False,
        "cuda_graph_config": None,
        "device": "cuda",
        "speculative_adaptive": False,
    }
    return SimpleNamespace(**{**values, **more})


def model_runner(*, draft: int | None = None, args: Any = None, **more: Any) -> FakeModelRunner:
    """The target's, or that of a draft."""
    values = {
        "model": Body(),
        "server_args": args or server_args(),
        "device": "cpu",
        "gpu_id": 0,
        "tp_group": gpu.FakeGroup(),
        "spec_algorithm": Never(),
        "is_draft_worker": draft is not None,
        "draft_model_idx": draft,
        "attn_backend": FakeAttention(),
        "capture_head_hooks": [],
        "capture_tail_hooks": [],
        "canary_manager": None,
        "lora_manager": None,
    }
    return FakeModelRunner(**{**values, **more})


class DummyBatch:
    """A forward batch of ``tokens`` rows; what else a version asks of it is None."""

    def __init__(self, tokens: int) -> None:
        self.input_ids = torch.zeros(tokens, dtype=torch.int64)
        self.positions = torch.zeros(tokens, dtype=torch.int64)
        self.dp_padding_mode = Never()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def _fill(runner: Any, owner: Any, **more: Any) -> Any:
    values = {
        "model_runner": owner,
        "device": "cpu",
        "device_module": gpu.FakeDevice,
        "pp_size": 1,
        "enable_torch_compile": False,
        "enable_profile_cuda_graph": False,
        "warmup": lambda: None,
        "model_context": gpu.nothing_around,
        "attn_backend": owner.attn_backend,
        **more,
    }
    for name, value in values.items():
        setattr(runner, name, value)
    return runner


def decode_runner(
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8),
    *,
    owner: Any = None,
    cls: Any = None,
    runner: Any = None,
    lora: bool = False,
    attention: bool = False,
    streams: int = 0,
    width: int = 1,
    backend: str = "full",
    **more: Any,
) -> Any:
    """A real ``DecodeCudaGraphRunner`` (or ``cls``, one of its subclasses; or ``runner``, being made), ready for
    ``capture()``."""
    module = sys.modules[f"{RUNNERS}.decode_cuda_graph_runner"]
    owner = owner or model_runner()
    runner = _fill(
        runner or object.__new__(cls or module.DecodeCudaGraphRunner),
        owner,
        capture_bs=sorted(sizes),
        compile_bs=[],
        captured_req_width=width,
        num_tokens_per_bs=width,
        record_nolora_graph=lora,
        enable_pdmux=bool(streams),
        stream_groups=[(None, gpu.FakeStream(index)) for index in range(streams)],
        ragged_verify_mode=False,
        is_dllm=False,
        dllm_uses_input_embeds=False,
        in_graph_metadata_prep_done=None,
        deepep_adapter=Anything(),
        tbo_plugin=Anything(),
        seq_len_fill_value=1,
        buffers=SimpleNamespace(seq_lens=torch.ones(8), seq_lens_cpu=torch.ones(8), reset_index_buffers=lambda: None),
        attention_graph_variants=SimpleNamespace(capture_labels=("dense", "sparse")) if attention else None,
        dsa_dual_graph=attention,
        speculative_num_steps=None,
        **more,
    )
    runner._record_in_graph_metadata_prep_done = lambda: None
    runner.capture_prepare = lambda size, **_: (DummyBatch(size * width), owner.attn_backend, None)
    runner.backend = make_backend(backend, runner)
    if streams:
        owner.model._stream = lambda: runner.stream.index
    return runner


def eagle_draft_runner(
    sizes: Sequence[int],
    *,
    owner: Any = None,
    topk: int = 2,
    steps: int = 1,
    rejection_sampling: bool = False,
    **more: Any,
) -> Any:
    """A real ``EAGLEDraftCudaGraphRunner``; where this version does so it captures a second, greedy graph by size."""
    module = sys.modules["sglang.srt.speculative.eagle_draft_cuda_graph_runner"]
    owner = owner or model_runner(draft=0, model_config=SimpleNamespace(vocab_size=32), kv_index_translator=Anything())
    most, tokens = max(sizes), max(sizes) * topk
    buffers = DummyBatch(tokens * steps)  # what it does not hold is None
    for name in ("req_pool_indices", "seq_lens", "seq_lens_cpu", "extend_seq_lens"):
        setattr(buffers, name, torch.ones(most, dtype=torch.int64))
    buffers.positions = torch.zeros(tokens, dtype=torch.int64)
    buffers.out_cache_loc = torch.zeros(tokens * steps, dtype=torch.int64)
    buffers.mrope_positions = torch.zeros(3, tokens, dtype=torch.int64)
    buffers.topk_p = torch.zeros(most, topk)
    buffers.topk_index = torch.zeros(most, topk, dtype=torch.int64)
    buffers.reset_index_buffers = lambda: None
    runner = decode_runner(
        sizes,
        owner=owner,
        cls=module.EAGLEDraftCudaGraphRunner,
        width=topk,
        eagle_worker=SimpleNamespace(
            speculative_num_steps=1, draft_forward=lambda batch: owner.model(None, batch.positions, batch)
        ),
        draft_attn_backend=owner.attn_backend,
        topk=topk,
        extend_seq_lens_cpu=[1] * most,
        require_mlp_tp_gather=False,
        require_attn_tp_gather=False,
        temperatures=torch.ones(most, 1),
        top_ks=torch.ones(most, dtype=torch.int32),
        **more,
    )
    runner.speculative_num_steps = steps
    runner.buffers = buffers
    spec = SimpleNamespace(speculative_use_rejection_sampling=rejection_sampling)
    for each in (module, importlib.import_module("sglang.srt.runtime_context")):
        each.get_spec = lambda: spec
    return runner


def prefill_runner(tokens: Sequence[int], *, owner: Any = None, chunks: Sequence[int] = (), backend: str) -> Any:
    """A real ``PrefillCudaGraphRunner``. Its forward is our body's, where SGLang would compile or split a model."""
    module = sys.modules[f"{RUNNERS}.prefill_cuda_graph_runner"]
    owner = owner or model_runner()
    chunks = chunks if hasattr(module, "_chunked_prefix_variant") else ()  # from 0.5.18 on
    runner = _fill(
        object.__new__(module.PrefillCudaGraphRunner),
        owner,
        capture_num_tokens=sorted(tokens),
        _capture_chunked_prefix=bool(chunks),
        _prefix_capture_variants=tuple(chunks),
        enable_cp_v2_bcg_capture=False,
        enable_cp_bcg_capture=False,
        _is_full_backend=False,
        _capture_lora=False,
        max_context_size=None,
    )
    runner.capture_prepare = lambda size: (DummyBatch(size), owner.attn_backend)
    runner._init_forward_metadata_for_capture = lambda *_: None
    runner._prepare_chunked_prefix_capture = lambda batch, _, chunks: setattr(batch, "num_prefix_chunks", chunks)
    runner._run_forward = lambda batch, tokens: owner.model(batch.input_ids, batch.positions, batch)
    owner.req_to_token_pool = None
    runner.backend = make_backend(backend, runner)
    return runner


def make_backend(kind: str, runner: Any) -> Any:
    """A real backend of ``runner``: ``full``, ``breakable`` or ``piecewise``."""
    if kind == "full":
        return sys.modules[f"{BACKENDS}.full_cuda_graph_backend"].FullCudaGraphBackend(runner)
    if kind == "breakable":
        runner.model_runner.model._cut = gpu.FakeSegments.cut
        backend = sys.modules[f"{BACKENDS}.breakable_cuda_graph_backend"].BreakableCudaGraphBackend(runner)
        backend.begin_cuda_graph_capture = backend.end_cuda_graph_capture = lambda: None
        return backend
    cls = sys.modules[f"{BACKENDS}.tc_piecewise_cuda_graph_backend"].TcPiecewiseCudaGraphBackend
    backend = object.__new__(cls)  # its __init__ compiles the model
    backend._device_module, backend._tp_group, backend._pool = gpu.FakeDevice, gpu.FakeGroup(), (0, 1)
    _in_pieces(runner.model_runner.model)
    return backend


def _in_pieces(body: Body, pieces: int = 3) -> None:
    """From its second call at a number of rows on, a compiled forward captures a graph for each of its pieces."""
    seen: dict[int, int] = {}
    original = body.forward

    def forward(input_ids: Any, positions: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        seen[len(positions)] = seen.get(len(positions), 0) + 1
        if seen[len(positions)] % 2:
            return original(input_ids, positions, batch, *args, **kwargs)
        for _ in range(pieces - 1):
            with gpu.fake_graph(torch.cuda.CUDAGraph()):
                torch.neg(torch.ones(2))
        with gpu.fake_graph(torch.cuda.CUDAGraph()):
            return original(input_ids, positions, batch, *args, **kwargs)

    body.forward = forward


@contextlib.contextmanager
def topology(*, tp: int = 0, tp_size: int = 1, pp: int = 0, pp_size: int = 1, dp: int | None = None) -> Iterator[Any]:
    """SGLang's published topology, as this version spells it. Yields what a model runner is given of it."""
    context = importlib.import_module("sglang.srt.runtime_context")
    parallel = context.get_parallel()
    values = {
        "tp_rank": tp,
        "tp_size": tp_size,
        "pp_rank": pp,
        "pp_size": pp_size,
        "attn_dp_size": 1,
        "attn_dp_rank": 0,
        "attn_tp_rank": tp,
        "attn_tp_size": tp_size,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "moe_ep_rank": 0,
        "moe_ep_size": 1,
        "tp_group": gpu.FakeGroup(),
        "dp_rank": dp,
    }
    fields = context._parallel_fields() if hasattr(context, "_parallel_fields") else context._PARALLEL_FIELDS
    with parallel.override(**{name: value for name, value in values.items() if name in fields}):
        graph = SimpleNamespace(enable_cudagraph_gc=False, debug_cuda_graph=False, cuda_graph_config=None)
        execution = SimpleNamespace(graph=graph)
        for name in MODULES:
            module = sys.modules[name]
            if hasattr(module, "get_exec"):
                module.get_exec = lambda: execution
        yield SimpleNamespace(tp_rank=tp, tp_size=tp_size, pp_rank=pp, pp_size=pp_size, dp_rank=dp, moe_ep_rank=0)
