"""Size support: from the products of a family's traces to the fit of their labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.fit import Fit, Series, fit_family
from shapetrace_traces.judge.rivals import find_rival
from shapetrace_traces.judge.shortfall import find_shortfall
from shapetrace_traces.judge.stray import Products, find_stray

UNKNOWN_UNIT = "unknown"
"""Of a runner that no adapter describes."""
FORWARD = "the forward call"
"""Name of the witness ``rows``: the rows at the model's wrapped forward call."""


def judge_sizes(traces: Sequence[Trace]) -> dict[str, Fit]:
    """Key -> size support, for traces that could be indexed.

    First within each family. Where a family's rows fit no labels, the families of one runner are looked at together:
    a label that changed places with one of another variant shows only there.
    """
    found: dict[str, Fit] = {}
    for place in _grouped(traces, lambda trace: trace.place):
        families = _grouped(place, lambda trace: trace.variants)
        for family in families:
            found.update(_fit(family))
        undecided = {trace.key for trace in place if _is_undecided(found[trace.key])}
        if len(undecided) >= 2 and len(families) >= 2:
            together = {key: fit for key, fit in _fit(place).items() if fit.word == "contradicted"}
            if together.keys() <= undecided:  # an exact fit within a family is worth more than one across families
                found.update(together)
        for family in families:
            if all(found[trace.key].word == "consistent" for trace in family):
                found.update(_fit_but_one(family) or _fit_but_short(family))
            found.update(_not_shown(family, found))
    for trace in traces:
        if trace.shape.unit == UNKNOWN_UNIT and found[trace.key].word == "proven":
            text = f"{found[trace.key].evidence}, but what a size of this runner counts is not known"
            found[trace.key] = Fit("consistent", text)
    return found


def _not_shown(traces: Sequence[Trace], found: Mapping[str, Fit]) -> dict[str, Fit]:
    """The proven ones of a family whose labels may all have slipped by a factor between its products.

    The rows at the forward call are an answer, for a label that slipped does not claim them.
    """
    width = _claimed_rows(traces[0])
    proven = [trace for trace in traces if found[trace.key].word == "proven"]
    unseen = [trace for trace in proven if trace.witness("rows") != width * trace.size]
    if not unseen:
        return {}
    sizes = {trace.key: size for trace in traces if (size := _held(trace, found[trace.key])) is not None}
    rival = find_rival(sizes, build_series(traces), width)
    if rival is None:
        return {}
    why = f"{rival}: labels that all slipped so would look the same, and no forward call was seen with the size"
    return {trace.key: Fit("consistent", f"{found[trace.key].evidence}, but {why}") for trace in unseen}


def _held(trace: Trace, fit: Fit) -> int | None:
    """The size that a trace holds as far as is known."""
    if fit.word != "contradicted":
        return None if fit.word == "unproven" else trace.size
    return int(fit.holds) if fit.holds is not None and fit.holds.isdecimal() else None


def _is_undecided(fit: Fit) -> bool:
    return fit.word == "consistent" and not fit.is_scaled


def _grouped(traces: Iterable[Trace], by: Any) -> list[list[Trace]]:
    groups: dict[Any, list[Trace]] = defaultdict(list)
    for trace in traces:
        groups[by(trace)].append(trace)
    return list(groups.values())


def _claims(
    traces: Sequence[Trace],
) -> tuple[dict[str, int], dict[str, Products], list[Series], int]:
    """What a family claims and what it shows: labels and products of each trace, their series, rows for each unit."""
    labels = {trace.key: trace.size for trace in traces}
    products = {trace.key: trace.products for trace in traces}
    return labels, products, build_series(traces), _claimed_rows(traces[0])


def _fit_but_one(traces: Sequence[Trace]) -> dict[str, Fit]:
    """The fit of a family whose labels fit but for one that is too large; empty where that is not so."""
    labels, _, _, width = claims = _claims(traces)
    stray = find_stray(*claims)
    if stray is None:
        return {}
    seen = next(trace.witness("rows") for trace in traces if trace.key == stray.trace)
    if seen == width * labels[stray.trace]:
        return {}  # the forward call had the rows: they may have been sharded within it, at this size only
    wrong = Fit("contradicted", stray.evidence, str(stray.size))
    return {**_fit(traces, {stray.trace: stray.size}), stray.trace: wrong}


def _fit_but_short(traces: Sequence[Trace]) -> dict[str, Fit]:
    """The fit of a family some of whose labels claim more rows than there are; empty where none does."""
    labels, _, _, width = claims = _claims(traces)
    shortfall = find_shortfall(*claims)
    if shortfall is None:
        return {}
    seen = {trace.key: trace.witness("rows") for trace in traces}
    short = {key: Fit("unproven", text) for key, text in shortfall.evidence.items() if seen[key] != width * labels[key]}
    if not shortfall.is_rule_known or len(short) < len(shortfall.evidence):
        return dict(short)
    others = _fit([trace for trace in traces if trace.key not in short])
    return {**{key: fit for key, fit in others.items() if fit.word == "proven"}, **short}


