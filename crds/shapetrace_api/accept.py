"""What a ProfileRun may ask for beyond what the API server can check: products, divisors, sizes.

Pure. The operator shows the answers in the condition ``Accepted``; the CLI shows them before a local run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shapetrace_contract import keys, serving
from shapetrace_contract.tag import Runner, Shape, TagError, escape

from shapetrace_api import torch_engine
from shapetrace_api.capture import Target
from shapetrace_api.engine import MAX_RANKS, EngineName, Vendor
from shapetrace_api.quantity import parse
from shapetrace_api.spec import ProfileRunSpec

MAX_TRACES = 4096
"""Declared shapes x recorded ranks. Manifest and finish hold all of them in memory at once."""
MAX_ARGUMENT_BYTES = 96 * 1024
"""Arguments reach the launcher within one environment variable, which Linux limits to 128 KiB (MAX_ARG_STRLEN)."""
MIN_MEMORY = "1Mi"
"""Less is a slip of the pen: ``512m`` is half a byte."""
MIN_SPOOL = "128Mi"
"""The hook keeps 64 MiB free (shapetrace_contract.spool.RESERVE_BYTES); what is left has to hold a trace."""
_OTHER_HUBS = ("SGLANG_USE_MODELSCOPE", "VLLM_USE_MODELSCOPE")
_LONGEST_RUNNER = "R" * 40
"""For the length of tags, where the engine's class is not known beforehand; the longest of SGLang has 34 letters."""


def refusals(spec: ProfileRunSpec) -> list[str]:
    """Why this run is not accepted; empty where it is. Each message names the field and what would do."""
    return [
        *_engine(spec),
        *_devices(spec),
        *_targets(spec),
        *_storage(spec),
        *_resources(spec),
    ]


def _engine(spec: ProfileRunSpec) -> Iterator[str]:
    engine = spec.engine
    if spec.models and engine.name in (EngineName.TORCH, EngineName.COMMAND):
        yield f"models: the engine {engine.name} loads none; leave models out and say it in engine.args"
    tokens = {
        (model.token_secret_ref.name, model.token_secret_ref.key) for model in spec.models if model.token_secret_ref
    }
    if len(tokens) > 1:
        yield "models: the engine takes one access token (HF_TOKEN); give the same tokenSecretRef to all models"
    size = sum(len(argument.encode()) for argument in engine.args)
    if size > MAX_ARGUMENT_BYTES:
        yield f"engine.args: {size} bytes in all, at most {MAX_ARGUMENT_BYTES}; put a long script into the image"
    if engine.name is EngineName.COMMAND and not engine.args:
        yield "engine.args: the engine command runs them; give the program and its arguments"
    if engine.name is EngineName.TORCH:
        yield from torch_engine.refusals(engine.args, spec.capture.targets, spec.parallelism.tensor)
    if engine.name.value in serving.SERVING:
        yield from serving.refusals(
            engine.name.value,
            args=engine.args,
            models=[model.to_dict() for model in spec.models],
            targets=[target.to_dict() for target in spec.capture.targets],
            parallelism=spec.parallelism.to_dict(),
            stacks=spec.capture.stacks.value,
        )
        yield from _hub(spec)


def _hub(spec: ProfileRunSpec) -> Iterator[str]:
    """Models by name come from one hub, fetched before the engine starts."""
    if any(model.name for model in spec.models):
        for variable in spec.engine.env:
            if variable.name in _OTHER_HUBS and (variable.value or "").strip().lower() in ("1", "true"):
                yield (
                    f"engine.env: {variable.name}: models by name are fetched from the Hugging Face hub only; "
                    "give the model as path or pvc"
                )


def _devices(spec: ProfileRunSpec) -> Iterator[str]:
    ranks = spec.parallelism.ranks
    if spec.accelerator.vendor is not Vendor.NONE and ranks > MAX_RANKS:
        yield (
            f"parallelism: tensor x pipeline x dataReplicas needs {ranks} devices on one node, "
            f"at most {MAX_RANKS} are there"
        )
    beyond = [rank for rank in spec.capture.listed_ranks or [] if rank >= ranks]
    if beyond:
        yield f"capture.listedRanks: there is no rank {beyond[0]}, ranks are 0 to {ranks - 1}"


def _targets(spec: ProfileRunSpec) -> Iterator[str]:
    targets = spec.capture.targets
    for target in targets:
        twice = _repeated(target.sizes)
        if twice is not None:
            yield f"capture.targets[{target.runner}].sizes: {twice} is there twice"
        yield from _tag(target, spec.engine.name)
    shapes = sum(target.declared_shapes for target in targets)
    ranks = spec.capture.recorded_ranks(spec.parallelism.ranks)
    if shapes * ranks > MAX_TRACES:
        yield (
            f"capture.targets: {shapes} shapes on {ranks} ranks are {shapes * ranks} traces, "
            f"at most {MAX_TRACES}; name fewer sizes or variants, or record fewer ranks"
        )


def _tag(target: Target, engine: EngineName) -> Iterator[str]:
    """The longest tag of the target has to fit into an object's name."""
    runner = {EngineName.TORCH: torch_engine.RUNNER, EngineName.COMMAND: target.runner}.get(engine, _LONGEST_RUNNER)
    variants = {
        variant.axis: max(variant.values, key=lambda value: len(escape(value)), default="")
        for variant in target.variants
    }
    try:
        Shape(Runner(runner), target.unit.value, max(target.sizes, default=1), variants)
    except TagError as error:
        yield f"capture.targets[{target.runner}].variants: {error}; use shorter values or fewer axes"


def _storage(spec: ProfileRunSpec) -> Iterator[str]:
    try:
        keys.attempt_folder(spec.storage.s3.prefix, "namespace", "name", "uid", 1)
    except keys.KeyPartError as error:
        yield f"storage.s3.prefix: {error}"


def _resources(spec: ProfileRunSpec) -> Iterator[str]:
    extra = spec.accelerator.extra_resources
    device = spec.accelerator.device_resource
    if device is not None and device in extra:
        yield f"accelerator.extraResources: {device} is there already, one for each rank; leave it out"
    for name, amount in extra.items():
        if parse(amount) % 1:
            yield f"accelerator.extraResources: {name} comes in whole pieces, {amount!r} is none"
    resources = spec.pod.resources
    if resources is not None:
        yield from _above_limit(resources.requests, resources.limits)
        yield from _too_small("pod.resources.requests.memory", resources.requests.get("memory"), MIN_MEMORY)
        yield from _too_small("pod.resources.limits.memory", resources.limits.get("memory"), MIN_MEMORY)
    yield from _too_small("pod.shmSize", spec.pod.shm_size, MIN_MEMORY)
    yield from _too_small("pod.spoolSize", spec.pod.spool_size, MIN_SPOOL)


def _too_small(field: str, size: str | None, least: str) -> Iterator[str]:
    if size is not None and parse(size) < parse(least):
        yield f"{field}: {size} is less than {least}; sizes are in bytes, with Ki, Mi or Gi"


def _above_limit(requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[str]:
    for name, request in requests.items():
        limit = limits.get(name)
        if limit is not None and parse(request) > parse(limit):
            yield f"pod.resources: the request of {request} {name} is above the limit of {limit}"


def _repeated(values: Iterable[int]) -> int | None:
    seen: set[int] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
