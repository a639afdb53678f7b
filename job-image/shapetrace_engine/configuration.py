"""Arguments of the torch engine, checked before torch is imported."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shapetrace_capture.declared import product
from shapetrace_contract.tag import Runner, Shape, TagError

MAX_SIZE = 65_536
"""A decode batch beyond this is a slip of the pen."""

BUILT_IN_AXES = {"lora": ("lora", "nolora"), "attention": ("dense", "sparse")}
"""The variants of the built-in decoder; a model of the user's has its own."""


class ConfigurationError(ValueError):
    """Arguments that cannot be used; the message names the argument and what would do."""


@dataclass(frozen=True)
class Configuration:
    """What one rank of the engine runs. Passed to a ``--model`` factory as it is."""

    sizes: tuple[int, ...] = (1, 2, 4, 8)
    unit: str = "bs"
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    layers: int = 24
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 16_384
    context: int = 128
    """Tokens in the KV cache of each request."""
    topk: int = 32
    """Tokens that sparse attention reads."""
    lora_rank: int = 16
    adapters: int = 4
    seed: int = 0
    warmup: int = 2
    eager: bool = False
    model: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """``--option KEY=VALUE``, for a model of the user's."""
    rank: int = 0
    tensor: int = 1

    def shapes(self, runner: Runner) -> list[Shape]:
        """Every size, the largest first, x every combination of variants."""
        return product(
            runner, self.unit, self.sizes, [{"axis": axis, "values": values} for axis, values in self.axes.items()]
        )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigurationError(message)


def _sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 1,2,4,8")
    sizes = tuple(int(part) for part in text.split(","))
    if len(set(sizes)) != len(sizes):
        raise argparse.ArgumentTypeError(f"{text!r} names a size twice")
    if not all(1 <= size <= MAX_SIZE for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r}: a size is between 1 and {MAX_SIZE}")
    return sizes


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return key, value


def _axis(text: str) -> tuple[str, tuple[str, ...]]:
    axis, values = _pair(text)
    names = tuple(values.split(","))
    if "" in names or len(set(names)) != len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form axis=value,value with different values")
    return axis, names


def _positive(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command line: ``python3 -m shapetrace_engine --help``."""
    made = _Parser(prog="shapetrace_engine", allow_abbrev=False, description="A decoder under graph capture.")
    add, default = made.add_argument, Configuration()
    add("--sizes", type=_sizes, default=default.sizes, help="batch sizes to capture, as 1,2,4,8")
    add("--unit", default=default.unit, choices=("bs", "tok"), help="a decode step has one token per request")
    add("--axis", type=_axis, action="append", default=[], metavar="AXIS=VALUE,VALUE", help="variants to capture")
    for name, text in {
        "layers": "decoder layers",
        "hidden": "width of a token's state",
        "heads": "attention heads",
        "vocabulary": "tokens in the vocabulary",
        "context": "tokens in the KV cache of each request",
        "topk": "tokens that sparse attention reads",
        "lora-rank": "rank of the LoRA adapters",
        "adapters": "LoRA adapters that requests choose from",
    }.items():
        add(f"--{name}", type=_positive, default=getattr(default, name.replace("-", "_")), help=text)
    add("--seed", type=int, default=default.seed, help="of weights and inputs")
    add("--warmup", type=int, default=default.warmup, help="unrecorded runs before each capture")
    add("--eager", action="store_true", help="capture no graphs")
    add("--model", default="", metavar="MODULE:FACTORY", help="a model of your own instead of the built-in decoder")
    add("--option", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="for a model of your own")
    return made


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Configuration:
    """The configuration of this rank (``RANK`` and ``WORLD_SIZE`` of ``environment``); :class:`ConfigurationError`."""
    try:
        return _parse(arguments, environment)
    except ConfigurationError as error:
        # what a run makes from other fields, its targets, was checked before a pod of it was made
        raise ConfigurationError(f"{error} (spec.engine.args)") from None


def _parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Configuration:
    values = vars(parser().parse_args(arguments))
    axes = values.pop("axis")
    if len(dict(axes)) != len(axes):
        raise ConfigurationError("--axis names an axis twice")
    options = dict(values.pop("option"))
    rank, tensor = int(environment.get("RANK") or 0), int(environment.get("WORLD_SIZE") or 1)
    made = Configuration(axes=dict(axes), options=options, rank=rank, tensor=tensor, **values)
    check(made)
    return made


def check(made: Configuration) -> None:
    """:class:`ConfigurationError` where the model cannot be built or a shape has no tag."""
    if made.warmup < 0:
        raise ConfigurationError("--warmup is a whole number from 0 on")
    try:
        made.shapes(Runner("DecodeGraphRunner"))
    except TagError as error:
        raise ConfigurationError(f"--axis: {error}") from None
    if made.model:
        if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", made.model):
            raise ConfigurationError(f"--model {made.model!r} is not of the form module:factory")
        return
    for axis, values in made.axes.items():
        known = BUILT_IN_AXES.get(axis)
        if known is None:
            raise ConfigurationError(f"--axis {axis}: the built-in decoder has {' and '.join(BUILT_IN_AXES)}")
        if not set(values) <= set(known):
            raise ConfigurationError(f"--axis {axis}={','.join(values)}: the values are {' and '.join(known)}")
    if made.hidden % made.heads:
        raise ConfigurationError(f"--hidden {made.hidden} is not divisible by --heads {made.heads}")
    for name in ("heads", "hidden", "vocabulary"):
        if getattr(made, name) % made.tensor:
            raise ConfigurationError(
                f"--{name} {getattr(made, name)} is not divisible by parallelism.tensor {made.tensor}"
            )
    if made.topk >= made.context:
        raise ConfigurationError(f"--topk {made.topk} is not below --context {made.context}: nothing would be sparse")