def _fit(traces: Sequence[Trace], held: Mapping[str, int] = MappingProxyType({})) -> dict[str, Fit]:
    """The fit of the labels; of ``held`` (key -> size) where it names another size."""
    labels = {trace.key: held.get(trace.key, trace.size) for trace in traces}
    width = _claimed_rows(traces[0])
    products = fit_family(labels, build_series(traces), width)
    forward = fit_family(labels, _forward(traces), width)
    return {key: _weigh(fit, forward[key]) for key, fit in products.items()}


def _claimed_rows(trace: Trace) -> int:
    """How many rows a label claims for each unit of its size: a request has as many tokens as its runner is wide."""
    label = trace.shape
    return label.runner.width or 1 if label.unit == "bs" else 1


def _weigh(products: Fit, forward: Fit) -> Fit:
    """The trace's own products, and the rows that the record of its capture saw at the forward call.

    A record may be right while the trace beside it is another's: so the forward call proves nothing by itself and
    protects no label, but it speaks against one.
    """
    if products.word == "proven" and (forward.word == "contradicted" or forward.is_scaled):
        return Fit("consistent", f"{products.evidence}, but {forward.evidence}")
    if products.word == "consistent" and forward.word == "contradicted":
        return forward
    if products.is_scaled and forward.word == "proven":
        return Fit("proven", f"{products.evidence}; {forward.evidence}")
    return products


def build_series(traces: Sequence[Trace]) -> list[Series]:
    """The series of a family: each product of the model."""
    products: dict[str, dict[str, Mapping[int, int]]] = defaultdict(dict)
    for trace in traces:
        for name, rows in trace.products.items():
            if rows:
                products[name][trace.key] = rows
    series: list[Series] = []
    for name, by_trace in sorted(products.items()):
        series += _tracks(name, by_trace)
    return series


def _forward(traces: Sequence[Trace]) -> list[Series]:
    seen = {trace.key: trace.witness("rows") for trace in traces}
    return [Series(FORWARD, {key: rows for key, rows in seen.items() if _is_count(rows)})]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _tracks(name: str, by_trace: Mapping[str, Mapping[int, int]]) -> list[Series]:
    """A product whose calls have several row counts, as one series for each.

    Calls with the same rows in every trace (an output head on the last token, experts of constant capacity) are taken
    off first, so that a constant that happens to equal one trace's size hides nothing. What is left is told apart by
    its order: of two factors the larger one has more rows in every trace.
    """
    if len(by_trace) < 2:
        return []
    several = _factors(name, by_trace)
    if several:
        return several
    everywhere = set.intersection(*(set(rows) for rows in by_trace.values()))
    constant = {count: min(rows[count] for rows in by_trace.values()) for count in everywhere}
    left: dict[str, list[tuple[int, int]]] = {}
    for key, rows in by_trace.items():
        rest = [(count, calls - constant.get(count, 0)) for count, calls in sorted(rows.items())]
        left[key] = [(count, calls) for count, calls in rest if calls > 0]
    lengths = {len(rest) for rest in left.values()}
    if len(lengths) == 1:
        return [
            Series(
                name, {key: rest[track][0] for key, rest in left.items()}, min(rest[track][1] for rest in left.values())
            )
            for track in range(lengths.pop())
        ]
    # two row counts that coincide at some sizes: the largest is still the larger factor's
    most = {key: rest[-1] for key, rest in left.items() if rest}
    if len(most) < len(left):
        return []  # experts: at some sizes nothing but the constant is left, so what is left elsewhere is chance
    return [
        Series(name, {key: rows for key, (rows, _) in most.items()}, min(calls for _, calls in most.values()), False)
    ]


def _factors(name: str, by_trace: Mapping[str, Mapping[int, int]]) -> list[Series]:
    """The tracks of a product whose row counts stand in the same proportion in every trace: factors of one number.

    Of few sizes, twice the smaller one may be the larger one, which is no constant then. No label is looked at.
    """
    left = {key: sorted(rows.items()) for key, rows in by_trace.items()}
    patterns = {tuple(Fraction(count, rest[0][0]) for count, _ in rest) for rest in left.values()}
    if len(patterns) != 1 or len(next(iter(patterns))) < 2:
        return []
    return [
        Series(name, {key: rest[track][0] for key, rest in left.items()}, min(rest[track][1] for rest in left.values()))
        for track in range(len(next(iter(patterns))))
    ]
