"""Judging the captures of a directory: for each, what it is labelled with, what it really holds, and what shows it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapetrace_contract.tag import Shape, TagError

from shapetrace_traces.foreign.captures import Capture
from shapetrace_traces.foreign.claims import Other, fit_sizes, other_claims
from shapetrace_traces.foreign.exchange import Moved, sort_out
from shapetrace_traces.foreign.names import Layout
from shapetrace_traces.foreign.sizes import ROWS, as_trace, claim_of, is_by_tokens, measured_labels
from shapetrace_traces.foreign.slip import Slip, find_slip
from shapetrace_traces.foreign.turns import UNNAMED, Turn, name_turns
from shapetrace_traces.judge.evidence import Trace
from shapetrace_traces.judge.fit import Fit
from shapetrace_traces.judge.identity import find_duplicates, find_mismatch
from shapetrace_traces.judge.siblings import VariantFit, held_values, named
from shapetrace_traces.judge.size import build_series


@dataclass(frozen=True)
class Finding:
    """One capture, judged."""

    capture: Capture
    claimed: Shape | None
    source: str
    """What claims it; empty where nothing does."""
    shape: Shape | None
    """What it really holds; None where that is not known."""
    size: str
    """Support of :attr:`shape`'s size: ``proven``, ``consistent``, ``unproven``; ``contradicted`` where the size is
    wrong and no other can be given."""
    variants: Mapping[str, str]
    """Axis -> support of its value in :attr:`shape`."""
    rank: int | None
    evidence: tuple[str, ...]
    wrong: tuple[str, ...]
    """How the trace contradicts its label; empty where it does not."""
    duplicates: tuple[str, ...] = ()
    origin: str = ""
    """What its label was made from: its source, or the span or the rows where nobody wrote one."""


def judge_captures(captures: Sequence[Capture], width: int = 1) -> list[Finding]:
    """Judge all captures of a directory together. Pure. ``width`` is how many rows a request has where no name says."""
    claims = {capture.key: claim for capture in captures if (claim := claim_of(capture)) is not None}
    # a name of one capture cannot be that of each window in the file
    unlabelled = [capture for capture in captures if capture.key not in claims or capture.window is not None]
    measured = measured_labels(unlabelled, width)
    windows = Counter(capture.file for capture in captures if capture.window is not None)
    given = {key: claim for key, claim in claims.items() if key not in {capture.key for capture in unlabelled}}
    labels = {key: shape for key, (shape, _) in (given | measured).items()}
    traces = {capture.key: as_trace(capture, labels[capture.key]) for capture in captures if capture.key in labels}
    sizes: dict[str, Fit] = {}
    moved: dict[str, Moved] = {}
    variants: dict[str, Mapping[str, VariantFit]] = {}
    for keys in (given, measured):  # labels made here are no claims: they speak for or against no name
        group = [trace for key, trace in traces.items() if key in keys]
        sizes |= fit_sizes(group)
        of_group, fits = sort_out(group, sizes)
        moved |= of_group
        variants |= fits
    others = other_claims(captures, traces)
    duplicates = find_duplicates(list(traces.values()))
    slips = _slips(captures, traces)
    turns = _turns(captures, traces, slips)
    ranks = _wrong_ranks(captures)
    found = []
    for capture in captures:
        label = labels.get(capture.key)
        claimed, source = claims.get(capture.key, (None, ""))
        rank, wrong_rank = ranks.get(capture.key, (capture.rank, ""))
        if label is None:
            text = "neither name nor events tell a size: were shapes recorded?"
            found.append(Finding(capture, claimed, source, None, "unproven", {}, rank, (text,), ()))
            continue
        judged = _Judged(label, sizes[capture.key], variants.get(capture.key, {}))
        if capture.key in moved:
            judged.move(moved[capture.key])
        if capture.key in slips:
            judged.slip(slips[capture.key], capture.key, turns[capture.key])
        origin = measured[capture.key][1] if capture.key in measured else source
        if ROWS in (origin, capture.copied_from):
            judged.of_rows(1 if is_by_tokens(capture) else width, origin)
        if capture.window is not None:
            judged.of_many(claimed, source, windows[capture.file])
        judged.look_inside(traces[capture.key], capture, "" if capture.window is not None else source)
        if capture.key in others:
            judged.hear(others[capture.key], origin, capture.copied_from == ROWS)
        if wrong_rank:
            judged.wrong.append(wrong_rank)
        found.append(judged.finding(capture, claimed, source, rank, duplicates.get(capture.key, ()), origin))
    return found


class _Judged:
    """What is known of one capture while its evidence is gone through."""

    def __init__(self, label: Shape, size: Fit, variants: Mapping[str, VariantFit]) -> None:
        self.label = label
        self.word: str = size.word
        self.held: int | None = None if size.word == "unproven" else label.size
        self.values = held_values(label.variants, variants)
        self.support: dict[str, str] = {axis: fit.word for axis, fit in variants.items()}
        self.evidence = [f"size: {size.evidence}", *(f"{axis}: {fit.evidence}" for axis, fit in variants.items())]
        self.wrong: list[str] = []
        if size.word == "contradicted":
            self.held = int(size.holds) if size.holds is not None and size.holds.isdecimal() else None
            self.wrong.append(f"holds size {size.holds or 'another'} ({size.evidence})")
            self.word = "proven" if self.held is not None else "contradicted"
        for axis, fit in variants.items():
            if fit.holds is not None:
                self.support[axis] = "distinct"
                self.wrong.append(f"holds {named(axis, fit.holds)} ({fit.evidence})")

    def move(self, moved: Moved) -> None:
        """Its size is wrong, so that its name is no witness of its variants."""
        if moved.shape is None:
            self.held, self.word = None, "unproven"
        else:
            self.values = dict(moved.shape.variants)
        if moved.evidence:
            self.wrong.append(moved.evidence)

    def slip(self, slip: Slip, key: str, turn: Turn) -> None:
        """The labels came from a cursor."""
        self.held = slip.held[key]
        self.word = "proven"
        shown = f"{slip.series.name} rows {slip.series.rows[key]} = {slip.factor} x {self.held}"
        each = f"{slip.each} captures a size, named as if each were the next size"
        self.evidence = [f"size: {shown}; {each}", *(f"{axis}: {turn.evidence}" for axis in turn.variants)]
        self.values = dict(turn.variants)
        self.support = dict.fromkeys(turn.variants, "distinct" if turn.is_distinct else "unproven")
        what = ", ".join([f"size {self.held}", *(f"{axis} {value}" for axis, value in turn.variants.items())])
        if self.held != self.label.size:
            self.wrong = [f"holds {what} ({shown})"]
        else:
            self.wrong = [f"holds {what}, and the name says no {' or '.join(turn.variants)}"]

    def of_rows(self, width: int, origin: str) -> None:
        """The label was made from rows, here or when the trace was copied: they are no second witness of it."""
        if self.word == "contradicted" or self.wrong:  # some products say one thing and some another: nobody knows
            if origin == ROWS:
                self.held, self.word, self.wrong = None, "unproven", []
            return
        self.word = min(self.word, "consistent", key=("unproven", "consistent", "proven").index)
        each = "a row each" if width == 1 else f"{width} rows each"
        made = f"its size was taken from its rows, {each}: there was no label to hold against them"
        self.evidence[0] = f"{self.evidence[0]}; {made}"

    def of_many(self, claimed: Shape | None, source: str, count: int) -> None:
        """It is a window of a file: what labels the file with one size contradicts the others in it."""
        if claimed is not None and self.held is not None and claimed.size != self.held:
            text = f"holds size {self.held}, one of {count} captures in a file whose name says {claimed.tag}"
            self.wrong.append(text if source == "its name" else text.replace("whose name", f"of which {source}"))

    def look_inside(self, trace: Trace, capture: Capture, source: str) -> None:
        """What the trace says of itself beside a shape: stage and rank in our metadata, the engine's span."""
        mismatch = find_mismatch(trace)
        if mismatch is not None:
            self.wrong += [f"holds {text}" for text in mismatch.notes]
        if capture.span is None or source in ("", "its metadata") or self.wrong:
            return
        size, mode = capture.span
        # a plain decode has one token a request; tokens are meant elsewhere, which may be several a request
        if size != self.label.size and (mode == "DECODE" or source == "execution_details.json"):
            self.wrong.append(f"holds size {size} (its span capture_{size}_{mode})")
            self.held, self.word = size, "consistent"
            self.evidence[0] = f"size: its span capture_{size}_{mode}"

    def hear(self, other: Other, origin: str, is_of_rows: bool) -> None:
        """Metadata or a span of ours says another shape than the label: the one that the events prove is right."""
        shape, held = other.shape, self._shape()
        says = " and ".join(f"{said.tag} by {where}" for where, said in other.said.items())
        if self.word == "proven" and held is not None:
            if shape is not None and shape.tag == held.tag:
                return
            if all(said.size != held.size for said in other.said.values()):
                self.wrong.append(f"holds {held.tag} ({self.evidence[0]}), and not {says}")
                return
        elif shape is not None and other.size.word == "proven" and not is_of_rows:
            self.label, self.held, self.word = shape, shape.size, "proven"
            self.values = dict(shape.variants)
            self.support = {axis: fit.word for axis, fit in other.variants.items()}
            fits = {"size": other.size.evidence, **{axis: fit.evidence for axis, fit in other.variants.items()}}
            self.evidence = [f"{name}: {text}" for name, text in fits.items()]
            self.wrong = [f"holds {says} ({other.size.evidence})"]
            return
        self.wrong = [f"holds {self.label.tag} by {origin} and {says}: which of them, its events do not tell"]
        self.held, self.word = None, "unproven"

    def _shape(self) -> Shape | None:
        if self.held is None:
            return None
        try:
            return Shape(self.label.runner, self.label.unit, self.held, self.values, self.label.epoch)
        except TagError as error:
            self.evidence.append(f"tag: {error}")
            return None

    def finding(
        self,
        capture: Capture,
        claimed: Shape | None,
        source: str,
        rank: int | None,
        duplicates: tuple[str, ...],
        origin: str,
    ) -> Finding:
        """The result."""
        shape = self._shape()
        return Finding(
            capture,
            claimed,
            source,
            shape,
            self.word,
            {axis: self.support.get(axis, "unproven") for axis in self.values},
            rank,
            tuple(self.evidence),
            tuple(self.wrong),
            duplicates,
            origin,
        )


