"""The hooks on SGLang, and what each of them does.

One method is hooked to capture, ``capture_one`` of every backend: it is handed the key, so each runner is covered, also
one that is not known here. Its fields are read generically: a field that a later version adds becomes an axis.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import sys
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from shapetrace_contract.tag import Runner, Shape, TagError

from shapetrace_capture import device
from shapetrace_capture.adapters.sglang.facts import (
    KINDS,
    Kind,
    axes_of,
    class_names,
    classes_with,
    configuration_of,
    eager_reason,
    engine_state,
    keys_of,
    rank_of,
    resolve,
    rows_of,
    runner_of,
    unit_of,
    variables_of,
    witnesses,
    words_for,
)
from shapetrace_capture.capture import Capture, NoCapture
from shapetrace_capture.declared import unplanned_shapes
from shapetrace_capture.hooks import APPLIED, MISSING, AfterImport, Hook, guarded, is_hooked, wrap
from shapetrace_capture.process import Process
from shapetrace_capture.session import Session
from shapetrace_capture.told import plain_fields
from shapetrace_capture.warmups import Warmups

SCHEDULER = "sglang.srt.managers.scheduler"
"""Imported before the plugins are loaded in each process that may own a rank, and in few others."""
MODEL_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner.__init__"
EVENT_LOOP = f"{SCHEDULER}.Scheduler.run_event_loop"
_RUNNER = "sglang.srt.model_executor.runner"
RUNNERS = (
    f"{_RUNNER}.decode_cuda_graph_runner.DecodeCudaGraphRunner.capture",
    f"{_RUNNER}.prefill_cuda_graph_runner.PrefillCudaGraphRunner.capture",
)
BACKENDS = "sglang.srt.model_executor.runner_backend"
FULL = f"{BACKENDS}.full_cuda_graph_backend.FullCudaGraphBackend.capture_one"
OTHER_BACKENDS = "sglang.srt.hardware_backend"
"""Those of other vendors: hooked when they are imported, because they import their vendor's libraries."""
METHOD = "capture_one"

OWN_FRAMES = frozenset(
    {("hooks.py", name) for name in ("around", "__call__")}
    | {("adapter.py", name) for name in ("_capture_all", "_capture_one", "<lambda>")}
    | {
        ("warmups.py", name)
        for name in ("watched_forward", "_before_forward", "chained_hook", "_before_hook", "_open", "end")
    }
    | {("facts.py", "rows_of")}
)
"""(file, function) of ours that may stand in a trace of SGLang's, beside :data:`shapetrace_capture.window.OWN_FRAMES`:
the hooks below which SGLang captures, and the watched forward."""

REGISTERED = "registered"
BUSY = "profilerBusy: SGLang's own profiler is on during captures; remove --enable-profile-cuda-graph"
ADVICE = "remove --enable-profile-cuda-graph, and whatever else profiles while SGLang starts"


def register(process: Process) -> None:
    """Hook SGLang in this process, if it may come to own a rank."""
    process.version = importlib.metadata.version("sglang")
    if SCHEDULER in sys.modules:
        Adapter(process).install()


