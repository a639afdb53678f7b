"""What stands in for a GPU and for a model, around vLLM's real classes; and a reader of what was recorded.

Real: dispatcher, descriptors, ``GPUModelRunner`` of V1 (``capture_model``, ``profile_cudagraph_memory``,
``_capture_cudagraphs``, ``_warmup_and_capture``) and of V2 (``capture_model``, ``profile_cudagraph_memory``), V2's
``CudaGraphManager``, ``ModelCudaGraphManager`` and ``SpeculatorCudaGraphManager``, ``CUDAGraphWrapper``, the worker's
wrapper, forward context, ``torch.profiler``. Not real: graphs, streams, memory figures, and the model, whose operators
show what it was asked to compute.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shapetrace_capture.adapters.vllm.adapter import Adapter
from shapetrace_capture.process import Process
from shapetrace_contract import names, spool
from shapetrace_contract.settings import CaptureSettings
from vllm.compilation import cuda_graph, monitor
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.config import CompilationConfig, CompilationMode, LoRAConfig, VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, set_forward_context
from vllm.platforms import current_platform
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker import gpu_model_runner, worker_base
from vllm.v1.worker.gpu import cudagraph_utils, model_runner
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar import cudagraph_utils as draft_utils
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils import SpeculatorCudaGraphManager
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

HIDDEN, WIDE, LOW = 16, 32, 4
"""Widths: a product with ``16x32`` is the model's own, one with ``32x4`` is an adapter's."""


class FakeGraph:
    """``torch.cuda.CUDAGraph``."""

    recording = False

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        assert not FakeGraph.recording
        FakeGraph.recording = True

    def capture_end(self) -> None:
        FakeGraph.recording = False


class fake_graph(contextlib.AbstractContextManager):  # noqa: N801 - as torch.cuda.graph
    """``torch.cuda.graph``."""

    def __init__(self, graph: Any, pool: Any = None, stream: Any = None, **_: Any) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


@contextlib.contextmanager
def fake_stream_context(device: Any = None) -> Iterator[None]:
    """``vllm.distributed.parallel_state.graph_capture``."""
    yield


def forget_manager(runner: Any) -> None:
    """``_teardown_profiling_state``."""
    runner.cudagraph_manager = None


def install_gpu(monkeypatch: pytest.MonkeyPatch) -> type[FakeGraph]:
    """Put the stand-ins in place; the graph class, which tells whether one is recorded."""

    class Graph(FakeGraph):
        """Of one test: what it counts ends with it."""

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", fake_graph)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: FakeGraph.recording)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "stand-in")
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.accelerator, name, lambda *_: None)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda *_: (1 << 30, 1 << 31))
    monkeypatch.setattr(type(current_platform), "graph_pool_handle", lambda *_: (0, 1), raising=False)
    for module in (gpu_model_runner, cudagraph_utils):
        monkeypatch.setattr(module, "graph_capture", fake_stream_context)
        monkeypatch.setattr(module, "is_global_first_rank", lambda: False)
    for module in (gpu_model_runner, model_runner):
        monkeypatch.setattr(module, "lock_workspace", lambda: None)
    monkeypatch.setattr(model_runner, "use_workspace_lane", lambda lane: contextlib.nullcontext())
    monkeypatch.setattr(cudagraph_utils, "has_compiled_submodule", lambda model: True)
    for module in (cudagraph_utils, draft_utils):
        monkeypatch.setattr(module, "prepare_inputs_to_capture", prepare_inputs)
    monkeypatch.setattr(cudagraph_utils, "_init_minimal_kv_cache_for_profiling", lambda runner: runner.initialize())
    monkeypatch.setattr(cudagraph_utils, "_teardown_profiling_state", forget_manager)
    monkeypatch.setattr(monitor, "cudagraph_capturing_enabled", True)  # as in a process that has just started
    monkeypatch.setattr(cuda_graph, "weak_ref_tensors", lambda tensors: tensors)
    monkeypatch.setattr(cuda_graph, "current_stream", lambda: None)
    monkeypatch.setattr(cudagraph_utils, "current_stream", lambda: None)
    return Graph


# ---- the model


class Layers(torch.nn.Module):
    """One product of the model's own width, an activation that tells uniform batches, two products per adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(64, HIDDEN)
        self.own = torch.nn.Parameter(torch.randn(HIDDEN, WIDE))
        self.down = torch.nn.Parameter(torch.randn(WIDE, LOW))
        self.up = torch.nn.Parameter(torch.randn(LOW, WIDE))
        self.uniform = False
        self.loras = 0

    def forward(self, input_ids: Any, positions: Any, **_: Any) -> Any:
        hidden = torch.mm(self.embedding(input_ids), self.own)
        hidden = torch.sigmoid(hidden) if self.uniform else torch.tanh(hidden)
        for _number in range(self.loras):
            hidden = hidden + torch.mm(torch.mm(hidden, self.down), self.up)
        return hidden


