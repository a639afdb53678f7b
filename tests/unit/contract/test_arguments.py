"""Arguments are read as the engine's own argparse reads them, and what cannot work is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_capture.adapters.sglang.facts import words_for
from shapetrace_contract.arguments import given, options
from shapetrace_contract.serving import SGLANG_RUNNERS, refusals
from shapetrace_contract.tag import Runner

MODEL = [{"role": "target", "name": "org/model"}]


def told(name: str, *args: str, **fields: Any) -> list[str]:
    asked: dict[str, Any] = {"models": MODEL, "targets": [], "parallelism": {}, **fields}
    return list(refusals(name, args=args, **asked))


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        (["--tp-size", "8"], "--tp-size", "8"),
        (["--tp", "8"], "--tp", "8"),
        (["--tp=8"], "--tp", "8"),
        (["--tensor_parallel_size", "8"], "--tensor-parallel-size", "8"),
        (["--other", "--tp-size"], "--tp-size", ""),
        (["--tp", "2", "--tp-size", "4"], "--tp-size", "4"),
    ],
)
def test_a_flag_is_found_in_each_of_its_spellings(args: list[str], name: str, value: str) -> None:
    found = given(args, "--tp-size", "--tensor-parallel-size")
    assert found is not None
    assert (found.name, found.value) == (name, value)


@pytest.mark.parametrize("args", [[], ["--tokenizer-mode", "slow"], ["x", "-1"], ["--tp-size-of-mine", "1"], ["--t"]])
def test_another_flag_is_not_taken_for_it(args: list[str]) -> None:
    assert given(args, "--tp-size", "--tokenizer") is None


def test_keys_of_nested_options_are_told_apart_from_dots_in_values() -> None:
    found = list(options(["-cc.cudagraph_mode=FULL", "--share", "0.8", "--path=/a.b", "--low", "-0.5"]))
    assert [(option.name, option.key, option.value) for option in found] == [
        ("-cc", "cudagraph_mode", "FULL"),
        ("--share", "", "0.8"),
        ("--path", "", "/a.b"),
        ("--low", "", "-0.5"),
    ]


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("sglang", ["--model", "x"], "--model: it is made from models"),
        ("sglang", ["--tp", "8"], "--tp: it is made from parallelism.tensor"),
        ("sglang", ["--pp-size=2"], "--pp-size: it is made from parallelism.pipeline"),
        ("sglang", ["--dp", "2"], "--dp: it is made from parallelism.dataReplicas"),
        ("sglang", ["--nnodes", "2"], "--nnodes: a run is one pod on one node"),
        ("sglang", ["--enable-profile-cuda-graph"], "--enable-profile-cuda-graph: SGLang's own profiler"),
        ("sglang", ["--config", "f.yaml"], "--config: options in a file"),
        ("sglang", ["--api-key", "k"], "--api-key: nobody outside the pod reaches this engine"),
        ("sglang", ["--admin-api-key=k"], "--admin-api-key: nobody outside the pod reaches this engine"),
        ("vllm", ["--api_key", "k"], "--api-key: nobody outside the pod reaches this engine"),
        ("vllm", ["-tp", "8"], "-tp: it is made from parallelism.tensor"),
        ("vllm", ["--data-parallel-size-local", "1"], "--data-parallel-size-local: a run is one pod"),
        ("vllm", ["--hf-token", "t"], "--hf-token: a token does not belong into arguments"),
        ("vllm", ["--distributed-executor-backend", "ray"], "--distributed-executor-backend: Ray's workers"),
        ("vllm", ["--profiler-config", '{"profiler": "torch", "capture_torch_profiler": true}'], "--profiler-config: "),
        ("vllm", ["--profiler-config.capture_torch_profiler", "true"], "--profiler-config.capture_torch_profiler: "),
        ("vllm", ["--profiler_config.capture_torch_profiler=True"], "--profiler-config.capture_torch_profiler: "),
        ("vllm", ["--profiler-config", '{"capture_torch_profiler":\n\ttrue}'], "--profiler-config: "),
        ("vllm", ["--profiler-config", '{"capture_torch_profiler": "yes"}'], "--profiler-config: "),
        ("vllm", ["--profiler-c.capture_torch_profiler", "on"], "--profiler-c.capture_torch_profiler: "),
        ("vllm", ["--prefill-context-parallel-size", "2"], "it makes ranks of its own"),
        ("vllm", ["-n2"], "-n2: a run is one pod on one node"),
        ("vllm", ["-t", "2"], "-t: it is made from parallelism.tensor"),
        ("vllm", ["--distributed-executor-backend", "vllm.v1.executor.ray_executor.RayDistributedExecutor"], "use mp"),
        ("vllm", ["org/model"], "it begins with 'org/model'"),
    ],
)
def test_what_contradicts_the_spec_or_breaks_the_recording_is_refused_by_name(
    name: str, args: list[str], words: str
) -> None:
    (found,) = told(name, *args)
    assert found.startswith("engine.args: ")
    assert words in found


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sglang", ["--mem-fraction-static", "0.85", "--load-format", "dummy", "--cuda-graph-bs-decode", "1", "2"]),
        ("sglang", ["--enable-dp-attention", "--dp-size", "8"]),
        ("sglang", ["--tokenizer-path", "/t", "--port", "1"]),
        ("vllm", ["--profiler-config", '{"profiler": "torch", "torch_profiler_dir": "/tmp/x"}']),
        ("vllm", ["--profiler-config.capture_torch_profiler=false", "--max-model-len", "8k"]),
        ("vllm", ["--profiler-config", '{"capture_torch_profiler": "off"}']),
        ("vllm", ["--profiler-config", "no JSON"]),
        ("vllm", ["--distributed-executor-backend", "mp", "--enforce-eager", "-cc.mode=3"]),
        ("vllm", ["--distributed-executor-backend", "mine.array_executor.ArrayExecutor", "-dcp", "2"]),
    ],
)
def test_the_persons_own_choices_are_left_alone(name: str, args: list[str]) -> None:
    assert told(name, *args) == []


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("sglang", {"models": []}, "models: sglang needs exactly one model with role target"),
        ("vllm", {"models": [{"role": "draft", "path": "/d"}]}, "models: vllm needs exactly one model"),
        ("sglang", {"models": [*MODEL, {"role": "draft", "path": "/d"}]}, "add --speculative-algorithm EAGLE"),
        ("sglang", {"targets": [{"runner": "draft", "sizes": [1]}]}, "capture.targets[draft].sizes: SGLang takes"),
        (
            "sglang",
            {"targets": [{"runner": "foo", "sizes": [1]}]},
            "capture.targets[foo].runner: SGLang has no runner foo; it has decode, prefill and draft",
        ),
        ("sglang", {"targets": [{"runner": "drafts"}]}, "capture.targets[drafts].runner: SGLang has no runner drafts"),
        ("sglang", {"targets": [{"runner": "prefill", "sizes": [64]}]}, "capture.targets[prefill].unit"),
        ("sglang", {"targets": [{"runner": "decode", "unit": "tok", "sizes": [64]}]}, "say unit: bs"),
        ("vllm", {"targets": [{"runner": "decode", "sizes": [64]}]}, "vLLM's sizes count tokens"),
        (
            "vllm",
            {"targets": [{"runner": runner, "unit": "tok", "sizes": [1]} for runner in ("decode", "mixed")]},
            "capture.targets: vLLM has one list of sizes",
        ),
    ],
)
def test_models_and_sizes_that_the_engine_has_no_use_for_are_refused(
    name: str, fields: dict[str, Any], words: str
) -> None:
    (found,) = told(name, **fields)
    assert words in found


def test_attention_groups_and_replicas_do_not_go_together() -> None:
    args = ("--enable-dp-attention", "--dp-size", "2")
    (found,) = told("sglang", *args, parallelism={"dataReplicas": 2})
    assert found.startswith("parallelism.dataReplicas: ")


def test_a_target_without_sizes_only_filters() -> None:
    targets = [{"runner": "draft", "unit": "bs", "sizes": []}, {"runner": "decode", "unit": "tok"}]
    assert told("sglang", targets=targets) == []
    assert told("vllm", targets=targets) == []


def test_a_runner_of_sglang_may_be_named_by_its_class_as_tags_name_it() -> None:
    names = ("DecodeCudaGraphRunner", "EAGLEDraftCudaGraphRunner-draft0-step1")
    assert told("sglang", targets=[{"runner": name} for name in names]) == []


def test_the_words_for_runners_of_sglang_are_those_of_its_adapter() -> None:
    prefill, other = type("PrefillCudaGraphRunner", (), {})(), object()
    cases = [(other, Runner("Any")), (prefill, Runner("Any")), (other, Runner("Any", 0))]
    assert [words_for(runner, named) - {"Any", str(named)} for runner, named in cases] == [
        {word} for word in SGLANG_RUNNERS
    ]


@pytest.mark.parametrize(
    ("name", "args"),
    [("sglang", ("--moe-a2a-backend", "deepep")), ("vllm", ("--all2all-backend=deepep_low_latency",))],
)
def test_stacks_on_one_rank_that_holds_up_the_others_on_the_device_are_refused(name: str, args: tuple[str]) -> None:
    (found,) = told(name, *args, parallelism={"tensor": 8}, stacks="First")
    assert found.startswith("capture.stacks: with DeepEP")
    for stacks, tensor in (("All", 8), ("None", 8), ("First", 1)):
        assert told(name, *args, parallelism={"tensor": tensor}, stacks=stacks) == []
    assert told(name, parallelism={"tensor": 8}, stacks="First") == []
