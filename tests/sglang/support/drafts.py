"""The runners of drafts, and UNO's: SGLang's real ``__init__``, buffers, batches and loops, on the newest version.

Not real: the workers that own them, the configuration that SGLang publishes, and, of UNO's two ``__init__``, the one
that it inherits from the decode runner.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from support import gpu
from support.engine import BACKENDS, RUNNERS, Anything, FakeAttention, Never, decode_runner, model_runner
from support.model import WIDTH, Body

SPECULATIVE = "sglang.srt.speculative"
STEPS = 3
"""Of a draft: each is a forward of the model."""


class DraftAttention(FakeAttention):
    """An attention backend of a draft, asked for more."""

    token_to_kv_pool = None
    supports_draft_extend_metadata_staging = False

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def draft_extend_metadata_captured_in_graph(self) -> bool:
        return True


class DraftBody(Body):
    """A model whose output is what the next step of a draft reads."""

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:
        hidden = super().forward(input_ids, positions, forward_batch)
        selected = getattr(forward_batch.spec_info, "select_index", None)
        logits = hidden if selected is None else hidden[selected]
        return SimpleNamespace(next_token_logits=logits, hidden_states=hidden)


def owner_of_draft(index: int = 0, **more: Any) -> Any:
    """The model runner of a draft's layer."""
    values = {
        "model": DraftBody(),
        "attn_backend": DraftAttention(),
        "kv_index_translator": Anything(),
        "_kernel_warmed_up": True,
        "dtype": torch.float32,
        "model_config": SimpleNamespace(
            vocab_size=WIDTH, hidden_size=WIDTH, dtype=torch.float32, hf_config=SimpleNamespace()
        ),
        "graph_shared_output": SimpleNamespace(get_logits_buffer=lambda vocab, rows: torch.zeros(rows, vocab)),
    }
    return model_runner(draft=index, **{**values, **more})


def configured(name: str, sizes: Sequence[int], *, width: int, topk: int = 1) -> ModuleType:
    """The module ``name`` of runners, which reads a configuration of ours."""
    module = importlib.import_module(f"{SPECULATIVE}.{name}")
    backends = importlib.import_module(f"{BACKENDS}.utils")
    runners = sys.modules[f"{RUNNERS}.decode_cuda_graph_runner"]
    graph = SimpleNamespace(
        enable_cudagraph_gc=False,
        debug_cuda_graph=False,
        cuda_graph_config=None,
        disable_cuda_graph_padding=False,
        enable_profile_cuda_graph=False,
    )
    spec = SimpleNamespace(speculative_num_steps=STEPS, speculative_num_draft_tokens=width, speculative_eagle_topk=topk)
    stand_ins = {
        "get_exec": lambda: SimpleNamespace(
            graph=graph,
            mamba=SimpleNamespace(enable_mamba_extra_buffer=False),
            features=SimpleNamespace(enable_memory_saver=False),
        ),
        "get_spec": lambda: spec,
        "get_flags": lambda: SimpleNamespace(capture=SimpleNamespace(enable_torch_compile=False)),
        "get_disagg": lambda: SimpleNamespace(enable_pdmux=False),
        "get_batch_sizes_to_capture": lambda *_, **__: (sorted(sizes), []),
        "resolve_num_tokens_per_req": lambda **_: width,
        "get_draft_input_from_target_hidden_dim": lambda *_: WIDTH,
        "deployment_attn_dp_size": lambda: 1,
        "rotate_input_ids": lambda ids, *_: ids.copy_(torch.roll(ids, 1)),  # a kernel
        **dict.fromkeys(
            ("require_gathered_buffer", "require_mlp_tp_gather", "require_attn_tp_gather", "require_mlp_sync"),
            lambda *_: False,
        ),
    }
    for each in (module, backends, runners):
        for key, value in stand_ins.items():
            if hasattr(each, key):
                setattr(each, key, value)
    gpu.install(module)
    torch.get_device_module = lambda *_: gpu.FakeDevice
    runners.DecodeCudaGraphRunner.model_context = gpu.nothing_around
    return module


def draft_extend(sizes: Sequence[int], *, width: int) -> Any:
    """Make the runner of EAGLE's draft-extend, which captures."""
    module = configured("eagle_draft_extend_cuda_graph_runner", sizes, width=width)
    owner = owner_of_draft()
    worker = SimpleNamespace(
        draft_runner=owner,
        draft_extend_attn_backend=owner.attn_backend,
        speculative_algorithm=Never(),
        seed_dsa_topk_from_draft_extend=False,
    )
    return module.EAGLEDraftExtendCudaGraphRunner(worker)


