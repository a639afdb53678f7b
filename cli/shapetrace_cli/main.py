"""Arguments and help texts; what the commands do is in their own files, loaded when a command needs them."""

# ruff: noqa: PLC0415 - the client, the models and the tables take most of a second, and --help needs none of them

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from shapetrace_cli import options
from shapetrace_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, CliError, UsageError
from shapetrace_cli.output import next_step, printing
from shapetrace_cli.text import plain
from shapetrace_cli.trace_commands import index_command, relabel_command

if TYPE_CHECKING:
    from shapetrace_cli.source import Source


def _version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("shapetrace")
    except PackageNotFoundError:
        number = "unknown"
    click.echo(f"shapetrace, version {number}")
    context.exit()


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Also as a kubectl plugin: kubectl shapetrace fetch NAME DIR",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Traces of captured GPU graphs: one per shape and rank, each with the evidence for its label."""


def _open(source: str, given: dict[str, Any]) -> Source:
    from shapetrace_cli.cluster import ClusterOptions
    from shapetrace_cli.source import S3Options, open_source

    return open_source(
        source,
        s3=S3Options(given["endpoint"], given["region"], given["ca_bundle"], given["path_style"]),
        cluster=ClusterOptions(given["kubeconfig"], given["context"], given["namespace"]),
        attempt=given["attempt"],
        secret=given["credentials_secret"],
        use_run_credentials=given["use_run_credentials"],
        environment=os.environ,
    )


@cli.command(
    "fetch",
    short_help="Fetch and verify a run's traces.",
    epilog="Exit code 0: everything that the manifest lists is in DIR and verified. 1: something is missing or "
    "differs, each is named, or nothing was captured. 2: wrong usage. "
    "Run it again to go on; what is right already is not fetched again.",
)
@options.attempt_source
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@options.cluster_options
@options.s3_options
@click.option("--logs/--no-logs", default=True, show_default=True, help="Also the engines' logs.")
@click.option("--parts", is_flag=True, help="Also the per-rank indexes that the manifest was made from.")
@click.option("--parallel", type=options.PARALLEL, default=8, show_default=True, help="Objects at once.")
@options.quiet
@options.output
def _fetch(source: str, folder: Path, **given: Any) -> None:
    """Fetch the traces of a ProfileRun into DIR and check every size and SHA-256.

    DIR gets the attempt's folder: traces/rank-00000/..., environment.json, logs/ and, last, manifest.json.

    \b
    Examples:
      shapetrace fetch quickstart ./out
      shapetrace fetch glm -n profiling ./out --use-run-credentials
      shapetrace fetch s3://traces/team/profiling/glm/5f0c.../attempt-1/ ./out --endpoint https://s3.example.org
    """
    from shapetrace_cli import fetch, table

    opened = _open(source, given)
    result = fetch.fetch(
        opened,
        folder,
        sha256=given["sha256"],
        logs=given["logs"],
        parts=given["parts"],
        parallel=given["parallel"],
        quiet=given["quiet"],
        stderr=sys.stderr,
    )
    ending = fetch.ending(result, folder)
    with printing(ending[-1]):
        if given["output"] == "json":
            faults = [{"key": item.wanted.key, "message": item.message} for item in result.faults]
            click.echo(json.dumps({**table.as_json(result.listing), "folder": str(folder), "faults": faults}, indent=2))
        elif given["output"] == "table":
            table.print_table(result.listing, sys.stdout)
    for line in ending:
        click.echo(plain(line), err=True)
    if result.listing.traces and not result.faults and not given["quiet"]:
        click.echo(next_step(folder), err=True)
    if result.faults or not result.listing.traces:
        sys.exit(EXIT_FAILED)


@cli.command(
    "show",
    short_help="Show the table of a run's traces without fetching them.",
    epilog="Exit code 0: shown. 1: the manifest cannot be read. 2: wrong usage.",
)
@options.attempt_source
@options.cluster_options
@options.s3_options
@options.output
def _show(source: str, **given: Any) -> None:
    """Show shapes x ranks with each trace's support, from the manifest alone.

    \b
    Examples:
      shapetrace show ./out
      shapetrace show quickstart -o json
    """
    from shapetrace_cli import table
    from shapetrace_cli.source import read_manifest

    _, listing = read_manifest(_open(source, given), given["sha256"])
    with printing():
        if given["output"] == "json":
            click.echo(json.dumps(table.as_json(listing), indent=2))
        elif given["output"] == "table":
            table.print_table(listing, sys.stdout)


@cli.command(
    "verify",
    short_help="Check every object of a run against its manifest.",
    epilog="Exit code 0: everything that the manifest lists is there, whole and what its label says; late objects are "
    "named and do no harm. 1: something is missing or differs, each is named. 2: wrong usage.",
)
@options.attempt_source
@options.cluster_options
@options.s3_options
@click.option("--parallel", type=options.PARALLEL, default=4, show_default=True, help="Objects at once.")
@options.quiet
@options.output
def _verify(source: str, **given: Any) -> None:
    """Read every trace that a manifest lists, where it is stored: size, SHA-256, whole gzip, metadata, tag and span.

    \b
    Examples:
      shapetrace verify ./out
      shapetrace verify s3://traces/team/profiling/glm/5f0c.../attempt-1/ --endpoint https://s3.example.org
    """
    from shapetrace_cli import verify

    result = verify.verify(
        _open(source, given),
        sha256=given["sha256"],
        parallel=given["parallel"],
        quiet=given["quiet"],
        stderr=sys.stderr,
    )
    with printing():
        if given["output"] == "json":
            click.echo(json.dumps(result.to_json(), indent=2))
        elif given["output"] == "table":
            for line in verify.lines(result):
                click.echo(line)
    if not result.is_right:
        sys.exit(EXIT_FAILED)


