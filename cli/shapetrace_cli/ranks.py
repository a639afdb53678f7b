"""The ranks of a run while it goes on: a live table on a terminal, a line whenever something changed anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.reasons import RankState

from shapetrace_cli.text import plain, size_text

_LINE_EVERY_SECONDS = 2.0
"""Between two lines of counters; a change of state is told at once."""
_MAX_ROWS = 32
"""More ranks do not fit a screen; the line above the table counts all."""
_MAX_RANKS_IN_A_LINE = 8
"""One node's usual number of devices; more is for the table of a terminal and for ``kubectl get -o yaml``."""
_STATE_STYLES = {
    RankState.DONE.value: "green",
    RankState.FAILED.value: "bold red",
    RankState.LOST.value: "bold red",
    RankState.CAPTURING.value: "cyan",
}


def counters(ranks: Sequence[RankProgress]) -> str:
    """``12/32 traces stored, 1/2 ranks done``; ``?`` until every rank has said what it plans."""
    uploaded = sum(entry.uploaded for entry in ranks)
    known = [entry.expected for entry in ranks if entry.expected is not None]
    expected = str(sum(known)) if ranks and len(known) == len(ranks) else "?"
    done = sum(entry.state == RankState.DONE.value for entry in ranks)
    failed = sum(entry.failed for entry in ranks)
    lost = f", {failed} lost" if failed else ""
    return f"{uploaded}/{expected} traces stored{lost}, {done}/{len(ranks) or '?'} ranks done"


def each(ranks: Sequence[RankProgress]) -> str:
    """``rank 0 Capturing 8/16, rank 1 Loading 0/?``; empty for more ranks than a line can show."""
    if not 1 < len(ranks) <= _MAX_RANKS_IN_A_LINE:
        return ""
    words = [
        f"rank {entry.rank} {plain(entry.state)} {entry.uploaded}/{'?' if entry.expected is None else entry.expected}"
        for entry in ranks
    ]
    return " (" + ", ".join(words) + ")"


class RanksView:
    """Shows what :meth:`update` is told."""

    def __init__(self, stream: IO[str], *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._quiet, self._clock = stream, quiet, clock
        self._began = clock()
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._states: object = None
        self._last_line, self._last_time = "", 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        if self._live is not None:
            self._live.console.print(plain(text), soft_wrap=True)
        elif not self._quiet:
            print(f"{self._seconds} {plain(text)}", file=self._stream, flush=True)

    def update(self, phase: str, ranks: Sequence[RankProgress]) -> None:
        """The counters as they are now."""
        if self._live is not None:
            self._live.update(_screen(f"{phase}: {counters(ranks)}", self._seconds, ranks))
            return
        states = (phase, tuple((entry.rank, entry.state) for entry in ranks))
        line = f"{phase}: {counters(ranks)}{each(ranks)}"
        late = self._clock() - self._last_time >= _LINE_EVERY_SECONDS
        if self._quiet or line == self._last_line or (states == self._states and not late):
            return
        self._states, self._last_line, self._last_time = states, line, self._clock()
        self.say(line)

    @property
    def _seconds(self) -> str:
        return f"{self._clock() - self._began:5.0f} s"


def _screen(title: str, seconds: str, ranks: Sequence[RankProgress]) -> Group:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("rank", "state", "stored", "", "size", "last shape"):
        table.add_column(heading, no_wrap=True)
    for entry in ranks[:_MAX_ROWS]:
        total = entry.expected
        table.add_row(
            Text(str(entry.rank)),
            Text(plain(entry.state), style=_STATE_STYLES.get(entry.state, "")),
            Text(f"{entry.uploaded}/{'?' if total is None else total}"),
            ProgressBar(total=max(total or 1, 1), completed=entry.uploaded, width=24),
            Text(size_text(entry.bytes)),
            Text(plain(entry.message or entry.lastShape or "", 60)),
        )
    if len(ranks) > _MAX_ROWS:
        table.caption = f"and {len(ranks) - _MAX_ROWS} more ranks"
    return Group(Text(f"{seconds}  {plain(title)}", style="bold"), table)
