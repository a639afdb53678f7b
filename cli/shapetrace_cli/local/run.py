"""One local run: preflight, collector and launcher, finish, in the order in which a pod and the finish Job run them."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

from shapetrace_contract import keys, names, progress, spool
from shapetrace_contract.message import Termination
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.reasons import GOOD_VERDICTS, RankState, Reason
from shapetrace_contract.settings import RunId
from shapetrace_launcher.run import free_port
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.build.resources import spool_bytes

from shapetrace_cli.download import claimed
from shapetrace_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, CliError
from shapetrace_cli.listing import Listing, read_listing
from shapetrace_cli.local import places
from shapetrace_cli.local.advice import advice
from shapetrace_cli.local.layout import Layout, environments
from shapetrace_cli.local.processes import Process
from shapetrace_cli.ranks import RanksView
from shapetrace_cli.runfile import RunFile
from shapetrace_cli.text import plain

_POLL_SECONDS = 0.25
_PREFLIGHT_SECONDS = 40.0
"""It ends itself after 20 s; the rest is the start of Python on a busy machine."""
_FINISH_MARGIN_SECONDS = 120.0
"""Above uploadTimeoutSeconds, as the finish Job has it."""
_END_MARGIN_SECONDS = 15.0
"""For a process to end that was told to."""
_COLLECTOR_STARTS = 5
"""A collector that dies is started again, as the kubelet does; this often."""


@dataclass(frozen=True)
class Result:
    """What a local run came to. ``listing`` is None where no manifest was written."""

    exit_code: int
    listing: Listing | None
    cause: str
    """Why it did not end well; empty where it did."""
    hint: str = ""
    """What to do about it, where that is known."""


class _Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP while entered, in place of what they do."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def run_local(
    file: RunFile,
    out: Path,
    *,
    python: str,
    replace: bool,
    quiet: bool,
    stderr: IO[str],
    environment: Mapping[str, str],
) -> Result:
    """Run ``file`` on this machine; its traces, manifest and logs are in ``out`` afterwards, whatever happened."""
    places.check_python(python, needs_torch=file.spec.engine.name.value == "torch")
    with claimed(out), ExitStack() as stack:
        places.prepare_out(out, replace=replace)
        temporary = places.make_temporary(spool_bytes(file.spec, Defaults(image="", engine_image="")))
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        run_id = RunId(file.namespace, file.name, str(uuid.uuid4()), 1)
        layout = Layout(out.absolute(), temporary / "spool", temporary / "payload", run_id)
        made = environments(file, layout, environment)
        layout.spool.mkdir()
        layout.work.mkdir()
        places.make_payload(layout.payload)
        made[names.CONTAINER_ENGINE]["PATH"] = f"{Path(python).absolute().parent}:{environment.get('PATH', '')}"
        stack.callback(places.deliver, layout)
        interrupts = stack.enter_context(_Interrupts())
        view = stack.enter_context(RanksView(stderr, quiet=quiet))
        return _Run(file, layout, python, made, interrupts, view).go()


class _Run:
    def __init__(
        self,
        file: RunFile,
        layout: Layout,
        python: str,
        environments: Mapping[str, Mapping[str, str]],
        interrupts: _Interrupts,
        view: RanksView,
    ) -> None:
        self._file, self._layout, self._python = file, layout, python
        self._environments, self._interrupts, self._view = environments, interrupts, view
        self._limits = file.spec
        self._cause = ""
        self._port = free_port()
        self._collector_starts = 0
        self._ranks: list[RankProgress] = []

    def go(self) -> Result:
        self._view.say(f"spool in {self._layout.spool.parent}, logs in {self._layout.logs}")
        self._one_shot(names.CONTAINER_PREFLIGHT, "shapetrace_collector.preflight", _PREFLIGHT_SECONDS)
        if self._interrupts.count:
            return Result(EXIT_INTERRUPTED, None, "interrupted before the engine was started")
        self._capture()
        self._view.update("Finishing", [_from_spool(entry, self._layout.spool) for entry in self._ranks])
        limit_seconds = self._limits.upload_timeout_seconds + _FINISH_MARGIN_SECONDS
        self._one_shot(names.CONTAINER_FINISH, "shapetrace_finish", limit_seconds)
        try:
            listing = read_listing((self._layout.attempt / keys.MANIFEST).read_bytes())
        except OSError:
            raise CliError("the finish wrote no manifest", f"See {self._layout.logs / 'finish.log'}") from None
        if self._interrupts.count:
            return Result(EXIT_INTERRUPTED, listing, self._cause or "interrupted")
        if listing.verdict in GOOD_VERDICTS:
            refused = _failure(listing) if _is_refused_by_strict(listing) else ""
            return Result(EXIT_FAILED if refused else 0, listing, refused)
        hint = "" if listing.traces else advice(self._cause, str(Path.cwd()))
        return Result(EXIT_FAILED, listing, self._cause or _failure(listing), hint)

    # the capture pod

    def _capture(self) -> None:
        collector = self._start_collector()
        engine: Process | None = None
        try:
            argv = [self._python, "-m", "shapetrace_launcher"]
            engine = self._process(names.CONTAINER_ENGINE, argv)
            collector = self._watch(engine, collector)
            self._note_cause(engine)
            self._drain(collector)
        finally:
            if engine is not None and engine.code is None:
                engine.terminate()
                engine.wait(_END_MARGIN_SECONDS)
            for process in (engine, collector):
                if process is not None:
                    process.kill()

    def _watch(self, engine: Process, collector: Process) -> Process:
        """Until the launcher has ended; the collector that is at work then."""
        deadline = time.monotonic() + self._limits.active_deadline_seconds
        told = 0.0
        while engine.wait(_POLL_SECONDS) is None:
            if collector.code is not None and not (self._layout.spool / spool.DRAINED).exists():
                collector = self._restart(collector)
            self._poll()
            now = time.monotonic()
            if told:
                ended = (self._layout.spool / spool.STOPPED).exists()
                if (self._interrupts.count > 1 and ended) or now > told + self._stop_seconds:
                    break
            elif self._interrupts.count or now > deadline:
                why = "interrupted" if self._interrupts.count else "activeDeadlineSeconds are over"
                self._view.say(f"{why}: stopping the engine, storing what was captured (again: at once)")
                self._cause = why
                told = now
                engine.terminate()
        self._poll()
        return collector

    @property
    def _stop_seconds(self) -> float:
        return self._limits.disruption_grace_seconds + _END_MARGIN_SECONDS

    def _drain(self, collector: Process) -> None:
        """After the launcher the collector ends by itself; where something is left, SIGTERM bounds it."""
        if not (self._layout.spool / spool.DRAINED).exists():
            collector.terminate()
        end = time.monotonic() + self._stop_seconds
        while collector.wait(_POLL_SECONDS) is None and time.monotonic() < end and self._interrupts.count < 2:
            self._poll()

    def _start_collector(self) -> Process:
        self._collector_starts += 1
        argv = [sys.executable, "-m", "shapetrace_collector", "--host", "127.0.0.1", "--port", str(self._port)]
        return self._process(names.CONTAINER_COLLECTOR, [*argv, "--exit-when-drained"])

    def _restart(self, collector: Process) -> Process:
        if self._collector_starts >= _COLLECTOR_STARTS:
            said = self._said(names.CONTAINER_COLLECTOR, collector)
            raise CliError(f"the collector ended {self._collector_starts} times: {said}", f"See {collector.log}")
        self._view.say("the collector ended early: starting it again, it goes on from the spool")
        return self._start_collector()

    def _poll(self) -> None:
        ranks = _progress(self._port)
        if ranks is not None:
            self._ranks = ranks
        loading = {entry.state for entry in self._ranks} <= {RankState.WAITING.value, RankState.LOADING.value}
        self._view.update("Preparing" if loading else "Capturing", self._ranks)

    def _note_cause(self, engine: Process) -> None:
        if engine.code != 0 and not self._cause:
            self._cause = self._said(names.CONTAINER_ENGINE, engine)

    # processes

    def _one_shot(self, container: str, module: str, limit_seconds: float) -> None:
        """Run one that ends by itself; :class:`CliError` with its own words where it ends badly."""
        process = self._process(container, [sys.executable, "-m", module])
        try:
            end = time.monotonic() + limit_seconds
            while process.wait(_POLL_SECONDS) is None and time.monotonic() < end and self._interrupts.count < 2:
                pass
            if process.code is None:
                process.terminate()
                process.wait(_END_MARGIN_SECONDS)
        finally:
            process.kill()
        if process.code != 0 and not self._interrupts.count:
            hint = f"The engine's end: {self._cause}. " if self._cause else ""
            raise CliError(f"{container}: {self._said(container, process)}", f"{hint}See {process.log}")

    def _process(self, container: str, argv: list[str]) -> Process:
        try:
            return Process(container, argv, self._environments[container], self._layout.logs / f"{container}.log")
        except OSError as error:
            raise CliError(f"{argv[0]} cannot be started: {error.strerror}") from None

    def _said(self, container: str, process: Process) -> str:
        """Reason and message of its termination message, or the end of its log."""
        try:
            termination = Termination.from_text(self._layout.termination_log(container).read_text())
        except OSError:
            termination = None
        if termination is not None:
            return plain(f"{termination.reason}: {termination.message}", 600)
        lines = [line for line in process.tail() if line.strip()]
        return plain(f"exit code {process.code}: {lines[-1] if lines else 'it said nothing'}", 600)


def _is_refused_by_strict(listing: Listing) -> bool:
    """Whether a run with a good verdict fails all the same, as the operator decides."""
    failure = listing.raw.get("failure")
    return isinstance(failure, Mapping) and failure.get("reason") == Reason.NOT_PROVEN.value


def _failure(listing: Listing) -> str:
    """Reason and message of the first cause that the manifest names; empty where it names none."""
    failure = listing.raw.get("failure")
    return plain(f"{failure.get('reason')}: {failure.get('message')}", 600) if isinstance(failure, Mapping) else ""


def _progress(port: int) -> list[RankProgress] | None:
    """The collector's counters, None where it does not answer (it starts, or is over)."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows this machine's own address
    try:
        with direct.open(f"http://127.0.0.1:{port}{names.PROGRESS_PATH}", timeout=1) as answer:
            body = json.loads(answer.read(progress.MAX_BODY_BYTES))
        return [RankProgress.from_json(entry) for entry in body["ranks"]]
    except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError):
        return None


def _from_spool(entry: RankProgress, folder: Path) -> RankProgress:
    """The rank's last counters: the collector may have ended between its last upload and our last question."""
    rank_folder = spool.rank_folder(folder, entry.rank)
    try:
        uploaded = list(spool.read_lines(rank_folder / spool.UPLOADED))
        stored_bytes = sum(line["bytes"] for line in uploaded)
    except (OSError, ValueError, KeyError, TypeError):  # a script may write there as well
        return entry
    done = (rank_folder / spool.DONE).exists() and len(uploaded) == entry.expected
    state = RankState.DONE.value if done else entry.state
    return replace(entry, uploaded=len(uploaded), bytes=stored_bytes, state=state)
