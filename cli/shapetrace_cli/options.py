"""Options that several commands have, spelled and explained alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from shapetrace_cli.text import plain

Command = TypeVar("Command", bound=Callable[..., Any])

PARALLEL = click.IntRange(1, 64)
"""More threads or processes than this only wait for each other."""

output = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "none"]), default="table", show_default=True,
    help="What is printed on standard output at the end.",
)  # fmt: skip
quiet = click.option("-q", "--quiet", is_flag=True, help="No progress.")
attempt_source = click.argument("source", metavar="NAME|s3://...|FOLDER")


def cluster_options(command: Command) -> Command:
    """Which cluster, as kubectl has it."""
    for option in (
        click.option("--context", default="", help="Context of the kubeconfig; the current one by default."),
        click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig file; KUBECONFIG by default."),
        click.option("-n", "--namespace", default="", help="Namespace of the ProfileRun; the context's by default."),
    ):
        command = option(command)
    return command


def _sha256(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value and not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise click.BadParameter(f"{plain(value, 80)!r} is no SHA-256: it has 64 hexadecimal digits")
    return value.lower()


def s3_options(command: Command) -> Command:
    """Which attempt of which bucket, and with whose credentials."""
    for option in (
        click.option(
            "--sha256", default="", metavar="HEX", callback=_sha256, help="SHA-256 that the manifest must have."
        ),
        click.option(
            "--credentials-secret", default=None, metavar="NAME", help="Take the S3 credentials from this Secret."
        ),
        click.option(
            "--use-run-credentials", is_flag=True, help="Take the S3 credentials from the Secret that the run names."
        ),
        click.option(
            "--path-style/--no-path-style", default=None, help="Bucket in the path; on by default with --endpoint."
        ),
        click.option("--ca-bundle", default="", metavar="FILE", help="PEM file with certificates to trust."),
        click.option("--region", default="", help="Region of the bucket."),
        click.option("--endpoint", default="", metavar="URL", help="Address of the S3 store as seen from here."),
        click.option(
            "--attempt",
            type=click.IntRange(1),
            default=None,
            help="An earlier attempt of the run; the last by default.",
        ),
    ):
        command = option(command)
    return command
