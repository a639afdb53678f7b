"""Why the engine's part of a run is over, and what the launcher then answers. Pure: no process, file or clock here."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shapetrace_contract import keys
from shapetrace_contract.message import Termination, shorten
from shapetrace_contract.reasons import Reason, exit_code

from shapetrace_launcher.words import is_error

SILENT_SECONDS = 60.0
"""How long an engine may serve before its ranks' records are missed: they are written before it can serve, so this
only has to outlast a slow start of the other replicas."""
SAID_NOTHING = f"printed no error; see {keys.log_key(0)}"
KERNEL_HINT = "; often the kernel for want of memory, see the pod's memory limit"


@dataclass(frozen=True)
class Exit:
    """A process that ended, as ``subprocess`` says it: a negative code is a signal."""

    name: str
    ranks: tuple[int, ...]
    code: int
    last_words: str = ""
    """The last line that it printed, or its last error where it is an engine of many processes."""


@dataclass(frozen=True)
class Cause:
    """The first cause of the end: the content of ``stopped.json``."""

    reason: Reason
    message: str
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The spelling of the contract."""
        return {
            "reason": self.reason.value,
            "rank": self.rank,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "message": self.message,
        }


@dataclass(frozen=True)
class Observed:
    """What is known at one moment. ``exits`` in the order in which they were noticed; the records are read *after*
    the exits were, so that a rank that wrote its last record and then ended is seen as done."""

    ranks: tuple[int, ...]
    exits: Sequence[Exit] = ()
    records: Mapping[int, Mapping[str, Any]] | None = None
    """``rank.json`` by rank."""
    done: Mapping[int, Mapping[str, Any]] | None = None
    """``done.json`` by rank."""
    terminated: bool = False
    serves_seconds: float | None = None
    """How long an engine that serves for ever has taken requests; None while it does not."""
    engine: str = ""
    """Its name and version."""
    processes: Sequence[Mapping[str, Any]] = ()
    """The records of the processes in which our plugin was loaded."""


def cause_of(seen: Observed) -> Cause | None:
    """The first cause, or None while the engine works.

    A bad exit after every rank was done changes nothing. A rank that ended well without being done would leave the
    others waiting for it in a collective, so that is an end as well.
    """
    done, records = seen.done or {}, seen.records or {}
    if all(rank in done for rank in seen.ranks):
        unhooked = _unhooked(seen, seen.ranks)
        return unhooked or Cause(Reason.DONE, f"{len(seen.ranks)} of {len(seen.ranks)} ranks are done")
    bad = [end for end in seen.exits if end.code != 0]
    if bad:
        # several found at once: a rank that a signal killed is the cause, the others lost their peer
        return _bad_exit(next((end for end in bad if end.code < 0), bad[0]))
    if seen.terminated:
        return Cause(Reason.STOPPED, "stopped by SIGTERM before every rank was done", signal=int(signal.SIGTERM))
    # a hook that must be there and is not stays missing: nothing is gained by waiting for the engine
    unhooked = _unhooked(seen, [rank for rank in seen.ranks if _missing(records.get(rank))])
    if unhooked is not None:
        return unhooked
    early = [end for end in seen.exits if not all(rank in done for rank in end.ranks)]
    if not early:
        return _silent(seen, records, done)
    missing = tuple(rank for rank in early[0].ranks if rank not in done)
    return _unhooked(seen, missing) or Cause(
        Reason.ENGINE_FAILED,
        f"rank {missing[0]} ended with exit code 0 before its graph work was done",
        rank=missing[0],
        exit_code=0,
    )


def _silent(
    seen: Observed, records: Mapping[int, Mapping[str, Any]], done: Mapping[int, Mapping[str, Any]]
) -> Cause | None:
    """An engine that has taken requests for a while has captured what it will: a rank that has not said so never will.

    Without this, an engine into which our plugin was not loaded would hold its devices until the run's deadline.
    """
    if seen.serves_seconds is None or seen.serves_seconds < SILENT_SECONDS:
        return None
    late = next(rank for rank in seen.ranks if rank not in done)
    if late in records:
        text = f"rank {late} serves and never said that its graph work is over; hooks: {records[late].get('hooks')}"
    elif seen.processes:
        faults = [str(error) for process in seen.processes for error in process.get("errors") or ()]
        text = (
            f"rank {late} serves without a record; the plugin shapetrace is in {len(seen.processes)} of its processes"
        )
        text += f": {faults[0]}" if faults else ""
    else:
        text = (
            "it serves, and the plugin shapetrace was loaded in none of its processes; does something in the image "
            "or in engine.env (PYTHONPATH, a plugin list) hide it?"
        )
    return Cause(Reason.HOOKS_NOT_APPLIED, f"{seen.engine}: {text}", rank=late)