def _slips(captures: Sequence[Capture], traces: Mapping[str, Trace]) -> dict[str, Slip]:
    found: dict[str, Slip] = {}
    steps = {capture.key: capture.step for capture in captures}
    families: dict[tuple[int | None, str | None], list[Trace]] = defaultdict(list)
    for capture in captures:
        if capture.name.layout is Layout.SGLANG_SIZE and capture.metadata is None and capture.key in traces:
            families[capture.rank, capture.runner].append(traces[capture.key])
    for family in families.values():
        of_family = {trace.key: steps[trace.key] for trace in family}
        sizes = {trace.key: trace.size for trace in family}
        sequences = {trace.key: trace.sequence for trace in family}
        slip = find_slip(sizes, build_series(family), of_family, sequences)
        if slip is not None:
            found.update(dict.fromkeys(slip.held, slip))
    return found


def _turns(captures: Sequence[Capture], traces: Mapping[str, Trace], slips: Mapping[str, Slip]) -> dict[str, Turn]:
    by_key = {capture.key: capture for capture in captures}
    found: dict[str, Turn] = {}
    for slip in {id(slip): slip for slip in slips.values()}.values():
        found.update(name_turns({key: by_key[key] for key in slip.held}, slip.turns, slip.held))
    return found


def _wrong_ranks(captures: Sequence[Capture]) -> dict[str, tuple[int, str]]:
    """Files whose names changed ranks: only where the names tell all ranks of the world, so that they mean them."""
    found: dict[str, tuple[int, str]] = {}
    named = {capture.name.rank for capture in captures}
    for capture in captures:
        told, claimed = capture.extra.get("traceRank"), capture.name.rank
        if capture.metadata is not None and claimed is not None and capture.rank != claimed:
            found[capture.key] = capture.rank or 0, f"holds rank {capture.rank} (its metadata)"
        if capture.metadata is not None or not isinstance(told, int) or claimed is None or told == claimed:
            continue
        if capture.extra.get("worldSize") == len(named) and told in named:
            found[capture.key] = told, f"holds rank {told} (its distributedInfo)"
    return found


