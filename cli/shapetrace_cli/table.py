"""The table of shapes x ranks with each trace's support: what to show is decided here, how is at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from shapetrace_contract import VERSION
from shapetrace_contract.message import counted

from shapetrace_cli.listing import Listing, Trace
from shapetrace_cli.text import aligned, column_widths

MISSING = "missing"
_STYLES = {
    "proven": "green",
    "distinct": "green",
    "consistent": "cyan",
    "unproven": "yellow",
    "contradicted": "bold red",
    MISSING: "bold red",
}
_LETTERS = {"proven": "P", "distinct": "D", "consistent": "C", "unproven": "U", "contradicted": "X", MISSING: "!"}
_TERMINAL_COLUMNS_FALLBACK = 120
MAX_CELLS = 250_000
"""Of a table: a thousand ranks with 250 shapes each take seconds; a manifest may claim any number."""


@dataclass(frozen=True)
class Grid:
    """The table as text. Every row has as many cells as there are headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: str

    @property
    def width(self) -> int:
        """Characters of the widest line of :func:`aligned`."""
        return sum(column_widths(self.lines)) + 2 * (len(self.headings) - 1)

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """Headings and rows."""
        return (self.headings, *self.rows)


def grid(listing: Listing, width: int = _TERMINAL_COLUMNS_FALLBACK) -> Grid:
    """Rows are shapes (largest size last), columns are ranks; a cell says the support of size and of each axis.

    Where the full words do not fit ``width`` characters, equal columns of neighbouring ranks are folded into one, then
    the words into letters.
    """
    axes = sorted({axis for trace in listing.traces for axis in trace.variants})
    for fold, letters in ((False, False), (True, False), (True, True)):
        made = _grid(listing, axes, fold, letters)
        if made.width <= width:
            return made
    return made


def _grid(listing: Listing, axes: Sequence[str], fold: bool, letters: bool) -> Grid:
    by_row: dict[tuple[object, ...], dict[int, Trace]] = {}
    for trace in sorted(
        listing.traces, key=lambda trace: (trace.runner, trace.unit, trace.stage, trace.size, trace.row)
    ):
        by_row.setdefault(trace.row, {})[trace.rank] = trace
    columns = [
        (str(rank), tuple(_cell(cells.get(rank), axes, letters) for cells in by_row.values())) for rank in listing.ranks
    ]
    if fold:
        columns = _folded(columns)
    samples = [next(iter(cells.values())) for cells in by_row.values()]
    heads = [
        ("runner", [trace.runner for trace in samples]),
        ("shape", [f"{trace.unit} {trace.size}" for trace in samples]),
        *((axis, [trace.variants.get(axis, "-") for trace in samples]) for axis in axes),
        ("epoch", [str(trace.epoch) for trace in samples]),
        ("stage", [trace.stage for trace in samples]),
    ]
    # what is the same in every row and says nothing new is left out
    shown = [head for head in heads if head[0] not in {"epoch", "stage"} or not set(head[1]) <= {"1", "capture"}]
    word = "rank" if len(columns) < 2 or not fold else "ranks"
    return Grid(
        headings=(*(name for name, _ in shown), *(f"{word} {name}" for name, _ in columns)),
        rows=tuple(
            (*(texts[index] for _, texts in shown), *(cells[index] for _, cells in columns))
            for index in range(len(samples))
        ),
        legend=_legend(axes, letters),
    )


def _cell(trace: Trace | None, axes: Sequence[str], letters: bool) -> str:
    if trace is None:
        return _LETTERS[MISSING] if letters else MISSING
    words = [trace.size_support, *(trace.variant_support.get(axis, "-") for axis in axes if axis in trace.variants)]
    text = "/".join(_LETTERS.get(word, "?") if letters else word for word in words)
    return f"{text}*" if trace.dirty else text


def _folded(columns: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...]]]:
    """Neighbours with equal cells become one column, named ``0-7``."""
    out: list[tuple[str, tuple[str, ...]]] = []
    for name, cells in columns:
        if out and out[-1][1] == cells:
            out[-1] = (f"{out[-1][0].split('-')[0]}-{name}", cells)
        else:
            out.append((name, cells))
    return out


