"""``engine: sglang``: one process of ``sglang.launch_server``, which starts all ranks below it. Pure."""

from __future__ import annotations

from shapetrace_contract.arguments import given
from shapetrace_contract.settings import CaptureSettings, EngineSettings

from shapetrace_launcher.engines import Command, Context, EngineConfigurationError, serving

MINIMUM = (0, 5, 14)
WHY = "older ones have no graph backends that are handed the shape which they capture"
SHORT_NAMES_END = (0, 5, 20)
"""From here on ``--cuda-graph-bs`` begins two flags and argparse refuses it; before, it meant ``-decode``."""
SHORT_NAMES = ("--cuda-graph-bs", "--cuda-graph-max-bs")
OWN_TRACES = ("SGLANG_GRAPH_BATCH_CAPTURE", "SGLANG_ENABLE_CUDA_GRAPH_CAPTURE_TRACE")
"""SGLang's own traces of captures, by a profiler of its own."""
PARALLELISM = {"tensor": "--tp-size", "pipeline": "--pp-size", "dataReplicas": "--dp-size"}


def commands(engine: EngineSettings, capture: CaptureSettings, context: Context) -> list[Command]:
    """``python3 -m sglang.launch_server``; what ``engine.args`` say takes the place of what we would."""
    serving.check(engine, capture)
    found = serving.release("sglang", "SGLang", MINIMUM, WHY, context)
    for name in SHORT_NAMES:
        option = given(engine.args, name)
        if option is not None and option.name == name and not found.is_before(*SHORT_NAMES_END):
            raise EngineConfigurationError(
                f"engine.args: {name} is ambiguous in SGLang {found.text}: write {name}-decode, or {name}-prefill"
            )
    port = serving.port_of(engine.args, context.master_port)
    flags = _flags(engine, capture, context, port)
    offline, tokens = serving.hub_environment(context)
    dropped = tuple(name for name in OWN_TRACES if context.environment.get(name))
    notes = [f"{name} is taken out of the environment: shapetrace records the captures" for name in dropped]
    if flags.left:
        notes.append(f"engine.args has {', '.join(flags.left)} already, which is left as it is")
    return [
        Command(
            (context.python, "-m", "sglang.launch_server", *flags.argv, *engine.args),
            tuple(range(engine.ranks)),
            {**serving.with_plugin("SGLANG_PLUGINS", context.environment, empty_means_all=True), **offline},
            defaults={"SGLANG_USE_CPU_ENGINE": "1"} if engine.device == "cpu" else {},
            without=(*OWN_TRACES, *tokens),
            notes=tuple(notes),
            port=port,
            engine=f"SGLang {found.text}".strip(),
        )
    ]


def _flags(engine: EngineSettings, capture: CaptureSettings, context: Context, port: int) -> serving.Flags:
    flags = serving.Flags(engine.args)
    flags.add("--model-path", serving.source(engine.models, "target"), alias="--model")
    if tokenizer := serving.source(engine.models, "tokenizer"):
        flags.add("--tokenizer-path", tokenizer)
    if draft := serving.source(engine.models, "draft"):
        flags.add("--speculative-draft-model-path", draft, alias="--speculative-draft-model")
    if loras := serving.adapters(engine.models):
        flags.add("--lora-paths", *loras)
    for axis, flag in PARALLELISM.items():
        if int(engine.parallelism.get(axis, 1)) != 1:
            flags.add(flag, engine.parallelism[axis])
    if engine.device == "cpu":
        flags.add("--device", "cpu")
    for runner in ("decode", "prefill"):
        if asked := serving.sizes(capture.targets, runner):
            flags.add(f"--cuda-graph-bs-{runner}", *asked)
    # a request that warms the server up says nothing of captures, and needs a tokenizer and time
    flags.add("--skip-server-warmup")
    # ranks meet in collectives while one of them waits for room in the spool: the run's deadline is the limit
    flags.add("--dist-timeout", context.deadline_seconds)
    flags.add("--host", "127.0.0.1")
    flags.add("--port", port)  # last: a flag with many values would take a first word of engine.args for its own
    return flags
