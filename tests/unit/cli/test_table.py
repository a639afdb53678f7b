from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from shapetrace_cli import table
from shapetrace_cli.listing import Listing, Lost, Untagged, read_listing


@pytest.fixture
def listing(attempt: Path) -> Listing:
    return read_listing((attempt / "manifest.json").read_bytes())


def test_rows_are_shapes_and_columns_are_ranks(listing: Listing) -> None:
    made = table.grid(listing)
    assert made.headings == ("runner", "shape", "lora", "rank 0", "rank 1")
    assert [row[1:3] for row in made.rows] == [
        ("bs 1", "lora"),
        ("bs 1", "nolora"),
        ("bs 2", "lora"),
        ("bs 2", "nolora"),
    ]
    assert {cell for row in made.rows for cell in row[3:]} == {"proven/distinct"}


def test_a_missing_trace_is_shown_as_such(listing: Listing) -> None:
    made = table.grid(replace(listing, traces=listing.traces[:-1]))
    assert made.rows[-1][3:] == ("proven/distinct", "missing")


def test_many_ranks_are_folded_where_they_are_alike_then_shortened(listing: Listing) -> None:
    first = [trace for trace in listing.traces if trace.rank == 0]
    traces = tuple(
        replace(trace, rank=rank, size_support="contradicted" if rank == 5 else "proven")
        for rank in range(64)
        for trace in first
    )
    wide = replace(listing, traces=traces, ranks=tuple(range(64)))
    assert table.grid(wide, 120).headings[3:] == ("ranks 0-4", "ranks 5", "ranks 6-63")
    narrow = table.grid(wide, 60)
    assert narrow.rows[0][3:] == ("P/D", "X/D", "P/D")
    assert "X contradicted" in narrow.legend
    assert table.grid(wide, 10_000).headings[3] == "rank 0"


def test_without_a_terminal_the_table_is_aligned_text(listing: Listing) -> None:
    stream = io.StringIO()
    table.print_table(replace(listing, lost=(Lost(1, "DecodeRunner__bs_4", "spool full"),)), stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "runner        shape  lora    rank 0           rank 1"
    assert lines[2] == "DecodeRunner  bs 1   nolora  proven/distinct  proven/distinct"
    assert lines[5] == "support of size / lora"
    assert lines[6] == "profiling/demo attempt 1: Complete, 8/8 traces, 2 ranks"
    assert lines[7] == "lost on rank 1: DecodeRunner__bs_4: spool full"
    assert "\x1b" not in stream.getvalue()


def test_places_that_no_hook_covers_are_named_with_their_ranks(listing: Listing) -> None:
    places = tuple(Untagged(f"engine/lazy.py:{number} capture", (0, 1)) for number in range(12))
    shown = table.notes(replace(listing, untagged=places))
    assert shown[0] == "no hook covers engine/lazy.py:0 capture (rank 0, 1)"
    assert (len(shown), shown[-1]) == (11, "... and 2 more places")
    assert table.as_json(replace(listing, untagged=places[:1]))["untagged"] == [
        {"caller": "engine/lazy.py:0 capture", "ranks": [0, 1]}
    ]


def test_what_programs_read_says_its_version_as_that_of_the_other_commands_does(listing: Listing) -> None:
    assert table.as_json(listing)["v"] == 1


def test_on_a_terminal_the_same_cells_are_there(listing: Listing) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    table.print_table(listing, stream)
    assert stream.getvalue().count("distinct") == 8


def test_a_run_without_traces_has_a_summary_only(listing: Listing) -> None:
    stream = io.StringIO()
    table.print_table(replace(listing, traces=(), verdict="Partial", uploaded=0, failure="EngineFailed: x"), stream)
    assert stream.getvalue().splitlines()[0].endswith("Partial, 0/8 traces, 2 ranks")
