"""What SGLang does, with our plugin and without: one function each, run by :mod:`driver` in a process of its own.

A scenario is given its folder and returns what the test is to look at beside the spool.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from shapetrace_contract.settings import CaptureSettings

from support import draft_scenarios, gpu, plugin
from support.engine import (
    BACKENDS,
    RUNNERS,
    decode_runner,
    eagle_draft_runner,
    model_runner,
    prefill_runner,
    server_args,
)
from support.faulty import faults_of_ours
from support.flags import command_line

SIZES = (1, 2, 3, 4, 5, 6, 7, 8)


def no_axis(folder: Path) -> dict[str, int]:
    runner = decode_runner()
    with plugin.engine(folder / "spool"):
        runner.capture()
    return {"hooks": runner.attn_backend.hooks, "graphs": len(runner.backend._graphs)}


def attention(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        decode_runner(attention=True).capture()


def lora(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        decode_runner(lora=True).capture()


def both(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        decode_runner(lora=True, attention=True).capture()


def two_streams(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        decode_runner(streams=2).capture()


def greedy(folder: Path) -> None:
    """The EAGLE draft: from 0.5.22 on two captures at each size, inside SGLang's loop."""
    with plugin.engine(folder / "spool"):
        eagle_draft_runner(SIZES, rejection_sampling=True).capture()


def adaptive(folder: Path) -> None:
    """Several step configurations of one size, each with runners of its own."""
    args = server_args(speculative_adaptive=True)
    target, draft = model_runner(args=args), None
    with plugin.engine(folder / "spool", args=args):
        for steps in (1, 3):
            verify = decode_runner((1, 2, 4), owner=target, width=steps + 1)
            verify.speculative_num_steps = steps
            verify.capture()
            runner = eagle_draft_runner((1, 2, 4), owner=draft, steps=steps)
            draft = runner.model_runner
            draft.server_args = args
            runner.capture()


def several_drafts(folder: Path) -> None:
    """A draft with a model runner for each layer, and two more that nothing tells apart."""
    with plugin.engine(folder / "spool"):
        for index in (0, 1, 2, 2):
            decode_runner((1, 2), owner=model_runner(draft=index)).capture()