class Adapter:
    """The hooks of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._session: Session | None = None
        self._targets: dict[str, Hook] = {}
        self._others: dict[str, str] = {}
        self._warmups: dict[str, int] = {}
        self._owners: dict[str, list[weakref.ref[Any]]] = {}
        self._matched: set[str] = set()
        self._capturing: list[Any] = []
        """The runners whose ``capture`` is running; of several the last one captures."""
        self._is_inside = False
        self._is_over = False
        """The scheduler serves. What is captured from then on (a change of roles) is not recorded."""

    # ---- hooks

    def install(self) -> None:
        """Register with SGLang's ``HookRegistry``, which applies the hooks after all plugins have registered theirs.

        It only logs a target that it does not find, so what it did is looked at when the rank is known.
        """
        registry = importlib.import_module("sglang.srt.plugins.hook_registry")
        self._targets = {MODEL_RUNNER: self._init_model_runner, EVENT_LOOP: self._run_event_loop}
        self._targets.update(dict.fromkeys(RUNNERS, self._capture_all))
        self._targets[FULL] = self._capture_one
        for target in classes_with(BACKENDS, METHOD):
            if resolve(target, imports=True) is None:  # it is not for this platform
                self._others[target] = MISSING
            else:
                self._targets[target] = self._capture_one
        self._process.required = tuple(self._targets)
        for target, hook in self._targets.items():
            is_there = resolve(target, imports=True) is not None
            self._process.hooks[target] = REGISTERED if is_there else MISSING
            if is_there:
                around = guarded(target, hook, self._process.fault)
                registry.HookRegistry.register(target, around, registry.HookType.AROUND)
        others = {target.rsplit(".", 2)[0] for target in classes_with(OTHER_BACKENDS, METHOD)}
        AfterImport(dict.fromkeys(others, self._hook_other)).install()

    def _hook_other(self, module: ModuleType) -> None:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__ and METHOD in vars(value):
                target = f"{module.__name__}.{name}.{METHOD}"
                around = guarded(target, self._capture_one, self._process.fault)
                self._others[target] = wrap(module, f"{name}.{METHOD}", around)

    def _states(self) -> dict[str, str]:
        states = {}
        for target in self._targets:
            method = resolve(target)
            unapplied = "error: SGLang did not apply the hook, its log says why"
            states[target] = MISSING if method is None else APPLIED if is_hooked(method) else unapplied
        return {**states, **self._others}

    def _init_model_runner(self, original: Any, model_runner: Any, *args: Any, **kwargs: Any) -> Any:
        if self._session is None:
            self._start(_Given(original.signature.bind(model_runner, *args, **kwargs).arguments))
        return original(model_runner, *args, **kwargs)

    def _start(self, source: Any) -> Session:
        """The session of this process's rank, from the first of SGLang's objects that knows it."""
        if self._session is None:
            session = Session.of_process(self._process, rank_of(source))
            session.advice = ADVICE
            self._process.tell_configuration(lambda: {"": configuration_of(getattr(source, "server_args", None))})
            session.start(self._states(), self._targets)
            self._session = session
        return self._session

    def _run_event_loop(self, original: Hook, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """All graphs of the target and its drafts are captured when the scheduler begins to work."""
        self._is_over = True
        session = self._start(scheduler)
        eager = None if session.has_plan else eager_reason(getattr(scheduler, "server_args", None))
        nothing = not session.has_plan and eager is None
        try:
            self._tell_unmatched(session, eager)
        except Exception as error:
            session.fault("the targets that no runner has", error)
        session.done(eager=eager, reason="SGLang was to capture graphs and planned none" if nothing else "Done")
        return original(scheduler, *args, **kwargs)

    def _tell_unmatched(self, session: Session, eager: str | None) -> None:
        for target in session.targets:
            word = str(target.get("runner"))
            if word not in self._matched:
                runner, unit = Runner(word), str(target.get("unit") or ("tok" if word == "prefill" else "bs"))
                left = unplanned_shapes([target], runner, unit, (), {word})
                session.plan(runner, unit, [], [(shape, eager or f"SGLang made no {word} runner") for shape, _ in left])

    def _capture_all(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_over:
            return original(runner, *args, **kwargs)
        self._plan(runner)
        self._capturing.append(runner)
        try:
            return original(runner, *args, **kwargs)
        finally:
            self._capturing.pop()

    def _capture_one(self, original: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_over or self._is_inside:
            return original(backend, *args, **kwargs)
        call = original.signature.bind(backend, *args, **kwargs)
        _, key_name, forward_name, *_ = call.signature.parameters
        key, forward = call.arguments[key_name], call.arguments[forward_name]
        around = variables_of(forward)
        runner = getattr(backend, "_cuda_graph_runner", None) or (self._capturing or [around.get("self")])[-1]
        session = self._start(getattr(runner, "model_runner", runner))
        shape = self._shape(runner, dataclasses.asdict(key))
        if not any(runner is each for each in self._capturing) and not session.is_planned(shape):
            self._plan(runner)  # a runner that captures without the method that is hooked for it

        torch = session.torch  # asked for once: what runs inside a window is in its trace
        kind = next((KINDS[name] for name in class_names(backend) if name in KINDS), Kind())
        name = type(backend).__name__
        refusal = BUSY if getattr(runner, "enable_profile_cuda_graph", False) else None

        def make(refused: str | None) -> Capture | NoCapture:
            return session.capture(
                shape,
                expects_graph=kind.expects_graph,
                expects_stream=kind.expects_stream,
                mode=kind.mode,
                known=(lambda: key in backend._graphs) if hasattr(backend, "_graphs") else None,
                state=lambda: engine_state(around),
                more={**witnesses(runner), "backend": name, "key": plain_fields(dataclasses.asdict(key))},
                refused=refused,
            )

        if refusal is not None:
            with make(refusal):
                return original(backend, *args, **kwargs)
        warmups = Warmups(
            self._warmups.get(name, kind.warmups),
            make,
            lambda: device.is_capturing(torch),
            session.fault,
            ends_with_hook=kind.ends_with_hook,
        )
        call.arguments[forward_name] = warmups.forward(forward, lambda: rows_of(around))
        call.arguments["post_warmup_hook"] = warmups.after_warmup(call.arguments.get("post_warmup_hook"))
        self._is_inside = True
        try:
            result = original(*call.args, **call.kwargs)
        except BaseException as error:
            warmups.end(error)
            raise
        finally:
            self._is_inside = False
        warmups.end(None)
        if warmups.learned is not None:
            self._warmups[name] = warmups.learned
        return result

    # ---- names and plans

    def _plan(self, runner: Any) -> None:
        """Write what ``runner`` is going to capture: its own sizes, after SGLang's filters, times its own variants."""
        try:
            session = self._start(getattr(runner, "model_runner", runner))
            shapes = (self._shape_or_fault(runner, key) for key in keys_of(runner))
            planned = {shape.tag: shape for shape in shapes if shape is not None}
            named, unit = self._name(runner), unit_of(runner)
            names = words_for(runner, named)
            self._matched |= names
            left = unplanned_shapes(session.targets, named, unit, planned.values(), names)
            if planned or left:
                session.plan(named, unit, planned.values(), left)
        except Exception as error:  # without its plan the runner is still captured
            self._process.fault(f"the plan of {type(runner).__name__}", error)

    def _shape_or_fault(self, runner: Any, key: Mapping[str, Any]) -> Shape | None:
        """None for a key that has no tag: it costs nobody else's trace."""
        try:
            return self._shape(runner, key)
        except TagError as error:
            self._process.fault(f"a key of {type(runner).__name__}", error)
            return None

    def _shape(self, runner: Any, key: Mapping[str, Any]) -> Shape:
        return Shape(self._name(runner), unit_of(runner), int(key["size"]), axes_of(key))

    def _name(self, runner: Any) -> Runner:
        """Class, draft, step and width; an ordinal only where two model runners leave nothing else to tell."""
        base = runner_of(runner)
        owner = getattr(runner, "model_runner", runner)
        alike = self._owners.setdefault(str(base), [])
        index = next((index for index, known in enumerate(alike) if known() is owner), len(alike))
        if index == len(alike):
            alike.append(weakref.ref(owner))
        return dataclasses.replace(base, ordinal=index + 1 if index else None)


class _Given:
    """The arguments of a call as attributes."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.__dict__.update(arguments)
