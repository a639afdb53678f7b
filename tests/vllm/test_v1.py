"""Model runner V1: vLLM's own loop, one file for each of its keys."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import torch
from shapetrace_capture import window
from shapetrace_capture.adapters.vllm import windows
from shapetrace_contract.tag import Shape
from stand_ins import Hooked, WorkerV1, brought_up, config_of, ours, started
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.config.compilation import CUDAGraphMode
from vllm.forward_context import BatchDescriptor

RUNNER = "RunnerV1"


def test_the_pass_that_measures_memory_is_left_alone_and_each_key_gives_one_file(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(loras=2)))
    brought_up(worker)

    descriptors = [
        (mode, desc) for mode, group in worker.model_runner.cudagraph_dispatcher.get_capture_descs() for desc in group
    ]
    assert len(descriptors) == 2 * 4 * 2  # sizes x (0, 1, 2 adapters, and one more than there can be) x modes
    captures = hooked.captures()
    assert len(captures) == len(hooked.files()) == len(descriptors)
    assert [line["tag"] for line in captures] == hooked.planned()
    assert len(set(hooked.planned())) == len(descriptors)
    assert {line["epoch"] for line in captures} == {1}
    assert [line["error"] for line in captures] == [None] * len(captures)
    assert [line["dirty"] for line in captures] == [[]] * len(captures)
    done = hooked.json("done.json")
    assert (done["ok"], done["reason"], done["eager"]) == (True, "Done", None)
    begun = done["captureBegin"]
    assert begun["untagged"] == []
    assert begun["all"] == begun["tagged"] == 8 * 3 + 8  # three pieces for a piecewise key
    assert begun["measured"] == 2 * 3 + 2  # two keys of each mode, as vLLM samples them


def test_each_file_holds_what_its_tag_says(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV1(config_of(loras=2))))
    contents = hooked.contents()
    for tag, found in contents.items():
        shape = Shape.from_tag(tag)
        assert found.tag == tag
        pieces = 3  # of the stand-in; a whole graph holds all of them
        assert found.own == [shape.size] * pieces, tag
        assert found.adapters == pieces * int(shape.variants.get("activeloras", 0)), tag
        assert found.uniform == (shape.variants.get("uniform") == "true"), tag
    assert len(contents) == 16


def test_a_warm_up_leaves_nothing_in_the_window(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(mode="FULL", sizes=(8,))))
    brought_up(worker)
    assert worker.model_runner.dummy_runs > len(hooked.captures()) == 1
    (found,) = hooked.contents().values()
    assert found.own == [8]


FIVE = [
    BatchDescriptor(8, 8, uniform=True),
    BatchDescriptor(8, 8),
    BatchDescriptor(8, 8, has_lora=True, num_active_loras=1),
    BatchDescriptor(8, 8, has_lora=True, num_active_loras=2),
    BatchDescriptor(8, 8, uniform=True, has_lora=True, num_active_loras=2),
]
"""Keys of one size that vLLM names alike."""


def five(worker: WorkerV1, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = worker.model_runner.cudagraph_dispatcher
    dispatcher.cudagraph_keys[CUDAGraphMode.FULL].update(FIVE)
    groups = [(CUDAGraphMode.FULL, [desc]) for desc in FIVE]
    monkeypatch.setattr(dispatcher, "get_capture_descs", lambda: groups)


def test_five_keys_that_vllm_names_alike_are_five_right_files(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(mode="FULL", sizes=(8,))))
    five(worker, monkeypatch)
    worker.model_runner.capture_model()
    contents = hooked.contents()
    assert sorted(contents) == [
        f"{RUNNER}__tok_8__activeloras-1__lora-true__mode-FULL",
        f"{RUNNER}__tok_8__activeloras-2__lora-true__mode-FULL",
        f"{RUNNER}__tok_8__activeloras-2__lora-true__mode-FULL__uniform-true",
        f"{RUNNER}__tok_8__mode-FULL",
        f"{RUNNER}__tok_8__mode-FULL__uniform-true",
    ]
    for tag, found in contents.items():
        variants = Shape.from_tag(tag).variants
        assert (found.adapters, found.uniform) == (int(variants.get("activeloras", 0)), "uniform" in variants), tag
        assert [span for span in found.spans if span.startswith("capture_")] == ["capture_8_FULL"]  # vLLM's own, once
        assert tag in found.spans


def test_vllm_alone_names_those_five_alike(gpu: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the product is for: the same loop with vLLM's own capture profiler, nothing of ours hooked."""
    worker = WorkerV1(config_of(mode="FULL", sizes=(8,)))
    worker.init_device()
    five(worker, monkeypatch)
    profiler = worker.vllm_config.profiler_config
    profiler.profiler, profiler.torch_profiler_dir, profiler.capture_torch_profiler = "torch", str(tmp_path), True
    worker.model_runner.capture_model()
    names = [path.name for path in tmp_path.rglob("*.json.gz")]
    assert 1 <= len(names) <= 5  # a file's name is the nanosecond it was written at: two may meet
    assert {name.split(".")[0] for name in names} == {"graph_capture_rank_0"}
    spans = set()
    for path in tmp_path.rglob("*.json.gz"):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        spans |= {
            event["name"] for event in events if event.get("cat") == "user_annotation" and "capture_" in event["name"]
        }
    assert spans == {"capture_8_FULL"}