def _legend(axes: Sequence[str], letters: bool) -> str:
    text = f"support of {' / '.join(['size', *axes])}"
    if letters:
        text += ": " + ", ".join(f"{letter} {word}" for word, letter in _LETTERS.items())
    return text


def summary(listing: Listing) -> str:
    """``quickstart: Complete, 32/32 traces, 2 ranks``; the counts are the manifest's."""
    expected = "?" if listing.expected is None else listing.expected
    name = "/".join(str(listing.run[key]) for key in ("namespace", "name") if listing.run.get(key)) or "run"
    attempt = f" attempt {listing.run['attempt']}" if listing.run.get("attempt") else ""
    ranks = counted(len(listing.ranks), "rank")
    return f"{name}{attempt}: {listing.verdict}, {listing.uploaded}/{expected} traces, {ranks}"


def notes(listing: Listing, limit: int = 10) -> list[str]:
    """What a person has to know beside the table: the first cause, reasons, losses, places without a hook.

    At most ``limit`` each.
    """
    lines = [f"first cause: {listing.failure}"] if listing.failure else []
    lost = [
        f"lost{'' if item.rank is None else f' on rank {item.rank}'}: {item.tag}: {item.error}" for item in listing.lost
    ]
    outside = [
        f"no hook covers {item.caller}" + (f" (rank {', '.join(map(str, item.ranks[:8]))})" if item.ranks else "")
        for item in listing.untagged
    ]
    for items, what in ((list(listing.reasons), "reasons"), (lost, "lost traces"), (outside, "places")):
        lines += items[:limit]
        if len(items) > limit:
            lines.append(f"... and {len(items) - limit} more {what}")
    return lines


def as_json(listing: Listing) -> dict[str, object]:
    """The table for programs."""
    return {
        "v": VERSION,
        "run": dict(listing.run),
        "verdict": listing.verdict,
        "expected": listing.expected,
        "uploaded": listing.uploaded,
        "ranks": [{"rank": rank, "verdict": listing.rank_verdicts.get(rank)} for rank in listing.ranks],
        "traces": [_trace_json(trace) for trace in listing.traces],
        "lost": [{"rank": item.rank, "tag": item.tag, "error": item.error} for item in listing.lost],
        "untagged": [{"caller": item.caller, "ranks": list(item.ranks)} for item in listing.untagged],
        "reasons": list(listing.reasons),
        "failure": listing.failure or None,
    }


def _trace_json(trace: Trace) -> Mapping[str, object]:
    support = {"size": trace.size_support, "variants": dict(trace.variant_support)}
    shape = {"runner": trace.runner, "unit": trace.unit, "size": trace.size, "variants": dict(trace.variants)}
    return {"key": trace.key, "rank": trace.rank, "tag": trace.tag, "shape": shape, "support": support}


def print_table(listing: Listing, stream: IO[str]) -> None:
    """Summary, table and notes; coloured where ``stream`` is a terminal, aligned text otherwise."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    shapes, ranks = len({trace.row for trace in listing.traces}), len(listing.ranks)
    if shapes * ranks > MAX_CELLS:
        left_out = f"{shapes} shapes x {ranks} ranks are too many for a table; -o json lists them"
        print(left_out, summary(listing), *notes(listing), sep="\n", file=stream)
        return
    made = grid(listing, console.width - 1 if console.is_terminal else _TERMINAL_COLUMNS_FALLBACK)
    if not made.rows:
        print(summary(listing), *notes(listing), sep="\n", file=stream)
        return
    if not console.is_terminal:
        print(aligned(made.lines), made.legend, summary(listing), *notes(listing), sep="\n", file=stream)
        return
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        caption=Text(made.legend, style="dim"),
        caption_justify="left",
    )
    for heading in made.headings:
        table.add_column(Text(heading), no_wrap=True)
    for row in made.rows:
        table.add_row(*(_styled(cell) for cell in row))
    console.print(table)
    console.print(Text(summary(listing), style="bold"))
    for line in notes(listing):
        console.print(Text(line, style="yellow"), soft_wrap=True)


def _styled(cell: str) -> Text:
    text = Text()
    words = cell.split("/")
    for index, word in enumerate(words):
        text.append("/" if index else "")
        text.append(word, style=_STYLES.get(word.rstrip("*"), ""))
    return text
