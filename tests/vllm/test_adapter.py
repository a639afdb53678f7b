"""Hooks on vLLM's real classes: ranks, what a version lacks, and that nothing of ours reaches the engine."""

from __future__ import annotations

import os
import sys
from copy import copy
from typing import Any

import pytest
import torch
import vllm
from shapetrace_capture import plugins
from shapetrace_capture import process as process_module
from shapetrace_capture.adapters.vllm import adapter as adapter_module
from shapetrace_capture.session import Session
from shapetrace_contract import names, spool
from stand_ins import Hooked, WorkerV1, WorkerV2, config_of, started
from vllm.v1.worker import gpu_model_runner, worker_base
from vllm.v1.worker.gpu import cudagraph_utils
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

INIT = "vllm.v1.worker.worker_base.WorkerWrapperBase.init_device"
V1 = "vllm.v1.worker.gpu_model_runner.GPUModelRunner"
V2 = "vllm.v1.worker.gpu.model_runner.GPUModelRunner"
MANAGER = "vllm.v1.worker.gpu.cudagraph_utils.CudaGraphManager"
COUNTER = "torch.cuda.CUDAGraph.capture_begin"


def full(worker: Any) -> Any:
    """Started, with keys to capture."""
    started(worker).model_runner.initialize()
    return worker


def test_the_record_names_engine_version_and_the_hooks_of_the_runner_in_use(hooked: Hooked) -> None:
    hooked.register()
    started(WorkerV1(config_of()))
    record = hooked.json("rank.json")
    assert (record["engine"]["name"], record["engine"]["version"]) == ("vllm", vllm.__version__)
    worker = "stand_ins.WorkerV1.compile_or_warm_up_model"
    targets = [
        INIT,
        worker,
        f"{V1}.capture_model",
        f"{V1}.profile_cudagraph_memory",
        f"{V1}._warmup_and_capture",
        COUNTER,
    ]
    assert record["hooks"] == dict.fromkeys(targets, "applied")
    assert set(targets) - set(record["required"]) == {f"{V1}.profile_cudagraph_memory", COUNTER}


def test_the_second_runner_has_hooks_of_its_own(hooked: Hooked) -> None:
    hooked.register()
    started(WorkerV2(config_of()))
    record = hooked.json("rank.json")
    assert {f"{V2}.capture_model", f"{V2}.profile_cudagraph_memory", f"{MANAGER}.capture"} <= set(record["hooks"])
    assert set(record["hooks"].values()) == {"applied"}
    assert f"{MANAGER}.capture" in record["required"]


@pytest.mark.parametrize(
    ("owner", "method", "target"),
    [
        (GPUModelRunner, "_warmup_and_capture", "stand_ins.RunnerV1._warmup_and_capture"),
        (GPUModelRunner, "capture_model", "stand_ins.RunnerV1.capture_model"),
    ],
)
def test_a_renamed_method_is_missing_by_name_and_required(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, target: str
) -> None:
    monkeypatch.delattr(owner, method)
    hooked.register()
    started(WorkerV1(config_of()))
    record = hooked.json("rank.json")
    assert record["hooks"][target] == "missing"
    assert target in record["required"]
    assert record["engine"]["version"] == vllm.__version__


def test_a_manager_that_was_renamed_is_missing(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cudagraph_utils.CudaGraphManager, "capture")
    hooked.register()
    started(WorkerV2(config_of()))
    assert hooked.json("rank.json")["hooks"][f"{MANAGER}.capture"] == "missing"


