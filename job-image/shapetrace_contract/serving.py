"""What SGLang and vLLM can be told by a ProfileRun, known before a pod of it exists.

The operator answers with it when a run is made, the launcher once more before it starts the engine. What depends on
the engine's version is the launcher's alone (``shapetrace_launcher/engines``). Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shapetrace_contract.arguments import Argument, Refused, given, means, options, refused

SERVING = ("sglang", "vllm")
"""The engines that serve for ever, and load models."""
PLUGIN = "shapetrace"
"""Our name among an engine's plugins: the entry point of ``shapetrace-capture``."""

_ONE_NODE = "a run is one pod on one node; leave it out"
_FILE = "options in a file cannot be checked; put them into engine.args"
_KEY = "nobody outside the pod reaches this engine, and arguments stand in logs; leave it out"
_REVISION = "say it as revision of the model in models, which is fetched before the engine starts"


def _in_parallelism(field: str) -> str:
    return f"it is made from parallelism.{field}; say it there"


def _has_no_attention_groups(option: Argument, args: Sequence[str]) -> bool:
    return given(args, "--enable-dp-attention") is None


def _is_ray(option: Argument, args: Sequence[str]) -> bool:
    """By its word, or by the path of a class: ``vllm.v1.executor.ray_executor.RayDistributedExecutor``."""
    return re.search(r"(^|[._])ray", option.value, re.IGNORECASE) is not None


_CAPTURES = "capture_torch_profiler"
_OFF = frozenset({"", "false", "0", "0.0", "no", "n", "off", "f", "none", "null"})


def _captures_traces(option: Argument, args: Sequence[str]) -> bool:
    """``--profiler-config`` in each of its spellings: JSON, and one key of it."""
    return any(_turns_on(each) for each in options(args) if means(each, "--profiler-config"))


def _turns_on(option: Argument) -> bool:
    value: Any = option.value if option.key.replace("-", "_") == _CAPTURES else ""
    if not option.key:
        try:
            value = json.loads(option.value).get(_CAPTURES)
        except (ValueError, AttributeError):  # vLLM will not start with it
            return False
    return str(value).lower() not in _OFF


SGLANG_REFUSED = (
    Refused(("--model-path", "--model"), "it is made from models; give the model there, with role target"),
    Refused(("--revision",), _REVISION),
    Refused(("--tp-size", "--tensor-parallel-size"), _in_parallelism("tensor")),
    Refused(("--pp-size", "--pipeline-parallel-size"), _in_parallelism("pipeline")),
    Refused(
        ("--dp-size", "--data-parallel-size"),
        "it is made from parallelism.dataReplicas; say it there, or give --enable-dp-attention with it, "
        "which makes it a way to use the tensor parallel ranks",
        _has_no_attention_groups,
    ),
    Refused(("--nnodes",), _ONE_NODE),
    Refused(("--node-rank",), _ONE_NODE),
    Refused(("--dist-init-addr", "--nccl-init-addr"), _ONE_NODE),
    Refused(("--use-ray",), "Ray's workers are not in the process group that is recorded and ended; leave it out"),
    Refused(
        ("--enable-profile-cuda-graph",),
        "SGLang's own profiler and shapetrace's cannot be on at once; leave it out, each capture is recorded without",
    ),
    Refused(("--api-key",), _KEY),
    Refused(("--admin-api-key",), _KEY),
    Refused(("--config",), _FILE),
)
"""Options of SGLang that contradict the spec, or break the recording."""

VLLM_REFUSED = (
    Refused(("--model",), "it is made from models; give the model there, with role target"),
    Refused(("--revision",), _REVISION),
    Refused(("--hf-token",), "a token does not belong into arguments; use tokenSecretRef of the model"),
    Refused(("--tensor-parallel-size", "-tp"), _in_parallelism("tensor")),
    Refused(("--pipeline-parallel-size", "-pp"), _in_parallelism("pipeline")),
    Refused(("--data-parallel-size", "-dp"), _in_parallelism("dataReplicas")),
    Refused(
        ("--prefill-context-parallel-size", "-pcp"),
        "it makes ranks of its own, which parallelism has no field for; leave it out",
    ),
    *(
        Refused(flags, _ONE_NODE)
        for flags in (
            ("--nnodes", "-n"),
            ("--node-rank", "-r"),
            ("--headless",),
            ("--data-parallel-size-local", "-dpl"),
            ("--data-parallel-rank", "-dpn"),
            ("--data-parallel-start-rank", "-dpr"),
            ("--data-parallel-address", "-dpa"),
            ("--data-parallel-hybrid-lb", "-dph"),
            ("--data-parallel-external-lb", "-dpe"),
            ("--data-parallel-multi-port-external-lb", "-dpm"),
        )
    ),
    *(
        Refused(flags, "Ray's workers are not in the process group that is recorded and ended; use mp", _is_ray)
        for flags in (("--distributed-executor-backend",), ("--data-parallel-backend", "-dpb"))
    ),
    Refused(
        ("--profiler-config",),
        "with capture_torch_profiler vLLM's own profiler is on during captures, and shapetrace's cannot be; "
        "leave capture_torch_profiler out, each capture is recorded without",
        _captures_traces,
    ),
    Refused(("--api-key",), _KEY),
    Refused(("--config",), _FILE),
)
"""Options of vLLM that contradict the spec, or break the recording."""