def breakable(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        decode_runner(SIZES, backend="breakable").capture()


def prefill_breakable(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        prefill_runner((16, 32, 64), chunks=(2, 4), backend="breakable").capture()


def prefill_piecewise(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        prefill_runner((16, 32, 64), backend="piecewise").capture()


def ragged(folder: Path) -> None:
    """A verify whose keys count tokens."""
    with plugin.engine(folder / "spool"):
        runner = decode_runner((1, 2, 4), width=4)
        runner.ragged_verify_mode, runner._ragged_capture_slots = True, lambda tokens: tokens // 4
        runner.capture()


def ranks(folder: Path) -> None:
    """Two pipeline stages of two tensor ranks, in each of two data replicas: eight processes, one spool."""
    for dp in (0, 1):
        for pp in (0, 1):
            for tp in (0, 1):
                child = os.fork()
                if child == 0:
                    with plugin.engine(folder / "spool", tp=tp, tp_size=2, pp=pp, pp_size=2, dp=dp):
                        decode_runner((1, 2)).capture()
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0


def attention_groups(folder: Path) -> None:
    """Attention data parallelism: the second group of a world of two is its rank 1, and no replica."""
    args = server_args(enable_dp_attention=True)
    with plugin.engine(folder / "spool", tp=1, tp_size=2, dp=1, args=args):
        decode_runner((1, 2)).capture()


def recapture(folder: Path) -> None:
    """The same runner again, and the runner that SGLang makes anew for the same model runner."""
    owner = model_runner()
    with plugin.engine(folder / "spool"):
        runner = decode_runner((1, 2, 4), owner=owner)
        runner.capture()
        runner.capture()
        decode_runner((1, 2), owner=owner).capture()


def without_the_hooked_capture(folder: Path) -> None:
    """A runner that captures by a loop of its own, as those of several draft steps in one graph do."""
    with plugin.engine(folder / "spool"):
        runner = decode_runner((1, 2, 4))
        with gpu.fake_graph_capture() as context, runner.backend.capture_session(context.stream):
            for size in (4, 2, 1):
                runner.capture_one_shape(size, runner.model_runner.model)


def other_vendor(folder: Path) -> None:
    """A backend of another vendor, imported after the plugins were loaded; its graphs are none of CUDA's."""
    with plugin.engine(folder / "spool"):
        module = importlib.import_module("sglang.srt.hardware_backend.xpu.graph_runner.xpu_full_graph_backend")
        torch.xpu.XPUGraph = object
        runner = decode_runner((1, 2))
        runner.device_module = type("FakeXpu", (gpu.FakeDevice,), {"graph": staticmethod(gpu.nothing_around)})
        module.get_or_create_global_graph_memory_pool = lambda *_: (0, 1)
        runner.backend = module.FullXPUGraphBackend(runner)
        runner.capture()


def new_field(folder: Path) -> None:
    """A later version's key has a field that nobody here knows."""
    key = sys.modules[f"{RUNNERS}.shape_key"].ShapeKey
    wider = dataclasses.make_dataclass("ShapeKey", [("moe_path", str, "")], bases=(key,), frozen=True)
    with plugin.engine(folder / "spool"):
        runner = decode_runner((1, 2), attention=False)
        runner._make_graph_key = lambda size, *_: wider(size=size, moe_path="wide_ep")
        runner.capture()


def key_without_a_tag(folder: Path) -> None:
    """One of the keys is too long for a tag."""
    key = sys.modules[f"{RUNNERS}.shape_key"].ShapeKey
    wider = dataclasses.make_dataclass("ShapeKey", [("moe_path", str, "")], bases=(key,), frozen=True)
    with plugin.engine(folder / "spool"):
        runner = decode_runner((1, 2), attention=False)
        runner._make_graph_key = lambda size, *_: wider(size=size, moe_path="x" * 300 if size == 2 else "plain")
        runner.capture()


def declared(folder: Path) -> None:
    """Targets: sizes that SGLang leaves out, an axis that it does not have, a runner that it does not make."""
    targets: list[dict[str, Any]] = [
        {"runner": "decode", "unit": "bs", "sizes": [2, 64]},
        {"runner": "DecodeCudaGraphRunner", "sizes": [4], "variants": [{"axis": "lora", "values": ["nolora"]}]},
        {"runner": "prefill", "sizes": [512]},
    ]
    with plugin.engine(folder / "spool", capture=CaptureSettings(targets=targets)):
        decode_runner().capture()


def not_asked(folder: Path) -> None:
    with plugin.engine(folder / "spool", capture=CaptureSettings(ranks=[3])):
        decode_runner((1, 2)).capture()


def graphs_off(folder: Path) -> None:
    with plugin.engine(folder / "spool", args=server_args(disable_cuda_graph=True)):
        pass


def no_graphs_and_no_reason(folder: Path) -> None:
    with plugin.engine(folder / "spool"):
        pass


def outer_profiler(folder: Path) -> dict[str, int]:
    """SGLang's own profiler is on, which records the whole capture in one pass."""
    runner = decode_runner()
    runner.enable_profile_cuda_graph = True
    with plugin.engine(folder / "spool"):
        runner.capture()
    return {"graphs": len(runner.backend._graphs)}


def engine_raises(folder: Path) -> str:
    """The model fails while its graph of size 3 is recorded."""
    runner = decode_runner((1, 2, 3, 4))
    body = runner.model_runner.model
    forward = body.forward

    def failing(ids: Any, *args: Any) -> Any:
        if len(ids) == 3 and gpu.FakeGraph.recording is not None:
            raise RuntimeError("no memory for three")
        return forward(ids, *args)

    body.forward = failing
    try:
        with plugin.engine(folder / "spool"):
            runner.capture()
    except RuntimeError as error:
        return str(error)
    return "nothing"


def hook_raises(folder: Path) -> dict[str, int]:
    """A fault in our hook, at every capture."""
    from shapetrace_capture.adapters.sglang import adapter

    def fail(key: Any) -> Any:
        raise ZeroDivisionError("a fault of ours")

    runner = decode_runner()
    with plugin.engine(folder / "spool"):
        adapter.axes_of = fail
        runner.capture()
    return {"graphs": len(runner.backend._graphs), "forwards": runner.model_runner.model.forwards}


def registration_raises(folder: Path) -> dict[str, int]:
    """A fault of ours when SGLang loads its plugins."""
    from shapetrace_capture.adapters.sglang import adapter

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a fault of ours")

    adapter.classes_with = fail
    runner = decode_runner()
    with plugin.engine(folder / "spool"):
        runner.capture()
    return {"graphs": len(runner.backend._graphs)}


def renamed_method(folder: Path) -> None:
    """A later version calls the method of its backends by another name."""
    backend = sys.modules[f"{BACKENDS}.full_cuda_graph_backend"].FullCudaGraphBackend
    backend.record_one = backend.capture_one
    abstract = backend.__mro__[1]
    del backend.capture_one
    del abstract.capture_one
    with plugin.engine(folder / "spool"):
        pass


def untagged_site(folder: Path) -> None:
    """A graph that SGLang captures elsewhere: metadata of attention, and where a version has none, one of ours."""
    with plugin.engine(folder / "spool"):
        decode_runner((1, 2)).capture()
        try:
            module = importlib.import_module(f"{RUNNERS}.metadata_glue_graph")
        except ImportError:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.ones(2)
            return
        runner = model_runner()
        runner.attn_backend.attn_backend_list = None
        runner.attn_backend.forward_metadata = None
        glue = module.MetadataGlueGraph("cpu")
        for _ in range(3):
            glue.run(runner.attn_backend, None, "key")


def more_warmups_than_expected(folder: Path) -> None:
    """This version warms up twice, and we thought once."""
    from shapetrace_capture.adapters.sglang import adapter

    adapter.KINDS["FullCudaGraphBackend"] = adapter.KINDS["FullCudaGraphBackend"]._replace(warmups=1)
    with plugin.engine(folder / "spool"):
        decode_runner((1, 2, 4)).capture()


def fewer_warmups_than_expected(folder: Path) -> None:
    """This version warms up twice, and we thought three times."""
    from shapetrace_capture.adapters.sglang import adapter

    adapter.KINDS["FullCudaGraphBackend"] = adapter.KINDS["FullCudaGraphBackend"]._replace(warmups=3)
    with plugin.engine(folder / "spool"):
        decode_runner((1, 2, 4)).capture()


def inert(folder: Path) -> dict[str, Any]:
    """Our plugin is installed and nobody asked for it."""
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.plugins import load_plugins

    load_plugins()
    decode_runner((1, 2)).capture()
    return {"wrapped": hasattr(DecodeCudaGraphRunner.capture, "__wrapped__")}


# ---- SGLang alone, in its own mode of one trace a size


def _upstream(folder: Path, runner: Any) -> dict[str, Any]:
    """What SGLang raises, how many graphs it captured, and the files that it wrote."""
    os.environ["SGLANG_GRAPH_BATCH_CAPTURE"] = "1"
    os.environ["SGLANG_TORCH_PROFILER_DIR"] = str(folder / "traces")
    runner.enable_profile_cuda_graph = True
    raised = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            runner.capture()
        except Exception as error:
            raised = type(error).__name__
    return {
        "raised": raised,
        "captures": len(runner.backend._graphs),
        "files": sorted(path.name for path in (folder / "traces").rglob("*.json.gz")),
    }


def upstream_no_axis(folder: Path) -> dict[str, Any]:
    return _upstream(folder, decode_runner())


def upstream_attention(folder: Path) -> dict[str, Any]:
    return _upstream(folder, decode_runner(attention=True))


def upstream_streams(folder: Path) -> dict[str, Any]:
    return _upstream(folder, decode_runner(streams=2))


def upstream_greedy(folder: Path) -> dict[str, Any]:
    return _upstream(folder, eagle_draft_runner(SIZES, rejection_sampling=True))


def upstream_draft(folder: Path) -> dict[str, Any]:
    """The plain runner, of a draft."""
    return _upstream(folder, decode_runner(owner=model_runner(draft=0)))


def upstream_breakable(folder: Path) -> dict[str, Any]:
    return _upstream(folder, decode_runner(backend="breakable"))


def _of(names: dict[str, Any]) -> dict[str, Any]:
    """The scenarios that a module of this package defines."""
    return {
        name: value
        for name, value in names.items()
        if callable(value) and getattr(value, "__module__", "") == names["__name__"] and not name.startswith("_")
    }


ALL = {
    **_of(dict(globals())),
    **_of(vars(draft_scenarios)),
    "command_line": command_line,
    "faults_of_ours": faults_of_ours,
}