class Pieces(torch.nn.Module):
    """The same in pieces, each in vLLM's own wrapper, with an operator between them that no graph holds."""

    def __init__(self, config: VllmConfig, layers: Layers, count: int = 3) -> None:
        super().__init__()
        self.layers = layers
        self._pieces = [CUDAGraphWrapper(layers, config, CUDAGraphMode.PIECEWISE) for _ in range(count)]

    def forward(self, input_ids: Any, positions: Any, **_: Any) -> Any:
        for piece in self._pieces:
            hidden = piece(input_ids, positions)
            torch.softmax(hidden, -1)
        return hidden


# ---- V1


def config_of(mode: str = "FULL_AND_PIECEWISE", sizes: tuple[int, ...] = (4, 8), loras: int = 0) -> VllmConfig:
    """vLLM's configuration for a device that captures graphs."""
    config = VllmConfig(compilation_config=CompilationConfig())
    compilation = config.compilation_config
    compilation.mode = CompilationMode.VLLM_COMPILE
    compilation.splitting_ops = list(compilation._attention_ops)
    compilation.cudagraph_mode = CUDAGraphMode[mode]
    compilation.cudagraph_capture_sizes = list(sizes)
    compilation.max_cudagraph_capture_size = max(sizes)
    compilation.cudagraph_num_of_warmups = 2
    compilation.post_init_cudagraph_sizes()
    if loras:
        config.lora_config = LoRAConfig(max_loras=loras, max_lora_rank=8, specialize_active_lora=True)
    return config


class RunnerV1(GPUModelRunner):
    """vLLM's runner with the stand-in model."""

    def __init__(self, config: VllmConfig) -> None:
        self.vllm_config = config
        self.compilation_config = config.compilation_config
        self.parallel_config = config.parallel_config
        self.lora_config = config.lora_config
        self.load_config = SimpleNamespace(use_tqdm_on_load=False)
        self.device = torch.device("cpu")
        self.max_model_len = self.max_num_tokens = 64
        self.supports_mm_inputs = False
        self.encoder_cudagraph_manager = None
        self.layers = Layers()
        pieces = (
            Pieces(config, self.layers) if self.compilation_config.cudagraph_mode.has_piecewise_cudagraphs() else None
        )
        self.model = pieces or self.layers
        if self.compilation_config.cudagraph_mode.has_full_cudagraphs():
            self.model = CUDAGraphWrapper(self.model, config, CUDAGraphMode.FULL)
        self.cudagraph_dispatcher = CudagraphDispatcher(config)
        self.dummy_runs = 0

    def initialize(self) -> None:
        """What ``initialize_kv_cache`` does for graphs."""
        self.cudagraph_dispatcher.initialize_cudagraph_keys(self.compilation_config.cudagraph_mode, 1)

    _init_minimal_kv_cache_for_profiling = initialize

    def _cleanup_profiling_kv_cache(self) -> None:
        """No cache."""

    def maybe_remove_all_loras(self, lora_config: Any) -> None:
        """No adapters are loaded."""

    @torch.inference_mode()
    def _dummy_run(self, num_tokens: int, cudagraph_runtime_mode: Any = None, **asked: Any) -> None:
        """The forward of vLLM's method of the same name, with the key that vLLM's dispatcher finds."""
        self.dummy_runs += 1
        uniform, loras = bool(asked.get("uniform_decode")), int(asked.get("num_active_loras", 0))
        self.layers.uniform, self.layers.loras = uniform, loras
        keys = self.cudagraph_dispatcher.cudagraph_keys.get(cudagraph_runtime_mode, ())
        (key,) = [
            key for key in keys if (key.num_tokens, key.uniform, key.num_active_loras) == (num_tokens, uniform, loras)
        ] or [BatchDescriptor(num_tokens)]
        with set_forward_context(
            None,
            self.vllm_config,
            num_tokens=num_tokens,
            cudagraph_runtime_mode=cudagraph_runtime_mode,
            batch_descriptor=key,
        ):
            ids = torch.zeros(num_tokens, dtype=torch.long)
            self.model(input_ids=ids, positions=ids, intermediate_tensors=None, inputs_embeds=None)


