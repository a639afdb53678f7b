"""What a run that ended well lacks of what it was asked for: told in manifest and condition, refused by ``strict``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shapetrace_contract.message import shorten
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.tag import Shape, TagError
from shapetrace_traces.manifest import ManifestTrace, NotPlanned

MAX_SHAPE_CHARACTERS = 120
"""Of a tag that is named."""


def find_asides(
    verdict: Verdict, asked: str | None, traces: Sequence[ManifestTrace], not_planned: Sequence[NotPlanned]
) -> list[str]:
    """A sentence for each; ``asked`` is the device that the run asks for. An Eager run says by itself that it captured
    nothing of what was declared."""
    return [*_without_graphs(asked, traces), *(() if verdict is Verdict.EAGER else _unmet(not_planned))]


def _without_graphs(asked: str | None, traces: Sequence[ManifestTrace]) -> list[str]:
    """A program that sees no device falls back to the CPU and ends well, as does one that captures no graph."""
    if asked == "cpu":
        return []
    found = []
    count = sum(trace.device == "cpu" for trace in traces)
    if count:
        found.append(
            f"{count} of {len(traces)} traces were recorded on the CPU and hold no graph, though the run asks for "
            f"{asked}: does torch.cuda.is_available() hold in the engine's container?"
        )
    count = sum(trace.graph is False and trace.device != "cpu" for trace in traces)
    if count:
        found.append(
            f"{count} of {len(traces)} traces hold no graph, no graph capture began while they were recorded: is it "
            "made inside the marked block?"
        )
    return found


def _unmet(not_planned: Sequence[NotPlanned]) -> list[str]:
    """Shapes that ``capture.targets`` declares and the engine does not capture."""
    if not not_planned:
        return []
    first = not_planned[0]
    shapes = "1 declared shape is" if len(not_planned) == 1 else f"{len(not_planned)} declared shapes are"
    return [f"{shapes} not captured by the engine, first {_named(first.shape)}: {first.reason}"]


def _named(shape: Mapping[str, Any] | str | None) -> str:
    try:
        return shorten(Shape.from_json(shape).tag, MAX_SHAPE_CHARACTERS)  # type: ignore[arg-type]
    except TagError:
        return "one that cannot be read"
