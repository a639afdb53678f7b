"""Variant support: markers first, then the siblings of a trace."""

from __future__ import annotations

from collections.abc import Sequence

from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.markers import Marker, MarkerTable
from shapetrace_traces.judge.siblings import Fits, VariantFit, axes_of, grouped, judge_siblings


def judge_variants(traces: Sequence[Trace], table: MarkerTable) -> Fits:
    """Key -> axis -> support, for traces that could be indexed.

    Of an axis that a label leaves out it is said only that it is contradicted: that the trace holds a value of it.
    """
    found: Fits = {}
    for of_runner in grouped(traces, lambda trace: trace.runner):
        fits = judge_siblings(of_runner, _by_marker(of_runner, table))
        for trace in of_runner:
            found[trace.key] = {
                axis: fit
                for axis, fit in fits[trace.key].items()
                if axis in trace.shape.variants or fit.word == "contradicted"
            }
    return found


def _by_marker(traces: Sequence[Trace], table: MarkerTable) -> Fits:
    """What the markers say of the traces of one runner."""
    found: Fits = {trace.key: {} for trace in traces}
    for axis in axes_of(traces):
        labelled = [(trace, trace.shape.variants[axis]) for trace in traces if axis in trace.shape.variants]
        known = [(trace, value, table.find(axis, trace)) for trace, value in labelled if table.knows(axis, value)]
        shared = {marker.value for _, value, marker in known if marker is not None and marker.value != value}
        for trace, value, marker in known:
            if marker is None or (not marker.is_exclusive and marker.value in shared):
                continue
            if marker.value == value:
                found[trace.key][axis] = VariantFit("proven", _shown(marker, trace))
            else:
                found[trace.key][axis] = VariantFit("contradicted", _shown(marker, trace), marker.value)
    return found


def _shown(marker: Marker, trace: Trace) -> str:
    if marker.windows is not None:
        return "1 stream capture" if trace.windows == 1 else f"{trace.windows} stream captures"
    called = [f"{trace.operators[name]} {name}" for name in marker.present if trace.operators.get(name)]
    return ", ".join([*called[:1], *(f"no {name}" for name in marker.absent)])