SGLANG_RUNNERS = ("decode", "prefill", "draft")
"""What the adapter calls the runners. Their classes may be named, too, and begin with a capital letter."""
SGLANG_SIZES = {"decode": "bs", "prefill": "tok"}
"""Runner -> what its configured sizes count. The other runners capture what follows from these."""


def refusals(
    name: str,
    *,
    args: Sequence[str],
    models: Sequence[Mapping[str, Any]],
    targets: Sequence[Mapping[str, Any]],
    parallelism: Mapping[str, int],
    stacks: str = "None",
) -> Iterator[str]:
    """Why engine ``name`` (one of :data:`SERVING`) cannot be started like this; each names field and fix.

    ``stacks`` is ``capture.stacks``.
    """
    has_others = any(int(count) > 1 for count in parallelism.values())
    if stacks == "First" and has_others and _waits_on_the_device(args):
        yield (
            "capture.stacks: with DeepEP the ranks wait for each other on the device, and give up after a time; stacks "
            "on the first rank only keep it behind the others. Say stacks: None, or All"
        )
    roles = [str(model.get("role") or "target") for model in models]
    if roles.count("target") != 1:
        yield f"models: {name} needs exactly one model with role target"
    if name == "sglang":
        yield from refused(args, SGLANG_REFUSED)
        yield from _sglang(args, roles, targets, parallelism)
    else:
        yield from refused(args, VLLM_REFUSED)
        yield from _vllm(args, targets)


def _waits_on_the_device(args: Sequence[str]) -> bool:
    """DeepEP, by the options of SGLang and of vLLM."""
    option = given(args, "--moe-a2a-backend", "--all2all-backend")
    return option is not None and option.value.lower().startswith("deepep")


def _sglang(
    args: Sequence[str],
    roles: Sequence[str],
    targets: Sequence[Mapping[str, Any]],
    parallelism: Mapping[str, int],
) -> Iterator[str]:
    if int(parallelism.get("dataReplicas", 1)) > 1 and given(args, "--enable-dp-attention") is not None:
        yield (
            "parallelism.dataReplicas: with --enable-dp-attention SGLang makes attention groups of the tensor parallel "
            "ranks; leave dataReplicas at 1"
        )
    if "draft" in roles and given(args, "--speculative-algorithm") is None:
        yield "models: a draft needs to be told how it is used; add --speculative-algorithm EAGLE (or another)"
    for target in targets:
        runner, where = str(target.get("runner")), f"capture.targets[{target.get('runner')}]"
        if runner[:1].islower() and runner not in SGLANG_RUNNERS:
            yield (
                f"{where}.runner: SGLang has no runner {runner}; it has {', '.join(SGLANG_RUNNERS[:-1])} and "
                f"{SGLANG_RUNNERS[-1]}; or name a runner's class, as its traces are named"
            )
            continue
        if not target.get("sizes"):
            continue
        unit = SGLANG_SIZES.get(runner)
        if unit is None:
            yield f"{where}.sizes: SGLang takes sizes for decode and prefill only; leave them out, {runner} follows"
        elif str(target.get("unit") or "bs") != unit:
            what = "requests" if unit == "bs" else "tokens"
            yield f"{where}.unit: SGLang's {runner} sizes count {what}; say unit: {unit}"


def _vllm(args: Sequence[str], targets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if args and not args[0].startswith("-"):
        yield f"engine.args: it begins with {args[0][:64]!r}; the model is given in models, so begin with an option"
    sized = [target for target in targets if target.get("sizes")]
    if len(sized) > 1:
        yield "capture.targets: vLLM has one list of sizes for all its graphs; give sizes in one target only"
    for target in sized:
        if str(target.get("unit") or "bs") != "tok":
            yield f"capture.targets[{target.get('runner')}].unit: vLLM's sizes count tokens; say unit: tok"