class WorkerV1(Worker):
    """vLLM's worker, which makes the stand-in runner and captures as it does."""

    runner_class: Any = RunnerV1

    def __init__(self, config: VllmConfig, rank: int = 0) -> None:
        self.vllm_config = config
        self.rank = rank
        self.parallel_config = config.parallel_config
        self.device = torch.device("cuda")

    def init_device(self) -> None:
        self.model_runner = self.runner_class(self.vllm_config)

    def compile_or_warm_up_model(self) -> Any:
        self.model_runner.capture_model()


# ---- V2


class RunnerV2(model_runner.GPUModelRunner):
    """vLLM's second runner with the stand-in model: its own ``capture_model``, managers and factories."""

    def __init__(self, config: VllmConfig, loras: int = 0) -> None:
        self.vllm_config = config
        self.compilation_config = config.compilation_config
        self.lora_config = SimpleNamespace(max_loras=loras) if loras else None
        self.lora_manager = Adapters(loras)
        self._cases = [0, *range(1, loras + 1)]
        self.device = torch.device("cpu")
        self.layers = Layers()
        self.model = Pieces(config, self.layers)
        ids = torch.zeros(64, dtype=torch.long)
        self.input_buffers = SimpleNamespace(input_ids=ids, positions=ids, is_padding=torch.zeros(64, dtype=torch.bool))
        self.model_state = SimpleNamespace(
            supports_mm_inputs=False,
            prepare_dummy_inputs=lambda requests, tokens: {},
            capture_inner_cudagraphs=lambda *_: None,
            layers=self.layers,
        )
        self.kv_connector = SimpleNamespace(reset_capture_state=lambda: None)
        self.pcp_manager = self.intermediate_tensors = self.block_tables = self.attn_groups = None
        self.kv_cache_config = self.adaptive_verification = self.speculator = None
        self.use_aux_hidden_state_outputs = False
        self._draft_workspace_lane = 0
        self.cudagraph_manager: Any = None

    def initialize(self) -> None:
        """What ``initialize_kv_cache`` does for graphs."""
        mode = self.compilation_config.cudagraph_mode
        self.cudagraph_manager = cudagraph_utils.ModelCudaGraphManager(
            self.vllm_config, self.device, mode, 1, self._cases
        )

    @contextlib.contextmanager
    def maybe_setup_dummy_loras(self, lora_config: Any) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def maybe_select_dummy_loras(self, lora_config: Any, scheduled: Any, num_active_loras: int = 0) -> Iterator[None]:
        self.layers.loras = num_active_loras
        with super().maybe_select_dummy_loras(lora_config, scheduled, num_active_loras=num_active_loras):
            yield


class Adapters:
    """vLLM's manager of adapters, and its worker's: it keeps what requests are mapped to."""

    def __init__(self, slots: int) -> None:
        self.lora_slots = slots
        self._last_mapping: Any = None
        self._adapter_manager = self

    def set_active_adapters(self, requests: Any, mapping: Any) -> None:
        self._last_mapping = mapping


class Speculator:
    """A draft of two parts, each with a manager of vLLM's own class for speculators."""

    def __init__(self, runner: RunnerV2) -> None:
        config, device = runner.vllm_config, runner.device
        self._runner = runner
        full = CUDAGraphMode.FULL_DECODE_ONLY
        self.prefill_cudagraph_manager = SpeculatorCudaGraphManager(config, device, full, 1)
        self.decode_cudagraph_manager = SpeculatorCudaGraphManager(config, device, full, 1)

    def capture(self) -> None:
        """As vLLM's: one part after the other."""
        for manager, products in ((self.prefill_cudagraph_manager, 1), (self.decode_cudagraph_manager, 2)):

            def forward(requests: int, tokens: int, *_: Any, products: int = products, **__: Any) -> None:
                for _number in range(products):
                    self._runner.layers(torch.zeros(tokens, dtype=torch.long), None)

            manager.capture(forward, self._runner.model_state, self._runner.input_buffers, None, None, None)


def prepare_inputs(requests: int, tokens: int, state: Any, *_: Any, **asked: Any) -> Any:
    """``prepare_inputs_to_capture``: the model is told what attention metadata would tell it."""
    state.layers.uniform = asked["max_query_len"] is not None
    return cudagraph_utils.AttentionState(None, {})


