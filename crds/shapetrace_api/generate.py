"""``python -m shapetrace_api.generate [--check]``: write the CRD beside its models, or say whether it is up to date."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from shapetrace_api.crd import custom_resource_definition

TARGET = Path(__file__).resolve().parents[1] / "shapetrace.dev_profileruns.yaml"
_HEADER = "# Made by `make generate` from crds/shapetrace_api. Do not edit.\n"


def text() -> str:
    """The CRD as YAML, the same bytes for the same models."""
    body = yaml.safe_dump(custom_resource_definition(), sort_keys=False, allow_unicode=True, width=110)
    return f"{_HEADER}---\n{body}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0: written, or up to date; 1: ``--check`` found a difference, which is printed."""
    parser = argparse.ArgumentParser(prog="shapetrace_api.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the file is out of date")
    parser.add_argument("--output", type=Path, default=TARGET, help="the file (default: %(default)s)")
    options = parser.parse_args(arguments)
    wanted = text()
    if not options.check:
        options.output.write_text(wanted)
        return 0
    found = options.output.read_text() if options.output.exists() else ""
    difference = list(difflib.unified_diff(found.splitlines(), wanted.splitlines(), str(options.output), "generated"))
    if difference:
        print("\n".join(difference))
        print(f"{options.output} is out of date: run `make generate`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
