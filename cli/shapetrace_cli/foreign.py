"""``shapetrace index`` and ``shapetrace relabel``: directories of traces that others wrote."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from shapetrace_contract import VERSION, keys
from shapetrace_contract.message import counted
from shapetrace_traces.foreign import File, Report, Standing, list_files, make_report, read_file
from shapetrace_traces.foreign.lacking import ROLE_TEXTS
from shapetrace_traces.foreign.names import read_name
from shapetrace_traces.foreign.own import OwnManifest, read_own
from shapetrace_traces.foreign.plan import Names, Plan, make_plan
from shapetrace_traces.foreign.relabel import RelabelError, Written, check_target, relabel
from shapetrace_traces.foreign.scan import base_of, read_details
from shapetrace_traces.reader import UnreadableTraceError

from shapetrace_cli.errors import CliError, UsageError
from shapetrace_cli.report import Reporter
from shapetrace_cli.text import plain, size_text

_ALONE_BYTES = 16 * 1024 * 1024
"""Of files: fewer are read before other processes have even started."""
MAX_REFUSALS = 20


@dataclass(frozen=True)
class Looked:
    """A directory or a file that was read and judged."""

    report: Report
    index: Mapping[str, Any] | None
    """Of one file: every field of docs/trace-index.md. None of a directory."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return self.report.to_json() | ({} if self.index is None else {"index": dict(self.index)})


def look(place: Path, *, width: int, parallel: int, quiet: bool, stderr: IO[str]) -> Looked:
    """Read a directory, or one file, and judge it. :class:`UsageError` where it holds no trace at all."""
    try:
        paths = list_files(place)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename or place} cannot be listed: {error.strerror or error}") from None
    base, own = base_of(place), OwnManifest()
    if place.is_dir():
        paths, own = [path for path in paths if path != keys.MANIFEST], read_own(place)
    total_bytes = sum(_size(base / path) for path in paths)
    files: list[File] = []
    with Reporter(place.name or str(place), len(paths), total_bytes, stderr, quiet=quiet) as reporter:
        reporter.begin(f"reading {counted(len(paths), 'file')}, {size_text(total_bytes)}")
        for file in _read(base, paths, 1 if total_bytes < _ALONE_BYTES else parallel):
            files.append(file)
            reporter.step(file.bytes)
        report = make_report(files, read_details(base, paths), own=own, width=width)
    if not (report.roles or report.damaged or report.lacking or own.manifest or own.fault):
        raise UsageError(
            f"{place} holds no trace", "Traces are Chrome JSON, plain or gzip, as torch's profiler writes."
        )
    return Looked(report, None if place.is_dir() else files[0].index)


def _read(base: Path, paths: Sequence[str], parallel: int) -> Iterator[File]:
    if parallel < 2 or len(paths) < 2:
        yield from (read_file(base, path) for path in paths)
        return
    # spawned: a forked child would have the lock of a bar that is being drawn, and not the thread that draws it
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(parallel, len(paths)), mp_context=context) as pool:
        try:
            yield from pool.map(partial(read_file, base), paths)
        except BrokenProcessPool:
            raise CliError(
                f"a process that read files of {base} was ended from outside, for want of memory perhaps",
                "--parallel 1 needs less of it.",
            ) from None


def _size(path: Path) -> int:
    """Bytes to read; none of what is no regular file, or gone."""
    try:
        status = path.stat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def processes() -> int:
    """How many read at once, where nobody says."""
    return min(8, os.cpu_count() or 1)