def tell_apart(findings: Sequence[Finding]) -> dict[str, Shape]:
    """Key -> a shape of its own, for captures of one rank that hold the same shape and differ in their events.

    Those of a combined file, and vLLM's (whose names and spans leave variants out), get ``variant-<n>`` in the order in
    which they were captured. Captures that nothing tells apart are left as they are: equal. So are those with a shape
    in their names: what a name says or leaves out is not made up.
    """
    groups: dict[tuple[int | None, str], list[Finding]] = defaultdict(list)
    for item in findings:
        is_named = item.capture.window is None and item.capture.name.shape is not None
        if item.shape is not None and not item.duplicates and not is_named:
            groups[item.rank, item.shape.tag].append(item)
    found: dict[str, Shape] = {}
    for group in groups.values():
        signatures = Counter(item.capture.signature for item in group)
        if len(group) < 2 or max(signatures.values()) > 1:
            continue
        if any(item.capture.began_nanoseconds is None and item.capture.window is None for item in group):
            continue
        order = sorted(group, key=lambda item: (item.capture.began_nanoseconds or 0, item.capture.window or 0))
        for number, item in enumerate(order, 1):
            assert item.shape is not None
            variants = {**item.shape.variants, UNNAMED: str(number)}
            found[item.capture.key] = Shape(item.shape.runner, item.shape.unit, item.shape.size, variants)
    return found