@cli.command(
    "watch",
    short_help="Show the ranks of a run until it ends.",
    epilog="Exit code 0: the run succeeded. 1: it failed, or is not finished in time. 2: wrong usage.",
)
@click.argument("name")
@options.cluster_options
@click.option(
    "--timeout", "timeout_seconds", type=click.FloatRange(1), default=3600, show_default=True, help="Seconds at most."
)
@click.option("-q", "--quiet", is_flag=True, help="Only the end.")
def _watch(name: str, timeout_seconds: float, quiet: bool, **given: str) -> None:
    """Show phase, counters and ranks of a ProfileRun until it is finished.

    \b
    Example:
      shapetrace watch quickstart -n profiling
    """
    from shapetrace_cli import watch
    from shapetrace_cli.cluster import Cluster, ClusterOptions
    from shapetrace_cli.ranks import RanksView

    cluster = Cluster(ClusterOptions(given["kubeconfig"], given["context"], given["namespace"]))
    end = watch.watch(cluster, name, RanksView(sys.stderr, quiet=quiet), timeout_seconds=timeout_seconds)
    with printing():
        click.echo(f"{plain(name)}  {end.summary}")
    if not end.succeeded:
        sys.exit(EXIT_FAILED)


@cli.command(
    "run-local",
    short_help="Run a ProfileRun on this machine, without Kubernetes.",
    epilog="Exit code 0: the verdict is Complete or Eager, and capture.strict is met where it is set. 1: it is another "
    "one, or something failed; DIR/logs tells more. 2: wrong usage, also a DIR with the result of an earlier run "
    "without --replace, unless that run captured nothing.",
)
@click.argument("file", metavar="FILE.yaml", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where results go."
)
@click.option("--replace", is_flag=True, help="Remove the result of an earlier run from DIR first.")
@click.option("--name", default="", help="Which ProfileRun of FILE, where it holds several.")
@click.option("--python", default=sys.executable, metavar="PROGRAM", help="Python of the engine; it needs torch.")
@options.quiet
@options.output
def _run_local(file: Path, out: Path, **given: Any) -> None:
    """Run the engine, capture, collector and finish of a ProfileRun as processes of this machine.

    No Kubernetes and no root. Traces go to DIR instead of the bucket, in the layout of an attempt's folder; images,
    placement and Secrets of the file are not used. Relative paths in engine.args, such as a script's, are taken from
    the current folder (in a cluster: from the image's working directory); python3 in them is --python.

    \b
    Example:
      shapetrace run-local examples/quickstart.yaml --out ./out
    """
    from shapetrace_cli import table
    from shapetrace_cli.local.run import run_local
    from shapetrace_cli.runfile import read_run

    result = run_local(
        read_run(file, given["name"]),
        out,
        python=_program_path(given["python"]),
        replace=given["replace"],
        quiet=given["quiet"],
        stderr=sys.stderr,
        environment=os.environ,
    )
    with printing(f"What the run left is in {plain(out)}."):
        if result.listing is not None and given["output"] == "json":
            click.echo(json.dumps({**table.as_json(result.listing), "folder": str(out)}, indent=2))
        elif result.listing is not None and given["output"] == "table":
            table.print_table(result.listing, sys.stdout)
    nothing = result.listing is not None and not result.listing.traces
    what = "logs are in" if nothing or result.listing is None else f"traces and manifest.json are in {out}, logs in"
    click.echo(f"{what} {out / 'logs'}", err=True)
    if result.listing is not None and not nothing and not given["quiet"]:
        click.echo(next_step(out), err=True)
    if result.cause or nothing:
        words = ["nothing was captured" if nothing else "", plain(result.cause)]
        begin = "error: " if result.exit_code else ""  # an engine that runs without graphs by choice has none
        click.echo(begin + ": ".join(word for word in words if word), err=True)
    if result.hint:
        click.echo(plain(result.hint), err=True)
    sys.exit(result.exit_code)


def _program_path(text: str) -> str:
    """The program as a path; :class:`UsageError` where there is none."""
    found = shutil.which(text)
    if found is None:
        raise UsageError(f"there is no program {text!r}", "Give --python the path of a Python interpreter.")
    return found


cli.add_command(index_command)
cli.add_command(relabel_command)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit. A person's errors have no traceback; SHAPETRACE_DEBUG=1 shows one."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows fewer characters than a manifest
    try:
        code = cli.main(args=arguments, prog_name=_program(sys.argv[0]), standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except CliError as error:
        if os.environ.get("SHAPETRACE_DEBUG"):
            raise
        click.echo(f"error: {plain(error.message)}", err=True)
        if error.hint:
            click.echo(plain(error.hint), err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted; the same command goes on where it was", err=True)
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)  # threads that wait for a store would hold up an ordinary end
    except BrokenPipeError:  # `shapetrace show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except MemoryError:
        if os.environ.get("SHAPETRACE_DEBUG"):
            raise
        click.echo("error: there is not enough memory", err=True)
        sys.exit(EXIT_FAILED)
    except OSError as error:
        if os.environ.get("SHAPETRACE_DEBUG"):
            raise
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {plain(f'{where}{error.strerror or error}')}", err=True)
        sys.exit(EXIT_FAILED)


def _program(argument: str) -> str:
    """``kubectl shapetrace`` where kubectl calls us as its plugin."""
    return "kubectl shapetrace" if Path(argument).name.startswith("kubectl-") else "shapetrace"