def _unhooked(seen: Observed, ranks: Sequence[int]) -> Cause | None:
    records = seen.records or {}
    for rank in ranks:
        record = records.get(rank)
        if record is None:
            return Cause(Reason.HOOKS_NOT_APPLIED, _unseen(seen, rank), rank=rank)
        missing = _missing(record)
        if missing:
            text = f"rank {rank}: {_engine(record)}: not hooked: {missing}; use a version of the engine that is tested"
            return Cause(Reason.HOOKS_NOT_APPLIED, shorten(text), rank=rank)
        hooks = _hooks(record)
        if "applied" not in hooks.values():
            return Cause(Reason.HOOKS_NOT_APPLIED, f"rank {rank}: no hook was applied: {hooks}", rank=rank)
    return None


def _unseen(seen: Observed, rank: int) -> str:
    """Of a rank without a record. A program of the user's own writes it at its first call, not at the import."""
    count, asked = len(seen.records or {}), len(seen.ranks)
    if seen.engine:
        return f"rank {rank} wrote no record: {seen.engine}: the plugin shapetrace did nothing in it"
    if not count:
        return (
            f"rank {rank} wrote no record: the program ended, and no shapetrace_capture.shape(...) was reached in it, "
            "or it never imported shapetrace_capture"
        )
    return (
        f"rank {rank} never appeared: {count} of {asked} ranks wrote records; start every rank "
        f"(torchrun --nproc-per-node {asked}) or set parallelism.tensor: {count}"
    )


def _hooks(record: Mapping[str, Any]) -> Mapping[str, Any]:
    hooks = record.get("hooks")
    return hooks if isinstance(hooks, Mapping) else {}


def _missing(record: Mapping[str, Any] | None) -> str:
    """The hooks that the record requires and that were not applied, each with its state; empty if there are none."""
    required = (record or {}).get("required")
    if record is None or not isinstance(required, list):
        return ""
    states = {str(target): str(_hooks(record).get(target, "missing")) for target in required}
    return ", ".join(f"{target} ({state})" for target, state in states.items() if state != "applied")


def _engine(record: Mapping[str, Any]) -> str:
    engine = record.get("engine")
    engine = engine if isinstance(engine, Mapping) else {}
    return f"{engine.get('name') or 'the engine'} {engine.get('version') or ''}".rstrip()


def _bad_exit(end: Exit) -> Cause:
    rank = end.ranks[0] if len(end.ranks) == 1 else None
    said = f": {end.last_words or SAID_NOTHING}"
    if end.code < 0:
        try:
            name = signal.Signals(-end.code).name
        except ValueError:
            name = f"signal {-end.code}"
        # SGLang kills itself when a part of it fails, and has said why
        hint = KERNEL_HINT if -end.code == signal.SIGKILL and not is_error(end.last_words) else ""
        return Cause(Reason.ENGINE_FAILED, f"{end.name} was killed by {name}{hint}{said}", rank, None, -end.code)
    reason = Reason.BAD_CONFIGURATION if end.code == exit_code(Reason.BAD_CONFIGURATION) else Reason.ENGINE_FAILED
    return Cause(reason, f"{end.name} ended with exit code {end.code}{said}", rank, end.code)


@dataclass(frozen=True)
class Answer:
    """The launcher's exit: code, reason, message and whether the collector's work is over."""

    code: int
    reason: Reason
    message: str
    drained: bool
    rank: int | None = None
    engine_exit_code: int | None = None

    def to_termination(self) -> Termination:
        """What the container leaves for the operator."""
        return Termination(self.reason.value, self.message, self.rank, self.engine_exit_code, self.drained)


def answer(cause: Cause, drained: Mapping[str, Any] | None, terminated: bool) -> Answer:
    """The first cause wins; after ``Done`` the collector's result decides.

    ``drained`` is the content of the collector's file, None where it did not appear in time.
    """
    over = drained is not None
    if cause.reason is not Reason.DONE:
        code = exit_code(cause.reason)
        return Answer(code, cause.reason, cause.message, over, cause.rank, cause.exit_code)
    if drained is not None and drained.get("ok") is True:
        return Answer(0, Reason.DONE, f"{cause.message} and everything is stored", True)
    if drained is not None:
        text = f"{cause.message}, {drained.get('missing')} records could not be stored; see the collector's log"
        return Answer(exit_code(Reason.UPLOAD_TIMEOUT), Reason.UPLOAD_TIMEOUT, text, True)
    if terminated:
        return Answer(
            exit_code(Reason.STOPPED), Reason.STOPPED, "stopped by SIGTERM before everything was stored", False
        )
    text = f"{cause.message}, but the collector did not finish within uploadTimeoutSeconds; see its log"
    return Answer(exit_code(Reason.UPLOAD_TIMEOUT), Reason.UPLOAD_TIMEOUT, text, False)
