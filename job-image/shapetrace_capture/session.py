"""What one engine process records: its rank, its plan, its captures, its end. The only writer of a rank's records.

Nothing here raises into the engine. What goes wrong is in the records, or, where they cannot be written, on stderr.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shapetrace_contract import names, spool
from shapetrace_contract.settings import CaptureSettings, EngineSettings, SettingError
from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_capture import device
from shapetrace_capture.alone import alone, size_bytes
from shapetrace_capture.capture import RAISED, Capture, NoCapture
from shapetrace_capture.graphs import GraphCounter
from shapetrace_capture.libraries import tracers
from shapetrace_capture.process import MAX_ERROR_CHARACTERS, Process, described
from shapetrace_capture.ranks import RankId, coordinates, has_stacks, is_asked
from shapetrace_capture.room import Room
from shapetrace_capture.selftest import KERNELS, gpu_events
from shapetrace_capture.stacks import Stacks
from shapetrace_capture.window import Options, Window

TWICE = (
    "it is recorded already: by another process of this rank (give each process its own RANK), or by a capture that "
    "was made before the earlier one ended (make each just before it is entered)"
)
"""Why a trace is refused whose tag has a trace: told under the same name, one would pass for the other."""


DONE = "Done"


class Session:
    """One per engine process. Calls come from one thread, as graph capture does."""

    def __init__(
        self,
        folder: Path,
        rank: RankId,
        settings: CaptureSettings,
        *,
        node: str = "",
        process: Process | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rank = rank
        self.process = process or Process(folder, {})
        self.process.who = f"rank {rank.rank}"
        self.clock = clock
        self.graphs = GraphCounter()
        self._folder = spool.rank_folder(folder, rank.rank)
        self._settings = settings
        self._node = node
        self._room = Room(folder, settings.roomWaitSeconds, clock, sleep)
        self.targets = settings.targets
        self.advice = "switch it off for capture"
        """What to do against another profiler, in the engine's words."""
        self._asked = is_asked(settings.ranks, rank.rank)
        self._open: Capture | None = None
        self._one_open = threading.Lock()
        self._sequence = 0
        self._epochs: dict[str, int] = {}
        self._stored: set[str] = set()
        """Tags that have a trace."""
        self._read_bytes = 0
        """Of the lines of captures."""
        self._planned: set[str] = set()
        self._torch: Any = None
        wanted = self._asked and has_stacks(settings.stacks, settings.ranks, rank.rank)
        self.stacks = Stacks(wanted, clock, sleep)
        self.process.more = self._told

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Session | None:
        """The session of a script that the launcher's environment describes; None without a spool. Never raises: a
        setting that cannot be read is a fault in the process record, and its defaults are used."""
        folder = environment.get(names.ENV_SPOOL)
        if not folder:
            return None
        process = Process(Path(folder), environment)
        engine = EngineSettings()
        try:
            if EngineSettings.ENV in environment:
                engine = EngineSettings.from_env(environment)
        except SettingError as error:
            process.fault("a setting", error)
        text = environment.get("RANK") or "0"
        rank = int(text) if text.isdecimal() else 0
        return cls.of_process(process, coordinates(rank, engine.parallelism))

    @classmethod
    def of_process(cls, process: Process, rank: RankId) -> Session:
        """The session of a rank that the engine's adapter knows; settings as in :meth:`from_environment`."""
        settings = CaptureSettings()
        try:
            if CaptureSettings.ENV in process.environment:
                settings = CaptureSettings.from_env(process.environment)
        except SettingError as error:
            process.fault("a setting", error)
        node = process.environment.get(names.ENV_NODE_NAME, "")
        return cls(process.folder, rank, settings, node=node, process=process)

    @property
    def torch(self) -> Any:
        """torch, imported at first use."""
        if self._torch is None:
            import torch

            self._torch = torch
        return self._torch

    # ---- records

    def start(self, hooks: Mapping[str, str], required: Iterable[str] = ()) -> None:
        """Write the rank's record; ``hooks`` maps each target to ``applied``, ``missing`` or ``error: ...``; those that
        are ``required`` must be applied, or the run ends as ``HooksNotApplied``."""
        with self._guard("the start"):
            self.process.hooks = dict(hooks)
            self.process.required = tuple(required)
            self._resume()
            graph_class = getattr(self.torch.cuda, "CUDAGraph", None)
            state = self.graphs.install(graph_class, lambda: self._open is not None)
            self.process.hooks["torch.cuda.CUDAGraph.capture_begin"] = state
            self.stacks.prepare(self.torch)
            self.process.write()
            self._write_rank()

    def plan(
        self,
        runner: Runner,
        unit: str,
        shapes: Iterable[Shape],
        not_planned: Iterable[tuple[Shape, str]] = (),
    ) -> list[Shape]:
        """Write what a runner is going to capture, before it does; the shapes as they will be tagged (with the epoch).

        A shape that was captured before is planned as its next epoch; one that is planned already is not counted twice.
        """
        planned = list(shapes)
        with self._guard("the plan"):
            planned = [self._with_next_epoch(shape) for shape in planned]
            tags = [shape.tag for shape in planned if shape.tag not in self._planned]
            self._planned.update(tags)
            if self._asked:
                skipped = [{"shape": shape.to_json(), "reason": reason} for shape, reason in not_planned]
                epoch = max((shape.epoch for shape in planned), default=1)
                line = {"runner": str(runner), "epoch": epoch, "unit": unit, "shapes": tags, "notPlanned": skipped}
                with alone(self._folder):
                    spool.append_line(self._folder / spool.PLAN, line)
        return planned

    @property
    def has_plan(self) -> bool:
        """Whether this rank's plan has a line with a shape, from this process or from one before it."""
        return bool(self._planned)

    def is_planned(self, shape: Shape) -> bool:
        """Whether the next capture of this key is in the plan."""
        return self._with_next_epoch(shape).tag in self._planned

    def capture(
        self,
        shape: Shape,
        *,
        expects_graph: bool = False,
        expects_stream: bool | None = None,
        capture_span: bool = True,
        mode: str = "FULL",
        known: Callable[[], bool] | None = None,
        state: Callable[[], Mapping[str, str]] | None = None,
        more: Mapping[str, Any] | None = None,
        refused: str | None = None,
    ) -> Capture | NoCapture:
        """A context in which the engine captures ``shape``; see :class:`Capture`.

        The epoch is the session's business: the same key captured again in this process is its next epoch.
        """
        if not self._asked:
            return NoCapture()
        try:
            numbered = self._with_next_epoch(shape)
        except TagError as error:
            self.fault(f"a further epoch of {shape.tag}", error)
            return NoCapture()
        return Capture(
            self,
            numbered,
            expects_graph=expects_graph,
            expects_stream=expects_stream,
            capture_span=capture_span,
            mode=mode,
            known=known,
            state=state,
            more=more,
            refused=refused,
        )

    def done(self, *, ok: bool = True, reason: str = DONE, eager: str | None = None) -> None:
        """The engine's graph work is over. ``eager`` says why there are no graphs, by the user's or engine's choice."""
        with self._guard("the end"):
            self.process.write()
            if not self._asked:
                reason = f"rank {self.rank.rank} is not asked for by capture.ranks"
            faults = self.process.faults
            said = faults if faults and reason == DONE else [reason, *faults]
            spool.write_json(
                self._folder / spool.DONE,
                {
                    "records": sum(1 for _ in spool.read_lines(self._folder / spool.CAPTURES)),
                    "ok": ok and not faults,
                    "reason": "; ".join(said)[:MAX_ERROR_CHARACTERS],
                    "eager": eager,
                    "captureBegin": self.graphs.to_json(),
                    "gpuEvents": self._gpu_events(),
                },
            )

    def _gpu_events(self) -> dict[str, Any] | None:
        """Whether the profiler still sees kernels; None where nothing was captured, or without a GPU."""
        if not self._asked or self._sequence == 0:
            return None
        try:
            return gpu_events(self.torch, self._folder)
        except Exception as error:  # it costs no trace that is there
            return {"launched": KERNELS, "seen": 0, "error": described(error)[:MAX_ERROR_CHARACTERS]}

    def _told(self) -> dict[str, Any]:
        """What the process record says of the rank: versions, stacks, graphs counted."""
        return {
            "rank": self.rank.rank,
            "versions": {} if self._torch is None else device.versions(self._torch),
            "tracers": {} if self._torch is None else tracers(self._torch),
            "stacks": self.stacks.to_json(),
            "captureBegin": self.graphs.to_json(),
        }

    def _write_rank(self) -> None:
        record = {
            **self.rank.to_json(),
            "node": self._node,
            "pid": os.getpid(),
            "engine": self.process.engine_json(),
            "hooks": self.process.hooks,
            "required": list(self.process.required),
            "asked": self._asked,
            "stacks": self.stacks.to_json(),
        }
        spool.write_json(self._folder / spool.RANK, record)

    def fault(self, what: str, error: BaseException | str) -> None:
        """Note that something of ours went wrong; the engine goes on."""
        self.process.fault(what, error)

    @contextlib.contextmanager
    def _guard(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.fault(what, error)

    def _with_next_epoch(self, shape: Shape) -> Shape:
        return shape.with_epoch(self._epochs.get(shape.with_epoch(1).tag, 0) + 1)

    def _resume(self) -> None:
        """Go on where an earlier process of this rank ended: a script may start one process per shape."""
        for line in spool.read_lines(self._folder / spool.PLAN):
            self._planned.update(line["shapes"])
        for path in self._folder.glob("[0-9]*.json"):
            self._sequence = max(self._sequence, int(path.stem) + 1)
        for line in spool.read_lines(self._folder / spool.CAPTURES):
            self._sequence = max(self._sequence, line["seq"] + 1)
            if line["file"]:
                self._stored.add(line["tag"])
            if not str(line["error"] or "").startswith(RAISED):
                key = Shape.from_tag(line["tag"]).with_epoch(1).tag
                self._epochs[key] = max(self._epochs.get(key, 0), line["epoch"])

    # ---- called by Capture

    def begin(self, capture: Capture) -> str | None:
        """None if the capture may record, otherwise why not."""
        if not self._one_open.acquire(blocking=False):  # torch crashes where two threads start a profiler at once
            return "profilerBusy: a capture inside another capture, or beside one of another thread"
        self._open = capture
        fault = self._refusal()
        if fault is not None:
            self.release(capture)
        return fault

    def _refusal(self) -> str | None:
        if device.other_profiler(self.torch):
            return f"profilerBusy: another profiler runs in this process; {self.advice}"
        if device.is_capturing(self.torch):
            return "opened inside a stream capture; open it before the graph capture begins"
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._room.wait()

    def options(self, *, stacks: bool) -> Options:
        """What a window records."""
        asked = self._settings
        return Options(stacks=stacks, record_shapes=asked.recordShapes, flops=asked.flops, memory=asked.memory)

    def stacks_refusal(self) -> str | None:
        """Why the next window records no stacks although the run asks for them."""
        with self._stacks_may_end():
            return self.stacks.refusal()

    def stacks_recorded(self, shape: Shape, window: Window, error: str | None) -> None:
        """A window with stacks was closed. One that did not stop is the last with stacks.

        What made torch fail is likely to be still there, and a trace is worth more than its stacks.
        """
        with self._stacks_may_end():
            self.stacks.closed(window.held)
            if error is not None:
                self.stacks.give_up(f"with stacks, {shape.tag} was lost")

    @contextlib.contextmanager
    def _stacks_may_end(self) -> Iterator[None]:
        """Tell in the rank's record as soon as there are no stacks any more."""
        before = self.stacks.has_given_up
        yield
        if self.stacks.has_given_up and not before:
            with self._guard("the rank's record"):
                self._write_rank()

    def release(self, capture: Capture) -> None:
        """The capture is over, however it ended."""
        if self._open is capture:
            self._open = None
            self._one_open.release()

    def end(
        self,
        shape: Shape,
        *,
        window: Window | None,
        witnesses: Mapping[str, Any],
        dirty: list[str],
        error: str | None,
        raised: bool,
        times: dict[str, float],
    ) -> None:
        """Store the trace, then its line. An engine that raised has not captured: the key keeps its epoch."""
        if not raised:
            self._epochs[shape.with_epoch(1).tag] = shape.epoch
        with alone(self._folder):
            captures = self._folder / spool.CAPTURES
            if size_bytes(captures) != self._read_bytes:
                self._resume()  # another process of this rank wrote meanwhile
            self._store(shape, window, error, witnesses=dict(witnesses), dirty=dirty, times=times)
            self._read_bytes = size_bytes(captures)

    def _store(
        self,
        shape: Shape,
        window: Window | None,
        error: str | None,
        *,
        times: dict[str, float],
        **told: Any,
    ) -> None:
        started = self.clock()
        sequence, self._sequence = self._sequence, self._sequence + 1
        path = spool.trace_file(self._folder, sequence)
        raw_bytes = 0
        if window is not None and error is None and shape.tag in self._stored:
            error = TWICE
        if window is not None and error is None:
            try:
                raw_bytes = window.save(path)
            except Exception as fault:
                error = str(fault)
        if window is not None:
            window.free()
        if raw_bytes:
            self._stored.add(shape.tag)
        times["save"] = round(self.clock() - started, 6)
        spool.append_line(
            self._folder / spool.CAPTURES,
            {
                "seq": sequence,
                "tag": shape.tag,
                "shape": shape.to_json(),
                "stage": "capture",
                "epoch": shape.epoch,
                "file": path.name if raw_bytes else None,
                "rawBytes": raw_bytes,
                **told,
                "error": error[:MAX_ERROR_CHARACTERS] if error else None,
                "timesSeconds": times,
            },
        )
