"""Arguments and help texts of the commands on traces that are there already: index and relabel."""

# ruff: noqa: PLC0415 - as in main.py: --help must not wait for what it does not need

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from shapetrace_cli import options
from shapetrace_cli.errors import EXIT_FAILED
from shapetrace_cli.output import printing
from shapetrace_cli.text import aligned, plain

_WIDTH = click.option(
    "--width", type=click.IntRange(1, 4096), default=1, show_default=True,
    help="Rows (tokens) of a request, where speculative decoding made them several and no name tells sizes.",
)  # fmt: skip
_PARALLEL = click.option("--parallel", type=options.PARALLEL, default=None, help="Processes that read files.")
_PLACE = click.argument("place", metavar="DIR|FILE", type=click.Path(path_type=Path, exists=True))


@click.command(
    "index",
    short_help="Say what a directory of capture traces really holds.",
    epilog="Exit code 0: Complete or Eager. 1: Mislabelled, Partial or NotIndexable; the reasons are named. "
    "2: wrong usage, or no trace there.",
)
@_PLACE
@_WIDTH
@_PARALLEL
@options.quiet
@options.output
def index_command(place: Path, width: int, parallel: int | None, quiet: bool, output: str) -> None:
    """Judge the labels of traces that anybody wrote: SGLang, vLLM, TraceLens, xDiT, or an attempt of ours.

    Every trace is read; names are taken for claims, and the rows of matrix products decide. Nothing is changed.

    \b
    Examples:
      shapetrace index /tmp/graph_capture_profile
      shapetrace index capture_traces -o json | jq '.captures[] | {file, claimed, measured}'
      shapetrace index trace.json.gz -o json | jq .index
    """
    from shapetrace_cli import foreign

    looked = foreign.look(place, width=width, parallel=parallel or foreign.processes(), quiet=quiet, stderr=sys.stderr)
    report = looked.report
    with printing():
        if output == "json":
            click.echo(json.dumps(looked.to_json(), indent=2))
        elif output == "table":
            click.echo(aligned(foreign.report_table(report)))
            for line in foreign.report_lines(report):
                click.echo(line)
    if not report.verdict.is_good:
        sys.exit(EXIT_FAILED)


@click.command(
    "relabel",
    short_help="Write rightly named copies of a directory of capture traces.",
    epilog="Exit code 0: every trace has its copy in OUT. 1: nothing was written, since evidence is missing for some "
    "names (with --skip-unsure: some have no copy). 2: wrong usage. DIR is never touched; OUT is there whole or not at "
    "all.",
)
@_PLACE
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--names", type=click.Choice(["tag", "upstream"]), default="tag", show_default=True,
    help="tag: traces/rank-00000/<tag>.json.gz, as in a run of ours. upstream: SGLang's own spelling from 0.5.22 on.",
)  # fmt: skip
@click.option("--skip-unsure", is_flag=True, help="Write those that can be named, and say which cannot.")
@_WIDTH
@_PARALLEL
@options.quiet
@options.output
def relabel_command(
    place: Path,
    out: Path,
    names: Any,
    skip_unsure: bool,
    width: int,
    parallel: int | None,
    quiet: bool,
    output: str,
) -> None:
    """Copy traces to OUT under the names of what they hold, and say so in their metadata.

    A combined file becomes one file for each capture window.

    \b
    Examples:
      shapetrace relabel /tmp/graph_capture_profile ./right
      shapetrace relabel cuda_graph_capture-DecodeCudaGraphRunner-TP-0.json.gz ./split --names upstream
    """
    from shapetrace_cli import foreign

    foreign.refuse_target(place, out)
    parallel = parallel or foreign.processes()
    report = foreign.look(place, width=width, parallel=parallel, quiet=quiet, stderr=sys.stderr).report
    try:
        plan, written = foreign.write_copies(
            place, out, report, names=names, skip=skip_unsure, quiet=quiet, stderr=sys.stderr
        )
    except foreign.RefusedError as error:
        if output == "json":
            with printing(error.message):
                click.echo(json.dumps(foreign.copies_json(error.plan, []), indent=2))
        raise
    there = foreign.there_are(written, plan, out)
    with printing(there):
        if output == "json":
            click.echo(json.dumps(foreign.copies_json(plan, written), indent=2))
        elif output == "table":
            click.echo(aligned(foreign.copies_table(written)))
    for key, why in plan.refused.items():
        click.echo(plain(f"{key}: {why}", 400), err=True)
    click.echo(there, err=True)
    if plan.refused:
        sys.exit(EXIT_FAILED)