def multi_layer(sizes: Sequence[int], *, width: int, one_graph: bool) -> Any:
    """Make the runners of a draft with a layer for each step, which capture: a graph for each, or one for all."""
    module = configured("multi_layer_eagle_draft_extend_cuda_graph_runner", sizes, width=width)
    owners = [owner_of_draft(index) for index in range(STEPS)]
    worker = SimpleNamespace(
        device="cpu",
        gpu_id=0,
        speculative_num_steps=STEPS,
        topk=1,
        use_rejection_sampling=False,
        chain_mtp_hidden_states=True,
        draft_extend_num_front_tokens=0,
        draft_extend_attn_backend_list=[owner.attn_backend for owner in owners],
        mtp_model_runner=owners.__getitem__,
    )
    name = "MultiLayerEagleMultiStepDraftExtendCudaGraphRunner"
    with module.get_parallel().override(num_dp_ranks=1):
        return getattr(module, f"OneGraph{name}" if one_graph else name)(worker)


def frozen_kv(sizes: Sequence[int], *, topk: int) -> Any:
    """Make the runner of a recurrent draft, all of whose steps are one graph."""
    module = configured("frozen_kv_mtp_cuda_graph_runner", sizes, width=topk, topk=topk)
    owner = owner_of_draft()

    def draft_forward(batch: Any) -> Any:
        return [owner.model(None, batch.positions, batch) for _ in range(STEPS)]

    worker = SimpleNamespace(
        draft_model_runner=owner,
        draft_attn_backend=owner.attn_backend,
        _recurrent_hidden_size=WIDTH,
        kv_context=SimpleNamespace(target_token_to_kv_pool=None),
        _frozen_kv_target_view=gpu.nothing_around,
        _init_frozen_kv_metadata_capture_cuda_graph=lambda *_: None,
        draft_forward=draft_forward,
    )
    return module.FrozenKVMTPCudaGraphRunner(worker)


class LoraManager:
    """What UNO routes through: ``drafts`` are the batches that its adapter was prepared for."""

    def __init__(self) -> None:
        self.lora_backend = SimpleNamespace(batch_info=None, skip_inactive_dense_lora=False)
        self.drafts: list[int] = []

    def prepare_lora_token_segments(self, lora_ids: list[Any], segment_lens: list[int]) -> None:
        self.drafts.append(len(lora_ids) // 2)
        self.lora_backend.batch_info = SimpleNamespace(use_cuda_graph=False)

    def reset_lora_batch(self) -> None:
        self.lora_backend.batch_info = None


def uno(sizes: Sequence[int], *, owner: Any, width: int, topk: int = 1, tree_draft_width: int | None = None) -> Any:
    """Make a runner of UNO, which captures: linear, a tree's target, or its draft."""
    module = configured("uno_cuda_graph_runner", sizes, width=width, topk=topk)
    decode = module.DecodeCudaGraphRunner

    def init(self: Any, model_runner: Any, *, speculative_num_draft_tokens: int | None = None, **given: Any) -> None:
        """As far as capture reads what the decode runner's own sets."""
        rows = model_runner.decode_num_tokens_per_req(num_draft_tokens=speculative_num_draft_tokens)
        lora = given.get("record_nolora_graph", False)
        decode_runner(sizes, owner=model_runner, runner=self, width=rows, lora=lora)
        self.batch_of = vars(self).pop("capture_prepare")
        self.capture()

    decode.__init__ = init
    decode.capture_prepare = lambda self, size, **given: self.batch_of(size, **given)
    owner.decode_num_tokens_per_req = lambda num_draft_tokens=None: num_draft_tokens or width
    draft = {} if tree_draft_width is None else {"tree_draft_width": tree_draft_width}
    attention = {"tree_draft_attn_backend": owner.attn_backend} if draft else {}
    return module.UnoDecodeCudaGraphRunner(owner, **draft, **attention)


def owner_of_uno() -> Any:
    """The target's model runner, whose adapter is UNO's draft."""
    return model_runner(lora_manager=LoraManager(), uno_lora_id="uno", kv_index_translator=Anything())