def test_a_method_that_takes_no_profiler_is_told_with_the_version_that_does(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _warmup_and_capture(self: Any, desc: Any, cudagraph_runtime_mode: Any) -> None:
        """As before 0.26."""

    monkeypatch.setattr(GPUModelRunner, "_warmup_and_capture", _warmup_and_capture)
    hooked.register()
    started(WorkerV1(config_of()))
    state = hooked.json("rank.json")["hooks"][f"{V1}._warmup_and_capture"]
    assert state == "error: it takes no profiler; vLLM 0.26 or newer is needed"


def test_without_the_workers_wrapper_the_process_says_so(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(worker_base.WorkerWrapperBase, "init_device")
    monkeypatch.setenv(names.ENV_SPOOL, str(hooked.folder))
    plugins.register_vllm()
    record = spool.read_json(spool.process_file(hooked.folder, os.getpid()))
    assert record is not None
    assert record["hooks"] == {INIT: "missing"}
    assert record["required"] == [INIT]
    assert record["engine"] == {"name": "vllm", "version": vllm.__version__, "configuration": {}}
    assert record["rank"] is None


def test_two_dense_replicas_with_tensor_ranks_are_four_ranks_in_one_spool(hooked: Hooked) -> None:
    hooked.register()
    for index in range(2):
        for rank in range(2):
            config = config_of(mode="FULL", sizes=(8,))
            config.parallel_config = copy(config.parallel_config)
            config.parallel_config.tensor_parallel_size = 2
            config.parallel_config.data_parallel_index = index  # data_parallel_rank stays 0, as vLLM leaves it
            worker = full(WorkerV1(config, rank))
            config.parallel_config.tensor_parallel_size = 1  # the process groups of this test have one rank
            worker.compile_or_warm_up_model()
    records = [hooked.json("rank.json", rank) for rank in range(4)]
    assert [(found["rank"], found["tp"], found["pp"], found["dp"]) for found in records] == [
        (0, 0, 0, 0),
        (1, 1, 0, 0),
        (2, 0, 0, 1),
        (3, 1, 0, 1),
    ]
    assert [len(hooked.files(rank)) for rank in range(4)] == [1] * 4


def test_a_rank_that_is_not_asked_for_captures_as_without_us(hooked: Hooked) -> None:
    hooked.register(ranks=[3])
    worker = full(WorkerV1(config_of(mode="FULL", sizes=(8,))))
    worker.compile_or_warm_up_model()
    assert hooked.files() == hooked.captures() == hooked.lines("plan.jsonl") == []
    done = hooked.json("done.json")
    assert (done["ok"], done["eager"]) == (True, None)
    assert "not asked" in done["reason"]


class OurFaultError(RuntimeError):
    """Of ours."""


def failing(*_: Any, **__: Any) -> Any:
    raise OurFaultError("on purpose")


@pytest.mark.parametrize("worker_class", [WorkerV1, WorkerV2])
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Session, "plan"),
        (Session, "capture"),
        (Session, "done"),
        (Session, "start"),
        (Session, "of_process"),
        (adapter_module.Adapter, "_finish"),
        (adapter_module.Adapter, "_plan"),
        (adapter_module.Adapter, "_name"),
        (adapter_module.Adapter, "_targets"),
        (adapter_module.Keys, "shape"),
        (adapter_module, "rank_of"),
        (adapter_module, "measuring"),
        (process_module, "told_configuration"),
    ],
)
def test_whatever_fails_in_our_hooks_vllm_captures_all_the_same(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch, worker_class: Any, owner: Any, method: str
) -> None:
    hooked.register()
    monkeypatch.setattr(owner, method, failing)
    worker = started(worker_class(config_of()))
    worker.model_runner.profile_cudagraph_memory()
    worker.model_runner.initialize()
    worker.compile_or_warm_up_model()
    if worker_class is WorkerV2:
        assert len(worker.model_runner.cudagraph_manager.graphs) == 2
    else:
        entries = worker.model_runner.model.concrete_cudagraph_entries
        assert len([entry for entry in entries.values() if entry.cudagraph is not None]) == 2
    assert any("OurFaultError: on purpose" in fault for fault in hooked.process.faults)
    record = spool.read_json(spool.process_file(hooked.folder, os.getpid()))
    done = spool.read_json(spool.rank_folder(hooked.folder, 0) / spool.DONE)
    assert "OurFaultError: on purpose" in str((record or {}).get("errors")) + str((done or {}).get("reason"))
    assert done is None or not done["ok"]


def test_an_adapter_that_cannot_be_registered_reaches_the_record_and_not_vllm(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_SPOOL, str(hooked.folder))
    monkeypatch.setattr(sys.modules["shapetrace_capture.adapters.vllm"], "register", failing)
    plugins.register_vllm()
    record = spool.read_json(spool.process_file(hooked.folder, os.getpid()))
    assert record is not None
    assert record["errors"] == ["the plugin for vllm: OurFaultError: on purpose"]


def test_a_capture_site_that_no_hook_covers_is_named(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked.register()
    worker = full(WorkerV1(config_of(mode="FULL", sizes=(8,))))

    class Encoder:
        """Of pictures: captures by itself, after the model."""

        def capture(self, graph_pool: Any) -> None:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            graph.capture_end()

    monkeypatch.setattr(gpu_model_runner.current_platform, "graph_pool_handle", lambda: (0, 1), raising=False)
    worker.model_runner.encoder_cudagraph_manager = Encoder()
    worker.model_runner._maybe_init_encoder_cudagraph_manager = lambda: None
    worker.compile_or_warm_up_model()
    begun = hooked.json("done.json")["captureBegin"]
    assert (begun["all"], begun["tagged"]) == (2, 1)
    (caller,) = begun["untagged"]
    assert caller.startswith("tests/vllm/test_adapter.py:")
    assert caller.endswith(" capture")


def test_a_plugin_that_is_loaded_twice_hooks_once(hooked: Hooked) -> None:
    hooked.register()
    hooked.register()
    full(WorkerV1(config_of())).compile_or_warm_up_model()
    assert hooked.captures()
    assert [(line["error"], line["dirty"]) for line in hooked.captures()] == [(None, [])] * len(hooked.captures())
    done = hooked.json("done.json")
    assert (done["ok"], done["captureBegin"]["untagged"]) == (True, [])
    assert done["captureBegin"]["all"] == done["captureBegin"]["tagged"] > 0
