"""The hooks on vLLM, and what each of them does.

One class is hooked when it is imported, the wrapper of every worker. The others are found on the worker that it made:
so a platform's own worker and runner are hooked too, and what this version lacks is known before the first capture.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from shapetrace_contract.tag import Runner

from shapetrace_capture.adapters.vllm.facts import (
    Seen,
    eager_reason,
    graph_wrappers,
    is_captured,
    is_v2,
    model_of,
    rank_of,
)
from shapetrace_capture.adapters.vllm.keys import Keys, verbatim
from shapetrace_capture.adapters.vllm.windows import FactoryV2, ProfilerV1, measuring
from shapetrace_capture.declared import unplanned_shapes
from shapetrace_capture.hooks import APPLIED, MISSING, AfterImport, Hook, exists, guarded, is_hooked, wrap
from shapetrace_capture.process import Process
from shapetrace_capture.session import Session

WRAPPER_MODULE = "vllm.v1.worker.worker_base"
WRAPPER = "WorkerWrapperBase.init_device"
MANAGER_MODULE = "vllm.v1.worker.gpu.cudagraph_utils"
UNIT = "tok"
"""Every key of vLLM counts tokens; requests are an axis where they matter."""
ADVICE = "remove --profiler-config.capture_torch_profiler, and whatever else profiles while vLLM starts"
CONFIGURATION = (
    "model_config", "cache_config", "parallel_config", "scheduler_config", "compilation_config", "lora_config",
    "speculative_config",
)  # fmt: skip
"""Of vLLM's configuration, the parts whose fields are told."""
NO_PROFILER = "error: it takes no profiler; vLLM 0.26 or newer is needed"
NOTHING_PLANNED = "vLLM was to capture graphs and planned none"


def register(process: Process) -> None:
    """Hook vLLM in this process, should it ever make a worker."""
    Adapter(process).install()


