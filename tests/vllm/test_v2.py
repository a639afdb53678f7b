"""Model runner V2: vLLM's own managers and factories, one file for each of their keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from shapetrace_capture import window
from shapetrace_capture.adapters.vllm import windows
from shapetrace_capture.adapters.vllm.keys import Keys
from shapetrace_contract.tag import Shape
from stand_ins import Hooked, RunnerV2, Speculator, WorkerV2, brought_up, config_of, ours, started

MODEL = "ModelCudaGraphManager"


def test_the_pass_that_measures_memory_is_left_alone_and_each_key_gives_one_file(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV2(config_of(), loras=2))
    brought_up(worker)
    manager = worker.model_runner.cudagraph_manager
    keys = [desc for group in manager._capture_descs.values() for desc in group]
    assert len(keys) == 2 * 3 * 2  # sizes x (0, 1, 2 adapters) x modes
    captures = hooked.captures()
    assert len(captures) == len(hooked.files()) == len(keys)
    assert sorted(line["tag"] for line in captures) == sorted(hooked.planned())
    assert len(set(hooked.planned())) == len(keys)
    assert {line["epoch"] for line in captures} == {1}
    assert [(line["error"], line["dirty"]) for line in captures] == [(None, [])] * len(captures)
    begun = hooked.json("done.json")["captureBegin"]
    assert begun["untagged"] == []
    assert begun["all"] == begun["tagged"] == 6 * 3 + 6  # three pieces for a piecewise key
    assert begun["measured"] == 6 * 3 + 2  # all keys in pieces and two whole ones, as vLLM samples them


def test_each_file_holds_what_its_tag_says(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV2(config_of(), loras=2)))
    contents = hooked.contents()
    for tag, found in contents.items():
        shape = Shape.from_tag(tag)
        assert str(shape.runner) == MODEL
        assert found.tag == tag
        assert found.own == [shape.size] * 3, tag  # three pieces; warm-ups are outside
        assert found.adapters == 3 * int(shape.variants.get("activeloras", 0)), tag
        assert found.uniform == ("uniformtokencount" in shape.variants), tag
        assert sorted(found.spans) == sorted([tag, f"capture_{shape.size}_{shape.variants['mode']}"])
    assert len(contents) == 12


def test_witnesses_tell_rows_stream_graphs_and_that_the_manager_holds_the_key(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV2(config_of(sizes=(8,)))))
    by_mode = {line["shape"]["variants"]["mode"]: line["witnesses"] for line in hooked.captures()}
    whole, pieces = by_mode["FULL"], by_mode["PIECEWISE"]
    assert (whole["rows"], whole["forwards"], whole["streamCapture"], whole["graphs"], whole["keyKnown"]) == (
        8,
        1,
        True,
        1,
        True,
    )
    assert (pieces["rows"], pieces["forwards"], pieces["streamCapture"], pieces["graphs"]) == (8, 1, False, 3)
    assert pieces["keyKnown"] is True


def test_the_engines_state_is_the_key_that_holds_the_graph_and_the_adapters_that_are_mapped(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV2(config_of(), loras=2)))
    for line in hooked.captures():
        variants, state = line["shape"]["variants"], line["witnesses"]["engine"]
        assert {"mode", "activeloras"} < state.keys()
        assert state["mappedloras"] == variants.get("activeloras", "0")
        for axis in ("mode", "activeloras", "uniformtokencount"):
            assert state.get(axis, "") == variants.get(axis, ""), (line["tag"], axis)


def test_adapters_other_than_those_of_the_key_are_told(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RunnerV2.maybe_select_dummy_loras

    def exchanged(self: Any, config: Any, scheduled: Any, num_active_loras: int = 0) -> Any:
        return honest(self, config, scheduled, num_active_loras={1: 2, 2: 1}.get(num_active_loras, 0))

    monkeypatch.setattr(RunnerV2, "maybe_select_dummy_loras", exchanged)
    hooked.register()
    brought_up(started(WorkerV2(config_of(), loras=2)))
    held = {
        (line["shape"]["variants"].get("activeloras", ""), line["witnesses"]["engine"]["activeloras"])
        for line in hooked.captures()
    }
    assert held == {("", ""), ("1", "2"), ("2", "1")}


def test_a_label_that_is_not_the_key_is_told(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Keys.shape

    def exchanged(self: Keys, descriptor: Any, mode: str = "") -> Shape:
        shape = honest(self, descriptor, mode)
        other = {"FULL": "PIECEWISE", "PIECEWISE": "FULL"}[shape.variants["mode"]]
        return Shape(shape.runner, shape.unit, shape.size, {**shape.variants, "mode": other})

    monkeypatch.setattr(Keys, "shape", exchanged)
    hooked.register()
    brought_up(started(WorkerV2(config_of())))
    lines = hooked.captures()
    assert len(lines) == 4
    for line in lines:
        assert line["shape"]["variants"]["mode"] != line["witnesses"]["engine"]["mode"]


def test_each_record_has_the_key_as_vllm_has_it(hooked: Hooked) -> None:
    hooked.register()
    brought_up(started(WorkerV2(config_of(sizes=(8,)))))
    for line in hooked.captures():
        key, variants = line["witnesses"]["key"], line["shape"]["variants"]
        assert (key["cg_mode"], key["num_tokens"], key["num_active_loras"]) == (variants["mode"], 8, 0)
        assert key["num_reqs"] == (8 if variants["mode"] == "FULL" else None)
        assert {"uniform_token_count", "max_query_len"} <= key.keys()


def test_the_parts_of_a_speculator_are_runners_of_their_own(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV2(config_of(mode="FULL_DECODE_ONLY", sizes=(4, 8))))
    worker.model_runner.initialize()
    worker.model_runner.speculator = Speculator(worker.model_runner)
    worker.compile_or_warm_up_model()
    contents = hooked.contents()
    assert sorted({str(Shape.from_tag(tag).runner) for tag in contents}) == [
        MODEL,
        "Speculator.decode_cudagraph_manager",
        "Speculator.prefill_cudagraph_manager",
    ]
    assert len(contents) == 3 * 2
    for tag, found in contents.items():
        shape = Shape.from_tag(tag)
        products = {MODEL: 3, "Speculator.prefill_cudagraph_manager": 1}.get(str(shape.runner), 2)
        assert found.own == [shape.size] * products, tag
    assert [line["runner"] for line in hooked.lines("plan.jsonl")] == [
        MODEL,
        "Speculator.prefill_cudagraph_manager",
        "Speculator.decode_cudagraph_manager",
    ]


def test_released_graphs_are_captured_again_as_the_next_epoch(hooked: Hooked) -> None:
    hooked.register()
    worker = started(WorkerV2(config_of(mode="FULL", sizes=(8,))))
    brought_up(worker)
    worker.model_runner.cudagraph_manager.release_graphs()
    worker.model_runner.capture_model()
    assert [line["epoch"] for line in hooked.captures()] == [1, 2]
    assert [line["tag"] for line in hooked.captures()] == hooked.planned()
    assert hooked.json("done.json")["records"] == 2


def test_an_engine_that_fails_in_a_capture_fails_as_without_us(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked.register()
    worker = started(WorkerV2(config_of(mode="FULL", sizes=(8,))))
    worker.model_runner.initialize()
    calls: list[int] = []
    forward = worker.model_runner.layers.forward

    def fail_when_captured(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if torch.cuda.is_current_stream_capturing():
            raise torch.OutOfMemoryError("no room")
        return forward(*args, **kwargs)

    monkeypatch.setattr(worker.model_runner.layers, "forward", fail_when_captured)
    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        worker.compile_or_warm_up_model()
    (line,) = hooked.captures()
    assert line["error"] == "the engine raised OutOfMemoryError: no room"
    assert not (hooked.folder / "rank-00000" / "done.json").exists()


def test_with_stacks_the_only_frames_of_ours_are_the_hooks_own(hooked: Hooked) -> None:
    hooked.register(stacks="All")
    brought_up(started(WorkerV2(config_of(sizes=(8,)))))
    contents = hooked.contents()
    assert len(contents) == 2
    for tag, found in contents.items():
        assert any("vllm/" in frame for frame in found.frames), tag
        assert ours(found.frames) <= window.OWN_FRAMES | windows.OWN_FRAMES, tag