class RefusedError(CliError):
    """Nothing was written, for want of evidence."""

    def __init__(self, plan: Plan, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.plan = plan


def write_copies(
    place: Path, out: Path, report: Report, *, names: Names, skip: bool, quiet: bool, stderr: IO[str]
) -> tuple[Plan, list[Written]]:
    """Write rightly named copies. :class:`CliError` names every trace for whose name evidence is missing."""
    plan = make_plan(report, names)
    if plan.refused and not (skip and plan.copies):
        for key, why in list(plan.refused.items())[:MAX_REFUSALS]:
            print(plain(f"{key}: {why}", 400), file=stderr)
        count = len(plan.refused)
        if count > MAX_REFUSALS:
            print(f"... and {count - MAX_REFUSALS} more; -o json has them", file=stderr)
        raise RefusedError(
            plan,
            f"nothing was written: {count} of {counted(count + len(plan.copies), 'trace')} cannot be named",
            "--skip-unsure writes the others." if plan.copies else f"shapetrace index {place} says more.",
        )
    if not plan.copies:
        raise CliError(f"nothing was written: no trace in {place} has a shape", f"shapetrace index {place} says why.")
    base = base_of(place)
    sources = {copy.finding.capture.file for copy in plan.copies}
    total_bytes = sum(_size(base / path) for path in sources)
    with Reporter(out.name or str(out), len(sources), total_bytes, stderr, quiet=quiet) as reporter:
        what = f"{counted(len(plan.copies), 'trace')} from {counted(len(sources), 'file')}"
        reporter.begin(f"writing {what}, {size_text(total_bytes)}")
        try:
            return plan, relabel(base, plan, out, reporter.step)
        except (RelabelError, UnreadableTraceError) as error:
            raise CliError(f"nothing was written: {error}") from None
        except OSError as error:
            raise CliError(f"nothing was written: {_os_text(error, out)}", _os_hint(error, out)) from None


def refuse_target(place: Path, out: Path) -> None:
    """Before anything is read: :class:`UsageError` for a target that cannot be used."""
    try:
        check_target(base_of(place), out)
    except RelabelError as error:
        raise UsageError(f"nothing was written: {error}", "Name a new folder outside of what is read.") from None
    except OSError as error:
        raise UsageError(f"nothing was written: {_os_text(error, out)}") from None


def _os_text(error: OSError, place: Path) -> str:
    return f"{error.filename or place}: {error.strerror or error}"


def _os_hint(error: OSError, out: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"Copies take about as much room as the traces; name a folder that has it instead of {out}."
    return ""


def there_are(written: Sequence[Written], plan: Plan, out: Path) -> str:
    """What stands at the end: how many have new names, and how many no copy."""
    windows = sum(item.copy.finding.capture.window is not None for item in written)
    renamed = sum(map(_is_renamed, written)) - windows
    kept, refused = len(written) - windows - renamed, len(plan.refused)
    parts = [f"{renamed} renamed"] if renamed else []
    parts += [f"{windows} split from combined files"] if windows else []
    parts += [f"{kept} kept {'its name' if kept == 1 else 'their names'}"] if kept else []
    parts += [f"{refused} more {'has' if refused == 1 else 'have'} no copy, named above"] if refused else []
    there = f"{counted(len(written), 'trace')} {'is' if len(written) == 1 else 'are'} in {plain(out)}"
    return f"{there}: {', '.join(parts)}"


def _is_renamed(item: Written) -> bool:
    """Whether the copy's file has another name; the folders are those of the new directory anyway."""
    capture = item.copy.finding.capture
    return capture.window is not None or Path(item.copy.target).name != Path(capture.file).name


def report_table(report: Report) -> list[tuple[str, ...]]:
    """Heading and one line for each capture and each file that cannot be read; what is wrong comes first."""
    rows: list[tuple[str, ...]] = [("FILE", "RANK", "LABEL", "HOLDS", "SUPPORT")]
    for item in sorted(report.findings, key=lambda item: not item.wrong):
        label = "-" if item.claimed is None else shape_text(item.claimed)
        words = "/".join([item.size, *item.variants.values()])
        holds = "?" if item.shape is None else shape_text(item.shape)
        if item.shape == item.claimed and not (item.wrong or item.shape is None):
            holds = "="
        rank = "-" if item.rank is None else str(item.rank)
        rows.append((item.capture.key, rank, label, holds, f"{words}{' WRONG' if item.wrong else ''}"))
    others = {path: ROLE_TEXTS[role] for path, role in report.roles.items() if role in ROLE_TEXTS}
    others |= {path: "no trace" for path in report.lacking if path not in report.roles}
    rows += [
        (path, "-", _claim(path), what, "no capture" if path in report.lacking else "-")
        for path, what in others.items()
    ]
    rows += [(path, "-", _claim(path), "?", "cannot be read") for path in report.damaged]
    return [tuple(plain(cell, 120) for cell in row) for row in rows]


def _claim(path: str) -> str:
    shape = read_name(path).shape
    return "-" if shape is None else shape_text(shape)


def shape_text(shape: Any) -> str:
    """``bs 8 attention=dense``."""
    return " ".join([f"{shape.unit} {shape.size}", *(f"{axis}={value}" for axis, value in shape.variants.items())])


def report_lines(report: Report, limit: int = 20) -> list[str]:
    """The verdict and its reasons, for a person."""
    lines = [*_legend(report), _verdict_line(report)]
    for items in (report.reasons, _support_lines(report), report.notes):
        lines += items[:limit]
        if len(items) > limit:
            lines.append(f"... and {len(items) - limit} more; -o json has them")
    return [plain(line, 400) for line in lines]


def _legend(report: Report) -> list[str]:
    """What the words of the table mean, of those that are in it."""
    if not report.findings:
        return []
    axes = sorted({axis for item in report.findings for axis in item.variants})
    text = "a size is proven by the rows of matrix products, or only consistent with them"
    if axes:
        text += "; a variant is proven by operators that only it has, distinct from its siblings, or unproven"
    return [f"support of {' / '.join(['size', *axes])}; = is what the label says", text]


def _verdict_line(report: Report) -> str:
    """The verdict, and of how many captures it is: the others of a mislabelled directory are right."""
    word, all_of_them = report.verdict.value, counted(len(report.findings), "capture")
    wrong = sum(bool(item.wrong) for item in report.findings)
    without = sum(item.shape is None and not item.wrong for item in report.findings)
    fileless = {*report.damaged, *report.lacking} - {item.capture.file for item in report.findings}
    if report.verdict is Standing.MISLABELLED:
        text = f"{word}: {wrong} of {all_of_them}"
        if not wrong:
            text = f"{word}, as the manifest says: {all_of_them}, none wrong by its events"
    elif report.verdict.is_good or not (report.findings or fileless):
        text = f"{word}: {all_of_them if report.findings else 'no capture'}"
    elif count := without + len(fileless):
        total = counted(len(report.findings) + len(fileless), "trace")
        text = f"{word}: {count} of {total} {'has' if count == 1 else 'have'} no shape"
    else:
        text = f"{word}: {all_of_them}, something else is missing"
    layouts = ", ".join(layout.value for layout in report.layouts)
    return f"{text} ({'layout' if len(report.layouts) == 1 else 'layouts'} {layouts})" if layouts else text


def _support_lines(report: Report, limit: int = 5) -> list[str]:
    """Why sizes and variants are not proven: each kind of reason once, with how many captures it is of."""
    found: dict[tuple[str, str], list[str]] = {}
    for item in report.findings:
        if item.size in ("consistent", "unproven") and item.evidence:
            text = item.evidence[0].removeprefix("size: ")
            found.setdefault((item.size, re.sub("[0-9]+", "", text)), []).append(text)
        for axis in (axis for axis, word in item.variants.items() if word == "unproven"):
            why = [text.removeprefix(f"{axis}: ") for text in item.evidence if text.startswith(f"{axis}: ")]
            text = why[0] if why else "no evidence"
            found.setdefault((f"{axis} unproven", re.sub("[0-9]+", "", text)), []).append(text)
    lines = [
        f"{word} ({counted(len(texts), 'capture')}): {'such as ' if len(set(texts)) > 1 else ''}{texts[0]}"
        for (word, _), texts in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
    return lines if len(lines) <= limit else [*lines[:limit], f"... and {len(lines) - limit} more reasons"]


def copies_table(written: Sequence[Written]) -> list[tuple[str, ...]]:
    """Old name -> new name; those that have another one come first."""
    rows: list[tuple[str, ...]] = [("OLD", "NEW", "SUPPORT")]
    for item in sorted(written, key=lambda item: not _is_renamed(item)):
        finding = item.copy.finding
        words = "/".join([finding.size, *finding.variants.values()])
        rows.append((finding.capture.key, item.copy.target, f"{words}{' RENAMED' if _is_renamed(item) else ''}"))
    return [tuple(plain(cell, 240) for cell in row) for row in rows]


def copies_json(plan: Plan, written: Sequence[Written]) -> dict[str, Any]:
    """The same for programs."""
    copies = [
        {
            "from": item.copy.finding.capture.file,
            "window": item.copy.finding.capture.window,
            "to": item.copy.target,
            "tag": item.copy.shape.tag,
            "rank": item.copy.rank,
            "sha256": item.sha256,
            "bytes": item.bytes,
            "support": {"size": item.copy.finding.size, "variants": dict(item.copy.finding.variants)},
            "evidence": list(item.copy.finding.evidence),
        }
        for item in written
    ]
    return {"v": VERSION, "copies": copies, "refused": dict(plan.refused)}
