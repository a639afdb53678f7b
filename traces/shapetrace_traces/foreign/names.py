"""What a file's name claims, in each spelling that engines and tools have used. A claim, never evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_traces.judge.evidence import shape_of

NO_RUNNER = "unknown"
"""Runner of a tag where neither name nor trace tells one."""


class Layout(StrEnum):
    """Who names files like this."""

    SHAPETRACE = "shapetrace"
    SGLANG_SIZE = "sglang-per-size"
    """``{Runner}_bs_<n>_rank<r>``: SGLang 0.5.18 to 0.5.21, and later ones for a runner without variants."""
    SGLANG_TAGGED = "sglang-tagged"
    """``{Runner}_bs_<n>_<attention>_<lora>_stream_<i>_rank<r>``: SGLang from 0.5.22 on."""
    SGLANG_COMBINED = "sglang-combined"
    """``cuda_graph_capture-{Runner}-TP-<r>``: all captures of a rank in one file."""
    TRACELENS = "tracelens-patched"
    """``bs_<n>_rank<r>``: engines patched by TraceLens or ATOM."""
    VLLM = "vllm"
    """``graph_capture_rank_<r>.<nanoseconds>``: no shape in the name."""
    XDIT = "xdit"
    """``capture_trace_rank_<r>``: no shape in the name."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Name:
    """The claims of one name; None where it claims nothing."""

    layout: Layout
    runner: str | None = None
    unit: str | None = None
    size: int | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    tag: str | None = None

    @property
    def shape(self) -> Shape | None:
        """The shape that is claimed."""
        if self.tag is not None:
            return Shape.from_tag(self.tag)
        if self.size is None or self.unit is None:
            return None
        try:
            return Shape(Runner(self.runner or NO_RUNNER), self.unit, self.size, self.variants)
        except TagError:
            return None


_SUFFIX = re.compile(
    r"(?:(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?|\.gz)(?:\.(?:tmp|part|partial|incomplete))?", re.IGNORECASE
)
"""With what a copy that was interrupted has at its end."""
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_SIZED = re.compile(
    rf"(?:(?P<runner>[A-Za-z][A-Za-z0-9]*)_)?(?P<unit>bs|tok|num_tokens)_(?P<size>[1-9][0-9]{{0,8}})"
    rf"(?P<rest>(?:_[A-Za-z0-9.]+)*?)_rank_?(?P<rank>{_NUMBER})"
)
_REST = re.compile(
    rf"(?:_(?P<attention>dense|sparse|candidate(?:_c2)?_[a-z]+))?(?:_(?P<lora>lora|nolora))?"
    rf"(?:_stream_(?P<stream>{_NUMBER}))?(?:_q_(?P<q>{_NUMBER}))?(?:_(?P<variant>[A-Za-z0-9._]+))?"
)
_COMBINED = re.compile(rf"cuda_graph_capture-(?P<runner>[A-Za-z][A-Za-z0-9]*)-TP-(?P<rank>{_NUMBER})")
_VLLM = re.compile(rf"graph_capture_rank_(?P<rank>{_NUMBER})(?:\.[0-9]+)?")
_XDIT = re.compile(rf"capture(?:_trace)?_rank_(?P<rank>{_NUMBER})(?:\.[0-9]+)?")
_RANK_FOLDER = re.compile(r"rank-([0-9]{5})")
_UNITS = {"bs": "bs", "tok": "tok", "num_tokens": "tok"}


def is_trace_name(path: str) -> bool:
    """Whether a file of this name is expected to be a trace or its sidecar: then it is told of if it cannot be read."""
    name = PurePosixPath(path).name.lower()
    is_packed_trace = name.endswith(".gz") and ("trace" in name or "capture" in name)
    return name.endswith((".json", ".json.gz")) or is_packed_trace or claims_capture(path)


def claims_capture(path: str, *, has_suffix: bool = False) -> bool:
    """Whether a name claims captures; with ``has_suffix``, only one that ends as a trace's does."""
    if read_name(path).layout is Layout.UNKNOWN:
        return False
    return not has_suffix or any(found.end() == len(path) for found in _SUFFIX.finditer(path))


def read_name(path: str) -> Name:
    """The claims of a file's name. ``path`` is relative to the directory that is looked at, with slashes."""
    place = PurePosixPath(path)
    stem = place.name
    found = _SUFFIX.search(stem)
    if found is not None and found.end() == len(stem):
        stem = stem[: found.start()]
    own = _own(stem, place.parent.name)
    if own is not None:
        return own
    if match := _SIZED.fullmatch(stem):
        rest = _REST.fullmatch(match["rest"])
        given = rest.groupdict() if rest is not None else {"variant": match["rest"].strip("_")}
        variants = {axis: value for axis, value in given.items() if value}
        layout = Layout.SGLANG_TAGGED if variants else Layout.SGLANG_SIZE
        if match["runner"] is None:
            layout = Layout.TRACELENS
        unit, size, rank = _UNITS[match["unit"]], int(match["size"]), int(match["rank"])
        return Name(layout, match["runner"], unit, size, variants, rank)
    if match := _COMBINED.fullmatch(stem):
        return Name(Layout.SGLANG_COMBINED, match["runner"], rank=int(match["rank"]))
    for layout, pattern in ((Layout.VLLM, _VLLM), (Layout.XDIT, _XDIT)):
        if match := pattern.fullmatch(stem):
            return Name(layout, rank=int(match["rank"]))
    return Name(Layout.UNKNOWN)


def _own(stem: str, folder: str) -> Name | None:
    shape = shape_of(stem)
    if shape is None:
        return None
    rank = _RANK_FOLDER.fullmatch(folder)
    return Name(
        Layout.SHAPETRACE,
        str(shape.runner),
        shape.unit,
        shape.size,
        shape.variants,
        int(rank[1]) if rank is not None else None,
        tag=stem,
    )
