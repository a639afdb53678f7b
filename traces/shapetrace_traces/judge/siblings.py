"""What siblings say of variants: the traces of one size whose labels differ in an axis, and in as little else. Pure.

A label that leaves an axis out, which others of its runner have, has the value :data:`ABSENT` there: the default of an
engine is a variant as well. Siblings differ in one axis; where axes go together (a whole graph is also one of uniform
requests) no two labels differ in one of them only, and the nearest ones are compared.

Traces of one size are told apart by their operators, and where these are equal by how much was launched in their
stream captures: kernels that are no operators (Triton's) show nowhere else. Launches are a weak sign, for a number may
differ by chance, so they are used only where they differ at every size, and nearly always the same way round.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shapetrace_traces.judge.evidence import Trace

ABSENT = ""
"""The value of an axis that a label leaves out though others of its runner have it. No label can spell it."""

MIN_SIZES_BY_LAUNCHES = 3
"""Launches that differ at fewer sizes than this tell nothing: the first captures of a process set things up."""
MIN_USUAL_BY_LAUNCHES = 3
"""As many times as often as the other way round a number has to be the larger one."""

MAX_COMPARISONS = 10_000_000
"""Pairs of labels times axes of one runner: some ten seconds. 64 ranks of 70 sizes with 16 labels each need half."""

Values = tuple[str, ...]
"""A whole label: the value of each axis of its runner, in the order of their names."""
Word = Literal["proven", "distinct", "unproven", "contradicted"]
Told = Literal["operators", "launches", ""]


@dataclass(frozen=True)
class VariantFit:
    """What the evidence says of one axis of one trace."""

    word: Word
    evidence: str
    holds: str | None = None
    """The value that a contradicted trace really holds."""


Fits = dict[str, dict[str, VariantFit]]
"""Key -> axis -> fit."""


def named(axis: str, value: str) -> str:
    """A value in words."""
    return f"no {axis}" if value == ABSENT else f"{axis} {value}"


def held_values(label: Mapping[str, str], fits: Mapping[str, VariantFit]) -> dict[str, str]:
    """Axis -> value that a trace holds, as far as is known: that of its label, where nothing contradicts it."""
    held = {**label, **{axis: fit.holds for axis, fit in fits.items() if fit.holds is not None}}
    return {axis: value for axis, value in held.items() if value != ABSENT}


def grouped(traces: Iterable[Trace], by: Callable[[Trace], Any]) -> list[list[Trace]]:
    """The traces that have something in common."""
    groups: dict[Any, list[Trace]] = defaultdict(list)
    for trace in traces:
        groups[by(trace)].append(trace)
    return list(groups.values())


def axes_of(traces: Iterable[Trace]) -> list[str]:
    """All axes that the labels of these traces have."""
    return sorted({axis for trace in traces for axis in trace.shape.variants})


@dataclass(eq=False)
class _Pair:
    """Two siblings, in the order of their labels."""

    low: Trace
    high: Trace
    axes: tuple[int, ...]
    """Where their labels differ."""
    told: Told
    more: int
    """How many more launches the first one has; 0 where that is not known."""

    def other(self, trace: Trace) -> Trace:
        return self.high if trace is self.low else self.low


def judge_siblings(traces: Sequence[Trace], marked: Fits) -> Fits:
    """The fits of the traces of one runner, for each of its axes: of those that a label leaves out too.

    ``marked`` is what markers say of some: it holds.
    """
    axes = axes_of(traces)
    positions = grouped(traces, _position)
    if len(axes) * sum(len(position) ** 2 for position in positions) > MAX_COMPARISONS:
        unknown = VariantFit("unproven", "no marker, and the runner has too many labels to compare them")
        return {trace.key: dict.fromkeys(axes, unknown) | marked.get(trace.key, {}) for trace in traces}
    return _Runner(traces, axes, positions).fits(marked)


def _position(trace: Trace) -> tuple[int, int, int]:
    """What traces that are compared have in common, besides the runner."""
    return (trace.rank, trace.size, trace.epoch)


class _Runner:
    """The traces of one runner, compared."""

    def __init__(self, traces: Sequence[Trace], axes: Sequence[str], positions: Sequence[Sequence[Trace]]) -> None:
        self._traces = traces
        self._axes = axes
        self._label: dict[str, Values] = {
            trace.key: tuple(trace.shape.variants.get(axis, ABSENT) for axis in self._axes) for trace in traces
        }
        self._positions = positions
        self._nearest: dict[tuple[str, int], list[_Pair]] = {}
        self._alike: dict[Any, list[_Pair]] = defaultdict(list)
        """The values in which two labels differ -> the pairs that differ so."""
        for position in self._positions:
            self._compare(position)
        self._by_launches = self._tell_by_launches()
        self._marks = self._marked()

    def fits(self, marked: Fits) -> Fits:
        """One way to look at the pairs after the other."""
        found: Fits = {
            trace.key: {axis: self._among(trace, number) for number, axis in enumerate(self._axes)}
            for trace in self._traces
        }
        self._withdraw_chance(found)
        self._find_traded(found)
        for key, fits in marked.items():
            found[key].update(fits)
        self._find_permuted(found)
        return found

    # ---- pairs

    def _compare(self, position: Sequence[Trace]) -> None:
        pairs: dict[tuple[str, str], _Pair] = {}
        for trace in position:
            others = [(other, self._differing(trace, other)) for other in position if other is not trace]
            for number in range(len(self._axes)):
                found = _nearest([(other, axes) for other, axes in others if number in axes])
                self._nearest[trace.key, number] = [self._pair(pairs, trace, other, axes) for other, axes in found]
        for pair in pairs.values():
            if pair.low.sequence is not None and pair.high.sequence is not None:
                self._alike[self._difference(pair)].append(pair)

    def _differing(self, one: Trace, other: Trace) -> frozenset[int]:
        labels = zip(self._label[one.key], self._label[other.key], strict=True)
        return frozenset(number for number, (own, its) in enumerate(labels) if own != its)

    def _pair(self, pairs: dict[tuple[str, str], _Pair], one: Trace, other: Trace, axes: frozenset[int]) -> _Pair:
        low, high = sorted((one, other), key=lambda trace: (self._label[trace.key], trace.key))
        key = (low.key, high.key)
        if key not in pairs:
            (sequence, launches), (its_sequence, its_launches) = low.signature, high.signature
            more = 0 if launches is None or its_launches is None else launches - its_launches
            pairs[key] = _Pair(low, high, tuple(sorted(axes)), "operators" if sequence != its_sequence else "", more)
        return pairs[key]

    def _difference(self, pair: _Pair) -> tuple[tuple[int, str, str], ...]:
        low, high = self._label[pair.low.key], self._label[pair.high.key]
        return tuple((number, low[number], high[number]) for number in pair.axes)

    def _tell_by_launches(self) -> bool:
        """Find the pairs that launches tell apart; whether there are any, and none that differ by chance."""
        ways = []
        for pairs in self._alike.values():
            equal = [pair for pair in pairs if not pair.told]
            is_steady = _is_steady([same for context in self._contexts(equal) for same in _by_epoch(context)])
            if is_steady and len({pair.low.size for pair in equal}) >= MIN_SIZES_BY_LAUNCHES:
                ways.append("launches")
                is_more = _is_more(equal)
                # operators that differ in few traces tell nothing, but they hide nothing either
                for pair in [*equal, *self._by_few_operators(pairs)]:
                    if not pair.told or (pair.more and (pair.more > 0) is is_more):
                        pair.told = "launches"
            elif equal and not is_steady:
                ways.append("chance")
        return "launches" in ways and "chance" not in ways

    def _contexts(self, pairs: Iterable[_Pair]) -> list[list[_Pair]]:
        """Pairs that differ alike, by the values in which they do not differ."""
        contexts: dict[Values, list[_Pair]] = defaultdict(list)
        for pair in pairs:
            label = self._label[pair.low.key]
            contexts[tuple("" if n in pair.axes else value for n, value in enumerate(label))].append(pair)
        return list(contexts.values())

    def _by_few_operators(self, pairs: Iterable[_Pair]) -> list[_Pair]:
        """Those whose operators differ though they are equal in most of their context.

        What differs there is not the value: the first capture of a process sets things up that later ones find ready.
        """
        found = []
        for same in self._contexts(pairs):
            differing = [pair for pair in same if pair.told == "operators"]
            if 2 * len(differing) <= len(same):
                found += differing
        return found

    def _marked(self) -> dict[str, Any]:
        """Key -> by what a trace is known at other positions."""
        recorded = [trace for trace in self._traces if trace.sequence is not None]
        return {trace.key: trace.signature if self._by_launches else trace.sequence for trace in recorded}

    # ---- words

    def _among(self, trace: Trace, number: int) -> VariantFit:
        axis = self._axes[number]
        if trace.sequence is None:
            return VariantFit("unproven", "no operators were recorded")
        pairs = [pair for pair in self._nearest[trace.key, number] if pair.other(trace).sequence is not None]
        if not pairs:
            return VariantFit("unproven", "no marker, and no trace of another value to compare with")

        def values(chosen: Iterable[_Pair]) -> str:
            return ", ".join(sorted({named(axis, self._label[pair.other(trace).key][number]) for pair in chosen}))

        equal = [pair for pair in pairs if not pair.told]
        if equal:
            return VariantFit("unproven", f"indistinct: the same operators as {values(equal)}")
        what = " and ".join(sorted({pair.told for pair in pairs}, reverse=True))
        return VariantFit("distinct", f"{what} differ from {values(pairs)}")

    def _withdraw_chance(self, found: Fits) -> None:
        """Two values whose operators are equal at most positions and differ at a few."""
        for pairs in self._alike.values():
            for pair in self._by_few_operators(pairs):
                self._doubt(found, pair, "operators differ from {} here, and in few other traces")

    def _doubt(self, found: Fits, pair: _Pair, text: str) -> None:
        for trace in (pair.low, pair.high):
            for number in pair.axes:
                axis, value = self._axes[number], self._label[pair.other(trace).key][number]
                if found[trace.key][axis].word == "distinct":
                    found[trace.key][axis] = VariantFit("unproven", text.format(named(axis, value)))

    # ---- exchanges

    def _find_traded(self, found: Fits) -> None:
        """Two values whose operators are exchanged at some positions (rank, size, epoch, other variants).

        Most positions decide; the others hold each other's value. Where as many say so as say otherwise nobody knows
        which label is right, so none is distinct.
        """
        compared: dict[Any, list[_Pair]] = defaultdict(list)
        for difference, pairs in self._alike.items():
            for pair in pairs:
                words = {found[trace.key][self._axes[n]].word for trace in (pair.low, pair.high) for n in pair.axes}
                if pair.told and words == {"distinct"}:
                    held = frozenset((pair.low.sequence, pair.high.sequence)) if pair.told == "operators" else None
                    compared[difference, held].append(pair)
        for pairs in compared.values():
            ways = Counter(map(_way, pairs))
            if len(ways) < 2:
                continue
            (usual, most), (_, fewer) = ways.most_common(2)
            for pair in pairs:
                if most == fewer:
                    self._doubt(found, pair, f"its {pair.told} change places with {{}} between traces")
                elif _way(pair) != usual:
                    for trace in (pair.low, pair.high):
                        for number in pair.axes:
                            axis, value = self._axes[number], self._label[pair.other(trace).key][number]
                            text = f"the {pair.told} of {named(axis, value)} in {most} of {most + fewer} comparisons"
                            found[trace.key][axis] = VariantFit("contradicted", text, value)

    def _find_permuted(self, found: Fits) -> None:
        """Traces of one size whose labels changed places in several axes at once, so that no two of one axis traded.

        Each has the operators that another's whole label usually has, at most positions of the runner; and all of them
        together are labelled with what they hold, in another order. Where two hold the same (sparse attention that is
        dense at small sizes) nothing is contradicted. Axes that these operators do not tell apart are left out
        of the labels.
        """
        told = self._told(found)
        labels = {key: tuple(label[n] for n in told) for key, label in self._label.items()}
        users: dict[Any, Counter[Values]] = defaultdict(Counter)
        sizes: dict[Any, set[int]] = defaultdict(set)
        for trace in self._traces:
            if trace.key in self._marks:
                mark, label = self._marks[trace.key], labels[trace.key]
                users[mark][label] += 1
                sizes[mark, label].add(trace.size)
        usual = {mark: _usual(values) for mark, values in users.items()}
        for position in self._positions:
            recorded = [trace for trace in position if trace.key in self._marks]
            held = [
                usual[self._marks[trace.key]] or labels[trace.key] for trace in recorded
            ]  # where two have them, its own
            moved = [self._moved(told, labels[trace.key], values) for trace, values in zip(recorded, held, strict=True)]
            pairs = list(zip(recorded, moved, strict=True))
            if any(found[trace.key][self._axes[n]].word == "proven" for trace, values in pairs for n in values):
                continue
            is_known = all(usual[self._marks[trace.key]] is not None for trace in recorded)
            if not is_known or sorted(held) != sorted(labels[trace.key] for trace in position):
                for trace, values in pairs:
                    if len(sizes[self._marks[trace.key], labels[trace.key]]) == 1:
                        self._doubt_moved(found, trace, values)
                continue
            for (trace, values), whole in zip(pairs, held, strict=True):
                if any(found[trace.key][self._axes[n]].holds != value for n, value in values.items()):
                    names = [named(self._axes[n], value) for n, value in zip(told, whole, strict=True)]
                    fits = {
                        n: VariantFit("contradicted", f"the operators of {', '.join(names)} elsewhere", value)
                        for n, value in values.items()
                    }
                    found[trace.key].update({self._axes[n]: fit for n, fit in fits.items()})

    def _told(self, found: Fits) -> list[int]:
        """Axes whose values differ in what traces are known by at other positions."""
        marking = ("operators", "launches") if self._by_launches else ("operators",)
        told = {
            n
            for pairs in self._alike.values()
            for pair in pairs
            for n in pair.axes
            if pair.told in marking and found[pair.low.key][self._axes[n]].word != "unproven"
        }
        return sorted(told)

    def _moved(self, told: Sequence[int], own: Values, held: Values) -> dict[int, str]:
        """Axis -> value, where a trace holds another one than its label says."""
        return {n: value for n, value, claimed in zip(told, held, own, strict=True) if value != claimed}

    def _doubt_moved(self, found: Fits, trace: Trace, moved: Mapping[int, str]) -> None:
        """At this size alone it has the operators of others, whose own are not there: their trace is not one of the
        usual ones, or is missing."""
        for number, value in moved.items():
            for pair in self._nearest[trace.key, number]:
                if self._label[pair.other(trace).key][number] == value:
                    self._doubt(found, pair, "it or {} has the operators that the other has elsewhere")


def _nearest(others: Sequence[tuple[Trace, frozenset[int]]]) -> list[tuple[Trace, frozenset[int]]]:
    """Those whose labels differ in as little as can be: in no more than another of them, and in something else too."""
    sets = {axes for _, axes in others}
    least = {axes for axes in sets if not any(smaller < axes for smaller in sets)}
    return [(other, axes) for other, axes in others if axes in least]


def _way(pair: _Pair) -> Any:
    return pair.low.sequence if pair.told == "operators" else pair.more > 0


def _by_epoch(pairs: Iterable[_Pair]) -> list[list[_Pair]]:
    epochs: dict[int, list[_Pair]] = defaultdict(list)
    for pair in pairs:
        epochs[pair.low.epoch].append(pair)
    return list(epochs.values())


def _is_more(pairs: Sequence[_Pair]) -> bool:
    """Which way round launches usually differ."""
    return 2 * sum(pair.more > 0 for pair in pairs) >= len(pairs)


def _is_steady(groups: Sequence[Sequence[_Pair]]) -> bool:
    """Whether the launches of two values with equal operators differ by what the values are.

    By chance they would be equal somewhere, or go either way. Kernels that are chosen by size may turn the order round
    from some size on, and what the first capture of a process sets up at an end of a group (of one epoch, and of equal
    values otherwise): but not at a size between others of it, nor at all of several, and not by the very number by
    which they differ elsewhere.
    """
    pairs = [pair for group in groups for pair in group]
    if not pairs or 0 in [pair.more for pair in pairs]:
        return False
    is_more = _is_more(pairs)
    numbers = {-pair.more for pair in pairs if (pair.more > 0) is is_more}
    turned = 0
    for group in groups:
        usual = [pair.low.size for pair in group if (pair.more > 0) is is_more]
        others = [pair for pair in group if (pair.more > 0) is not is_more]
        sizes = {pair.low.size for pair in others}
        if usual:
            is_swap = all(min(usual) <= size <= max(usual) for size in sizes)
        else:
            is_swap = len(sizes) >= MIN_SIZES_BY_LAUNCHES
        if not is_swap or any(pair.more not in numbers for pair in others):
            return False
        turned += len(others)
    return len(pairs) - turned >= MIN_USUAL_BY_LAUNCHES * turned


def _usual(users: Counter[Values]) -> Values | None:
    """Whose operators they are at most positions; None where another has them more than half as often."""
    (values, most), *others = users.most_common(2)
    return None if others and 2 * others[0][1] > most else values