class Adapter:
    """The hooks of one process. Each is called through :func:`~shapetrace_capture.hooks.guarded`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._target = f"{WRAPPER_MODULE}.{WRAPPER}"
        self._session: Session | None = None
        self._worker: Any = None
        self._runner: Any = None
        """The model runner while it captures, and not only to measure memory."""
        self._keys: Keys | None = None
        self._owners: dict[str, list[int]] = {}
        self._ended = False

    @property
    def session(self) -> Session:
        """Of the worker in this process."""
        if self._session is None:
            raise RuntimeError("vLLM captures before its worker's device was initialised")
        return self._session

    # ---- hooks applied

    def install(self) -> None:
        """Hook the worker's wrapper, now or when it is imported."""
        self._process.version = str(getattr(sys.modules.get("vllm"), "__version__", ""))
        self._process.hooks[self._target] = "not imported yet" if exists(WRAPPER_MODULE) else MISSING
        self._process.required = (self._target,)
        AfterImport({WRAPPER_MODULE: self._hook_wrapper}).install()

    def _hook_wrapper(self, module: ModuleType) -> None:
        owner, _, name = WRAPPER.partition(".")
        if is_hooked(getattr(getattr(module, owner, None), name, None)):  # loaded twice: the first one records
            self._process.hooks[self._target] = APPLIED
        else:
            around = guarded(self._target, self._init_device, self._process.fault)
            self._process.hooks[self._target] = wrap(module, WRAPPER, around)
        self._process.write()

    def _init_device(self, original: Hook, wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(wrapper, *args, **kwargs)
        self._start(wrapper.worker)
        return result

    def _start(self, worker: Any) -> None:
        """The worker knows its rank and has its runner: hook them, and say so in the rank's record."""
        session = Session.of_process(self._process, rank_of(worker.vllm_config.parallel_config, worker.rank))
        session.advice = ADVICE
        self._session, self._worker, self._ended = session, worker, False
        parts = getattr(worker.vllm_config, "__dict__", {})
        self._process.tell_configuration(lambda: {f"{name}.": parts.get(name) for name in CONFIGURATION})
        hooks, required = {self._target: APPLIED}, [self._target]
        for owner, name, hook, is_required in self._targets(worker):
            target, hooks_state = self._apply(owner, name, hook)
            hooks[target] = hooks_state
            if is_required:
                required.append(target)
        session.start(hooks, required)

    def _targets(self, worker: Any) -> Iterator[tuple[Any, str, Hook, bool]]:
        runner = type(worker.model_runner)
        yield type(worker), "compile_or_warm_up_model", self._warm_up, True
        yield runner, "capture_model", self._capture_model, True
        yield runner, "profile_cudagraph_memory", self._measure, False
        if is_v2(worker.model_runner):
            yield getattr(sys.modules.get(MANAGER_MODULE), "CudaGraphManager", None), "capture", self._capture_v2, True
        else:
            yield runner, "_warmup_and_capture", self._capture_v1, True

    def _apply(self, owner: Any, name: str, hook: Hook) -> tuple[str, str]:
        """Hook the method where its class or a base of it defines it: ``(target, state)``."""
        defining = next((cls for cls in getattr(owner, "__mro__", ()) if name in vars(cls)), None)
        if defining is None:
            return f"{getattr(owner, '__module__', MANAGER_MODULE)}.{getattr(owner, '__name__', '?')}.{name}", MISSING
        target = f"{defining.__module__}.{defining.__qualname__}.{name}"
        function = vars(defining)[name]
        if is_hooked(function):
            return target, APPLIED  # by an earlier engine in this process
        if name == "_warmup_and_capture" and "profiler" not in inspect.signature(function).parameters:
            return target, NO_PROFILER
        around = guarded(target, hook, self._process.fault)
        return target, wrap(sys.modules[defining.__module__], f"{defining.__qualname__}.{name}", around)

    # ---- start and end

    def _warm_up(self, original: Hook, worker: Any, *args: Any, **kwargs: Any) -> Any:
        """Everything that captures at start-up is in here."""
        result = original(worker, *args, **kwargs)
        self._ended = True
        self._finish()
        return result

    def _finish(self) -> None:
        eager = None if self.session.has_plan else eager_reason(self._worker)
        nothing = not self.session.has_plan and eager is None
        self.session.done(eager=eager, reason=NOTHING_PLANNED if nothing else "Done")

    def _measure(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        with measuring(self.session):
            return original(runner, *args, **kwargs)

    def _capture_model(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("profile_only") or self.session.graphs.measuring:
            return self._measure(original, runner, *args, **kwargs)
        self._runner, self._owners, self._keys = runner, {}, None
        try:
            if not is_v2(runner):
                self._keys = self._plan(runner, _descriptors_v1(runner))
            result = original(runner, *args, **kwargs)
        finally:
            self._runner = None
        if self._ended:  # captured again later: what done.json says must stay true
            self._finish()
        return result

    # ---- plan

    def _plan(self, owner: Any, descriptors: list[tuple[Any, str]]) -> Keys:
        """Write the plan of one runner or manager, before it captures."""
        is_first = not self._owners
        runner = self._name(owner)
        keys = Keys(runner, UNIT, descriptors)
        if keys.alike:
            self._process.fault(f"the plan of {runner}", f"keys that no axis tells apart: {keys.alike}")
        for error in keys.refused:  # the others are captured all the same
            self._process.fault(f"a key of {runner}", error)
        if descriptors:
            # one list of sizes is for all graphs, whatever runner a target names: the model's own comes first
            targets = [{**target, "runner": ""} for target in self.session.targets] if is_first else []
            left = unplanned_shapes(targets, runner, UNIT, keys.shapes, {""})
            self.session.plan(runner, UNIT, keys.shapes, left)
        return keys

    def _name(self, owner: Any) -> Runner:
        """``GPUModelRunner``, ``ModelCudaGraphManager``, or ``EagleSpeculator.prefill_cudagraph_manager``: what holds a
        manager tells those of a speculator apart."""
        name = type(owner).__name__
        speculator = getattr(self._runner, "speculator", None)
        for attribute, value in getattr(speculator, "__dict__", {}).items():
            if value is owner:
                name = f"{type(speculator).__name__}.{attribute}"
        alike = self._owners.setdefault(name, [])
        if id(owner) not in alike:
            alike.append(id(owner))
        return Runner(name, ordinal=alike.index(id(owner)) or None)

    # ---- captures

    def _capture_v1(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        if self._keys is None or self._runner is not runner or self.session.graphs.measuring:
            return original(runner, *args, **kwargs)
        call = inspect.signature(type(runner)._warmup_and_capture).bind(runner, *args, **kwargs)
        desc, mode = call.arguments["desc"], call.arguments["cudagraph_runtime_mode"].name
        is_split = bool(call.arguments.get("allow_microbatching"))
        model = None if is_split else model_of(runner)
        seen = Seen(runner, desc)
        capture = self.session.capture(
            self._keys.shape(desc, mode),
            expects_graph=True,
            expects_stream=mode == "FULL" and model is not None and model[1] == "runnable",
            capture_span=False,  # vLLM's own span stands in the window
            known=(lambda: is_captured(desc, mode)) if any(graph_wrappers(mode)) and not is_split else None,
            state=seen.state,
            more={"key": verbatim(desc, mode)},
        )
        theirs = call.arguments.get("profiler") or contextlib.nullcontext()
        call.arguments["profiler"] = ProfilerV1(theirs, capture, model, seen, self.session.fault)
        return original(*call.args, **call.kwargs)

    def _capture_v2(self, original: Hook, manager: Any, create_forward_fn: Any, *args: Any, **kwargs: Any) -> Any:
        if self._runner is None or self.session.graphs.measuring:
            return original(manager, create_forward_fn, *args, **kwargs)
        descriptors = [(desc, "") for group in manager._capture_descs.values() for desc in group]
        factory = FactoryV2(self.session, manager, self._runner, self._plan(manager, descriptors), create_forward_fn)
        try:
            return original(manager, factory, *args, **kwargs)
        finally:
            factory.close(*sys.exc_info())


def _descriptors_v1(runner: Any) -> list[tuple[Any, str]]:
    groups = runner.cudagraph_dispatcher.get_capture_descs()
    return [(descriptor, mode.name) for mode, descriptors in groups for descriptor in descriptors]
