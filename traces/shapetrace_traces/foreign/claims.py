"""What else a trace says of itself: our metadata and spans, against its label. Events decide between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shapetrace_contract.tag import Shape

from shapetrace_traces.foreign.captures import Capture
from shapetrace_traces.foreign.sizes import as_trace
from shapetrace_traces.judge.evidence import Trace, shape_of, texts
from shapetrace_traces.judge.fit import Fit
from shapetrace_traces.judge.markers import MarkerTable
from shapetrace_traces.judge.siblings import VariantFit
from shapetrace_traces.judge.size import judge_sizes
from shapetrace_traces.judge.variants import judge_variants


@dataclass(frozen=True)
class Other:
    """What a trace says of itself that is not its label, and how well the events bear it out."""

    said: Mapping[str, Shape]
    """Where -> shape: ``its metadata``, ``its span``."""
    size: Fit
    """The fit if that were the label; of the label itself where two shapes are said."""
    variants: Mapping[str, VariantFit]

    @property
    def shape(self) -> Shape | None:
        """The one shape that is said, None where there are two."""
        shapes = list(self.said.values())
        return shapes[0] if all(shape == shapes[0] for shape in shapes) else None


def fit_sizes(traces: Sequence[Trace]) -> dict[str, Fit]:
    """The judge's fit, in which an engine's span speaks against a label and never for it.

    Span and name come from one number of the engine, so where both are wrong they agree: rows alone can prove.
    """
    seen, alone = judge_sizes(traces), judge_sizes([replace(trace, witnesses={}) for trace in traces])
    return {key: _weaker(fit, alone[key]) for key, fit in seen.items()}


def _weaker(fit: Fit, alone: Fit) -> Fit:
    if "contradicted" in (fit.word, alone.word):
        # rows contradict and a span does not: of two witnesses one is wrong
        return fit if fit.word == "contradicted" else Fit("unproven", alone.evidence)
    order = ("unproven", "consistent", "proven").index
    return alone if order(alone.word) < order(fit.word) else fit


def other_claims(captures: Sequence[Capture], traces: Mapping[str, Trace]) -> dict[str, Other]:
    """Key -> what a trace says of itself, for traces that say something else than their label."""
    said = {key: found for key, trace in traces.items() if (found := _said(trace))}
    if not said:
        return {}
    by_key = {capture.key: capture for capture in captures}
    labelled = dict(traces)
    for key, shapes in said.items():
        if len({shape.tag for shape in shapes.values()}) == 1:
            labelled[key] = as_trace(by_key[key], next(iter(shapes.values())))
    sizes = fit_sizes(list(labelled.values()))
    variants = judge_variants(list(labelled.values()), MarkerTable())
    return {key: Other(shapes, sizes[key], variants.get(key, {})) for key, shapes in said.items()}


def _said(trace: Trace) -> dict[str, Shape]:
    metadata = trace.index.get("metadata")
    own = shape_of(metadata.get("tag")) if isinstance(metadata, Mapping) else None
    found = {} if own is None else {"its metadata": own}
    spans = texts(trace.index.get("spans"))
    if trace.tag not in spans:
        named = [shape for shape in map(shape_of, spans) if shape is not None]
        found |= {"its span": named[0]} if named else {}
    return {where: shape for where, shape in found.items() if shape.tag != trace.tag}
