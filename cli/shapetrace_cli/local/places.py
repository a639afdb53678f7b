"""Preparing and clearing the folders of a local run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

from shapetrace_contract import keys, names

from shapetrace_cli.errors import CliError, UsageError
from shapetrace_cli.listing import read_listing
from shapetrace_cli.local.advice import GET_TORCH
from shapetrace_cli.local.layout import WORK, Layout

_FOLDERS = (keys.CLAIMS, keys.TRACES, keys.REPLAYS, keys.PARTS, keys.LOGS)
_OURS = (*(folder.rstrip("/") for folder in _FOLDERS), keys.ENVIRONMENT, keys.MANIFEST, WORK)
"""What a local run leaves in its folder; nothing else is ever removed."""
_TRACES = (keys.TRACES, keys.REPLAYS)
PAYLOAD = ("shapetrace_contract", "shapetrace_capture", "shapetrace_launcher", "shapetrace_engine")
"""What the pod's payload holds: the engine sees these of us and nothing more."""
DISTRIBUTION = "shapetrace-capture"
"""The name under which they are installed."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the memory-backed place that Linux gives every user
_PROBE = "import importlib.util as u, sys; print(sys.version_info >= (3, 10), u.find_spec('torch') is not None)"
_PROBE_SECONDS = 60
"""A cold interpreter on a slow disk; torch itself is not imported."""


def prepare_out(out: Path, *, replace: bool) -> None:
    """An output folder without an earlier result; ``replace`` removes one. Foreign files are never touched.

    What a run left that captured nothing is no result: a second try needs no ``replace``.
    """
    work = out / WORK
    if work.is_dir():  # of a run that was killed: nobody holds the folder's lock any more
        shutil.rmtree(work)
    there = [name for name in _OURS if (out / name).exists()]
    if there and not replace and not (_is_ours(out) and _holds_no_trace(out)):
        raise UsageError(
            f"{out} holds the result of a run already ({there[0]})",
            "Name another folder, or give --replace to remove that result first.",
        )
    if there and not _is_ours(out):
        raise UsageError(f"{out} holds {there[0]}, and it is not clear that it is ours", "Name another folder.")
    for name in there:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _holds_no_trace(out: Path) -> bool:
    """Whether no trace lies there, and none is listed."""
    if any(path.is_symlink() or not path.is_dir() for name in _TRACES for path in (out / name).rglob("*")):
        return False
    try:
        return not read_listing((out / keys.MANIFEST).read_bytes()).traces
    except FileNotFoundError:
        return True
    except (OSError, CliError):
        return False


def _is_ours(out: Path) -> bool:
    """Whether a local run or a fetch left this: its log, or a manifest of ours."""
    if (out / "logs" / f"{names.CONTAINER_PREFLIGHT}.log").is_file():
        return True
    try:
        return bool(read_listing((out / keys.MANIFEST).read_bytes()).run)
    except (OSError, CliError):
        return False


def make_temporary(spool_bytes: int, shared_memory: Path = SHARED_MEMORY) -> Path:
    """A new folder for spool and payload: memory where that has room, as in a pod, else where tempfile says."""
    try:
        roomy = shutil.disk_usage(shared_memory).free >= spool_bytes
        if roomy:
            return Path(tempfile.mkdtemp(prefix="shapetrace-", dir=shared_memory))
    except OSError:
        pass  # not there, or not ours to write
    return Path(tempfile.mkdtemp(prefix="shapetrace-"))


def make_payload(folder: Path) -> None:
    """Links to the packages of the payload: another Python gets these from us, and none of our dependencies."""
    folder.mkdir(parents=True)
    for name in PAYLOAD:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise CliError(f"the package {name} is not installed", "pip install shapetrace-capture")
        (folder / name).symlink_to(Path(found.submodule_search_locations[0]).resolve())
    _announce_plugins(folder)


def _announce_plugins(folder: Path) -> None:
    """What tells SGLang and vLLM of our plugin: the metadata of an installed package beside the packages."""
    installed = importlib.metadata.distribution(DISTRIBUTION)
    described = folder / f"{DISTRIBUTION.replace('-', '_')}-{installed.version}.dist-info"
    described.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (described / name).write_text(installed.read_text(name) or "")


def check_python(python: str, *, needs_torch: bool) -> None:
    """:class:`UsageError` where ``python`` cannot run the engine, saying how to get one that can."""
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the person named
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        recent, torch = done.stdout.split()[-2:]
    except (OSError, subprocess.TimeoutExpired, ValueError):
        raise UsageError(f"{python} is no Python that can be run") from None
    if recent != "True":
        raise UsageError(f"{python} is older than Python 3.10, which the engine needs", "Name another with --python.")
    if needs_torch and torch != "True":
        raise UsageError(
            f"{python} has no torch, which the engine needs",
            f"{GET_TORCH} that has it with --python.",
        )


def deliver(layout: Layout) -> None:
    """Move the attempt's folder out of the store into the output, ``manifest.json`` last."""
    if layout.attempt.is_dir():
        entries = [path for path in sorted(layout.attempt.iterdir()) if not path.name.startswith(".")]
        for path in sorted(entries, key=lambda path: path.name == keys.MANIFEST):
            _merge(path, layout.out / path.name)
    shutil.rmtree(layout.work, ignore_errors=True)


def _merge(source: Path, target: Path) -> None:
    """Rename; a folder that is there already (logs) gets the content instead."""
    if source.is_dir() and target.is_dir():
        for path in source.iterdir():
            _merge(path, target / path.name)
    else:
        source.replace(target)