def test_vllms_own_capture_profiler_refuses_ours_and_is_named(hooked: Hooked, tmp_path: Any) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(mode="FULL", sizes=(8,))))
    worker.model_runner.initialize()
    profiler = worker.vllm_config.profiler_config
    profiler.profiler, profiler.torch_profiler_dir, profiler.capture_torch_profiler = "torch", str(tmp_path), True
    worker.model_runner.capture_model()
    (line,) = hooked.captures()
    assert line["file"] is None
    assert line["error"].startswith("profilerBusy: ")
    assert "--profiler-config.capture_torch_profiler" in line["error"]
    assert len(list(tmp_path.rglob("*.pt.trace.json.gz"))) == 1  # vLLM's own is not disturbed


def test_witnesses_tell_rows_stream_graph_key_and_the_engines_state(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV1(config_of(sizes=(8,), loras=1))))
    by_tag = {line["tag"]: line["witnesses"] for line in hooked.captures()}
    whole = by_tag[f"{RUNNER}__tok_8__activeloras-1__lora-true__mode-FULL__uniform-true"]
    assert (whole["rows"], whole["forwards"], whole["streamCapture"], whole["graphs"]) == (8, 1, True, 1)
    assert whole["keyKnown"] is True
    assert whole["engine"] == {"mode": "FULL", "reqs": "8", "uniform": "true", "lora": "true", "activeloras": "1"}
    fields = {"num_tokens": 8, "num_reqs": 8, "uniform": True, "has_lora": True, "num_active_loras": 1}
    assert whole["key"] == {"cudagraph_runtime_mode": "FULL", **fields}
    pieces = by_tag[f"{RUNNER}__tok_8__mode-PIECEWISE"]
    assert (pieces["rows"], pieces["forwards"], pieces["streamCapture"], pieces["graphs"]) == (8, 1, False, 3)
    assert pieces["keyKnown"] is True
    assert pieces["engine"] == {"mode": "PIECEWISE", "reqs": "", "uniform": "", "lora": "", "activeloras": ""}
    fields = {"num_tokens": 8, "num_reqs": None, "uniform": False, "has_lora": False, "num_active_loras": 0}
    assert pieces["key"] == {"cudagraph_runtime_mode": "PIECEWISE", **fields}


def test_only_pieces_without_a_whole_graph(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV1(config_of(mode="PIECEWISE", sizes=(4,)))))
    (line,) = hooked.captures()
    assert line["tag"] == f"{RUNNER}__tok_4__mode-PIECEWISE"
    assert (line["witnesses"]["rows"], line["witnesses"]["graphs"], line["dirty"]) == (4, 3, [])
    (found,) = hooked.contents().values()
    assert found.own == [4, 4, 4]
    assert found.names["aten::softmax"] == 3  # what runs between the pieces is in the trace too


def test_a_recapture_is_the_next_epoch(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(mode="FULL", sizes=(4, 8))))
    brought_up(worker)
    CUDAGraphWrapper.clear_all_graphs()
    worker.model_runner.capture_model()
    tags = [line["tag"] for line in hooked.captures()]
    first = [f"{RUNNER}__tok_{size}__mode-FULL" for size in (8, 4)]
    assert tags == first + [f"{tag}__epoch-2" for tag in first] == hooked.planned()
    assert hooked.json("done.json")["records"] == 4


def test_declared_sizes_that_vllm_does_not_plan_are_told(hooked: Hooked) -> None:
    hooked.register(targets=[{"runner": "decode", "unit": "tok", "sizes": [8, 512]}])
    brought_up(started(WorkerV1(config_of(mode="FULL", sizes=(4, 8)))))
    (line,) = hooked.lines("plan.jsonl")
    assert line["notPlanned"] == [
        {
            "shape": {"runner": RUNNER, "unit": "tok", "size": 512, "variants": {}},
            "reason": f"{RUNNER} plans the sizes 4, 8 (tok)",
        }
    ]


def test_an_engine_that_fails_in_a_capture_fails_as_without_us(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(mode="FULL", sizes=(8,))))
    worker.model_runner.initialize()

    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(worker.model_runner.layers, "forward", fail)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        worker.model_runner.capture_model()


def test_the_model_is_vllms_own_again_afterwards(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV1(config_of(sizes=(8,))))
    model, runnable = worker.model_runner.model, worker.model_runner.model.runnable
    brought_up(worker)
    assert worker.model_runner.model is model
    assert model.runnable is runnable


def test_with_stacks_the_only_frames_of_ours_are_the_hooks_own(hooked: Hooked) -> None:
    hooked.register(stacks="All")
    brought_up(started(WorkerV1(config_of(sizes=(8,)))))
    contents = hooked.contents()
    assert len(contents) == 2
    for tag, found in contents.items():
        assert any("vllm/" in frame for frame in found.frames), tag
        assert ours(found.frames) <= window.OWN_FRAMES | windows.OWN_FRAMES, tag