class WorkerV2(WorkerV1):
    """vLLM's worker with the second runner."""

    def __init__(self, config: VllmConfig, rank: int = 0, loras: int = 0) -> None:
        super().__init__(config, rank)
        self.loras = loras

    def init_device(self) -> None:
        self.model_runner = RunnerV2(self.vllm_config, self.loras)


def wrapper_of(worker: Any) -> Any:
    """vLLM's wrapper of a worker, as an executor has it."""
    wrapper = worker_base.WorkerWrapperBase()
    wrapper.vllm_config = worker.vllm_config
    wrapper.worker = worker
    return wrapper


# ---- ours


def started(worker: Any) -> Any:
    """A worker as the executor has it after ``init_device``."""
    wrapper_of(worker).init_device()
    return worker


def brought_up(worker: Any) -> None:
    """As an executor goes on: measure memory, make the cache, capture."""
    worker.model_runner.profile_cudagraph_memory()
    worker.model_runner.initialize()
    worker.compile_or_warm_up_model()


class Hooked:
    """Our adapter, registered in this process."""

    HOOKED = (
        (worker_base.WorkerWrapperBase, "init_device"),
        (GPUModelRunner, "capture_model"),
        (GPUModelRunner, "profile_cudagraph_memory"),
        (GPUModelRunner, "_warmup_and_capture"),
        (model_runner.GPUModelRunner, "capture_model"),
        (model_runner.GPUModelRunner, "profile_cudagraph_memory"),
        (cudagraph_utils.CudaGraphManager, "capture"),
    )

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        for owner, name in self.HOOKED:  # so that they are restored
            monkeypatch.setattr(owner, name, vars(owner)[name])
        monkeypatch.setattr(WorkerV1, "compile_or_warm_up_model", vars(WorkerV1)["compile_or_warm_up_model"])
        self.process: Any = None

    def register(self, **settings: Any) -> None:
        """Without stacks, unless a test asks for them: they take seconds."""
        settings = {"stacks": "None", **settings}
        environment = {names.ENV_SPOOL: str(self.folder), CaptureSettings.ENV: CaptureSettings(**settings).to_env()}
        self.process = Process(self.folder, environment, "vllm")
        Adapter(self.process).install()

    def lines(self, name: str, rank: int = 0) -> list[dict[str, Any]]:
        return list(spool.read_lines(spool.rank_folder(self.folder, rank) / name))

    def json(self, name: str, rank: int = 0) -> dict[str, Any]:
        value = spool.read_json(spool.rank_folder(self.folder, rank) / name)
        assert value is not None
        return value

    def captures(self, rank: int = 0) -> list[dict[str, Any]]:
        return self.lines(spool.CAPTURES, rank)

    def files(self, rank: int = 0) -> list[Path]:
        return sorted(spool.rank_folder(self.folder, rank).glob("[0-9]*.json"))

    def planned(self, rank: int = 0) -> list[str]:
        return [tag for line in self.lines(spool.PLAN, rank) for tag in line["shapes"]]

    def contents(self, rank: int = 0) -> dict[str, Contents]:
        """Tag -> what its file shows."""
        folder = spool.rank_folder(self.folder, rank)
        return {line["tag"]: Contents(folder / line["file"]) for line in self.captures(rank)}


class Contents:
    """What a trace file shows, read without our own code."""

    def __init__(self, path: Path) -> None:
        trace = json.loads(path.read_text())
        self.tag = trace["shapetrace"]["tag"]
        events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        self.spans = [event["name"] for event in events if event.get("cat") == "user_annotation"]
        operators = [event for event in events if event.get("cat") == "cpu_op"]
        self.frames = [event["name"] for event in events if event.get("cat") == "python_function"]
        self.names = Counter(event["name"] for event in operators)
        products = [event["args"]["Input Dims"] for event in operators if event["name"] == "aten::mm"]
        self.own = [left[0] for left, right in (dims[:2] for dims in products) if right == [HIDDEN, WIDE]]
        """Rows of each product of the model's own."""
        self.adapters = sum(1 for dims in products if dims[1] == [WIDE, LOW])

    @property
    def uniform(self) -> bool:
        return self.names["aten::sigmoid"] > 0 and self.names["aten::tanh"] == 0


def ours(frames: list[str]) -> set[tuple[str, str]]:
    """(file, function) of the frames of our package; a frame is ``path(line): function``."""
    parts = [frame.partition("): ") for frame in frames if "shapetrace_capture/" in frame]
    return {(Path(place.rpartition("(")[0]).name, function) for place, _, function in parts}
