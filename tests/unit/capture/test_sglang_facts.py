"""How SGLang's objects are read: each as some version of it has them, made here by hand."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from shapetrace_capture.adapters.sglang import facts
from shapetrace_capture.ranks import RankId
from shapetrace_contract.tag import Runner, Shape, sglang_name


class Unset:
    """A topology that is not set up yet."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name} has not been written in this process")


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(facts.CONTEXT)
    module.get_parallel = Unset  # type: ignore[attr-defined]
    module.get_spec = lambda: SimpleNamespace(speculative_use_rejection_sampling=True)  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, facts.CONTEXT, module)
    return module


COORDINATES = {"tp_rank": 1, "tp_size": 2, "pp_rank": 1, "pp_size": 3, "moe_ep_rank": 1}


@pytest.mark.parametrize("place", ["arguments", "ps", "published"])
def test_the_rank_is_read_where_the_version_keeps_it(context: Any, place: str) -> None:
    known = SimpleNamespace(**COORDINATES, dp_rank=1)
    source = {"arguments": known, "ps": SimpleNamespace(ps=known), "published": SimpleNamespace()}[place]
    if place == "published":
        context.get_parallel = lambda: known
    assert facts.rank_of(source) == RankId(1 * 6 + 2 * 1 + 1, tp=1, pp=1, dp=1, ep=1)


@pytest.mark.parametrize(
    "more",
    [{"attn_dp_size": 2}, {"server_args": SimpleNamespace(enable_dp_attention=True)}],
    ids=["published", "argument"],
)
def test_an_attention_group_is_no_replica(context: Any, more: dict[str, Any]) -> None:
    assert facts.rank_of(SimpleNamespace(**COORDINATES, dp_rank=1, **more)) == RankId(3, tp=1, pp=1, dp=0, ep=1)


def test_without_replicas_there_is_no_dp_rank(context: Any) -> None:
    assert facts.rank_of(SimpleNamespace(**COORDINATES, dp_rank=None)).rank == 3


def test_a_rank_that_nobody_says_is_a_fault(context: Any) -> None:
    with pytest.raises(LookupError, match="tp_size"):
        facts.rank_of(SimpleNamespace(pp_size=1))


# ---- keys


@pytest.mark.parametrize(
    ("key", "axes"),
    [
        ({"size": 8}, {}),
        ({"size": 8, "stream_idx": None, "variant_label": None}, {}),
        ({"size": 8, "stream_idx": 0}, {"stream": "0"}),
        ({"size": 8, "variant_label": "nolora"}, {"lora": "nolora"}),
        ({"size": 8, "variant_label": "greedy"}, {"greedy": "greedy"}),
        ({"size": 8, "variant_label": "chunked_prefix:4"}, {"prefix": "chunked_prefix:4"}),
        ({"size": 8, "variant_label": "chunked_prefix"}, {"prefix": "chunked_prefix"}),
        ({"size": 8, "variant_label": "something new"}, {"variant": "something new"}),
        ({"size": 8, "dsa_variant": "dense"}, {"attention": "dense"}),
        ({"size": 8, "attention_variant": "candidate_all"}, {"attention": "candidate_all"}),
        (
            {"size": 8, "moe_path": True, "3d": "y", "epoch": 2, "__": ""},
            {"moepath": "True", "x3d": "y", "xepoch": "2", "x": "''"},
        ),
        ({"size": 8, "moe_path": "a", "moePath": "b"}, {"moepath": "a", "moepathx": "b"}),
    ],
)
def test_each_field_that_is_set_is_an_axis(key: dict[str, Any], axes: dict[str, str]) -> None:
    assert facts.axes_of(key) == axes
    Shape(Runner("DecodeCudaGraphRunner"), "bs", 8, axes)  # has a tag


def test_the_alias_is_the_name_that_sglang_gives_the_same_trace() -> None:
    axes = facts.axes_of({"size": 8, "stream_idx": 1, "variant_label": "nolora", "attention_variant": "sparse"})
    shape = Shape(Runner("DecodeCudaGraphRunner"), "bs", 8, axes)
    assert sglang_name(shape, 3) == "DecodeCudaGraphRunner_bs_8_sparse_nolora_stream_1_rank3"


@dataclass(frozen=True)
class Key:
    size: int
    stream_idx: int | None = None
    variant_label: str | None = None
    attention_variant: str | None = None


class DecodeCudaGraphRunner:
    """With the attributes that the newest version has."""

    def __init__(self, **more: Any) -> None:
        self.capture_bs = [1, 2]
        self.captured_req_width = 1
        self.__dict__.update(more)

    def _make_graph_key(
        self, size: int, stream: int | None = None, label: str | None = None, attention: str | None = None
    ) -> Key:
        return Key(size, stream, label, attention)


class EAGLEDraftCudaGraphRunner(DecodeCudaGraphRunner):
    def _make_graph_key(self, bs: int, stream: int | None = None, label: str | None = None) -> Key:  # type: ignore[override]
        return Key(bs, None, label)


class MultiLayerDraft(DecodeCudaGraphRunner):
    def _make_graph_key(self, bs: int) -> Key:  # type: ignore[override]
        return Key(bs)


class PrefillCudaGraphRunner:
    capture_num_tokens = (16, 32)
    _capture_chunked_prefix = True
    _prefix_capture_variants = (2, 4)


class UnknownRunner:
    capture_bs = (1, 2)


def keys(runner: Any) -> list[tuple[Any, ...]]:
    return [tuple(key.values()) for key in facts.keys_of(runner)]


def test_the_plan_is_in_the_order_of_sglangs_loops() -> None:
    variants = SimpleNamespace(capture_labels=("dense", "sparse"))
    runner = DecodeCudaGraphRunner(
        record_nolora_graph=True, attention_graph_variants=variants, enable_pdmux=True, stream_groups=[0, 1]
    )
    found = keys(runner)
    assert found[:4] == [
        (2, 0, "lora", "dense"),
        (2, 0, "lora", "sparse"),
        (2, 0, "nolora", "dense"),
        (2, 0, "nolora", "sparse"),
    ]
    assert (len(found), found[8]) == (16, (2, 1, "lora", "dense"))


def test_a_runners_own_keys_leave_out_what_it_leaves_out() -> None:
    runner = MultiLayerDraft(enable_pdmux=True, stream_groups=[0, 1], record_nolora_graph=True)
    assert set(keys(runner)) == {(2, None, None, None), (1, None, None, None)}


def test_the_plan_is_what_each_runner_iterates_over() -> None:
    assert keys(DecodeCudaGraphRunner(dsa_dual_graph=True))[0] == (2, None, None, "dense")
    assert keys(DecodeCudaGraphRunner(ragged_verify_mode=True, captured_req_width=4))[0][0] == 8
    assert keys(DecodeCudaGraphRunner(record_nolora_graph=True, _tree_mode=True)) == [
        (2, None, None, None),
        (1, None, None, None),
    ]
    assert keys(UnknownRunner()) == [(2,), (1,)]
    assert keys(object()) == []
    prefill = [None, "chunked_prefix:2", "chunked_prefix:4"]
    assert keys(PrefillCudaGraphRunner()) == [(size, label) for size in (32, 16) for label in prefill]


def test_the_eagle_draft_plans_a_greedy_graph_where_its_version_captures_one(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keys(EAGLEDraftCudaGraphRunner()) == [(2, None, None, None), (1, None, None, None)]
    monkeypatch.setattr(sys.modules[__name__], "_GREEDY_VARIANT", "greedy", raising=False)
    assert [key[2] for key in keys(EAGLEDraftCudaGraphRunner())] == [None, "greedy", None, "greedy"]
    context.get_spec = lambda: SimpleNamespace(speculative_use_rejection_sampling=False)
    assert [key[2] for key in keys(EAGLEDraftCudaGraphRunner())] == [None, None]


# ---- names


def test_a_runner_is_named_by_class_draft_step_and_width() -> None:
    def name(cls: Any = DecodeCudaGraphRunner, *, model: dict[str, Any] | None = None, **more: Any) -> str:
        runner = cls()
        runner.__dict__.update(more, model_runner=SimpleNamespace(**(model or {})))
        return str(facts.runner_of(runner))

    assert name() == "DecodeCudaGraphRunner"
    assert name(captured_req_width=4) == "DecodeCudaGraphRunner-w4"
    assert name(model={"is_draft_worker": True, "draft_model_idx": None}) == "DecodeCudaGraphRunner-draft0"
    assert name(model={"is_draft_worker": True, "draft_model_idx": 2}, step=1) == "DecodeCudaGraphRunner-draft2-step1"
    assert name(_tree_draft_mode=True, captured_req_width=3) == "DecodeCudaGraphRunner-draft0-w3"
    adaptive = {"server_args": SimpleNamespace(speculative_adaptive=True)}
    assert name(model=adaptive, speculative_num_steps=3) == "DecodeCudaGraphRunner-step3"
    assert name(speculative_num_steps=3) == "DecodeCudaGraphRunner"
    assert name(UnknownRunner) == "UnknownRunner"


def test_units_and_the_words_of_targets() -> None:
    for runner, unit, word in (
        (DecodeCudaGraphRunner(), "bs", "decode"),
        (EAGLEDraftCudaGraphRunner(), "bs", "decode"),
        (DecodeCudaGraphRunner(ragged_verify_mode=True), "tok", "decode"),
        (PrefillCudaGraphRunner(), "tok", "prefill"),
        (UnknownRunner(), "unknown", "decode"),
    ):
        assert facts.unit_of(runner) == unit
        assert word in facts.words_for(runner, Runner(type(runner).__name__))
    assert "draft" in facts.words_for(EAGLEDraftCudaGraphRunner(), Runner("E", draft=0))


# ---- the forward


def test_rows_are_those_of_the_batch_that_the_forward_is_fed() -> None:
    def made(forward_batch: Any, size: int) -> Any:
        def run_once() -> Any:
            return forward_batch, size

        return run_once

    def rows(**more: Any) -> int | None:
        batch = SimpleNamespace(**{"input_ids": None, "positions": None, **more})
        return facts.rows_of(facts.variables_of(made(batch, 99)))

    assert rows(input_ids=SimpleNamespace(shape=(32,))) == 32
    assert rows(positions=SimpleNamespace(shape=(16,))) == 16
    assert rows(positions=SimpleNamespace(shape=(3, 16))) is None
    assert rows() is None
    assert facts.rows_of(facts.variables_of(len)) is None


def test_rows_of_a_draft_whose_steps_are_one_graph_are_those_of_its_first_batch() -> None:
    first, second = (SimpleNamespace(input_ids=SimpleNamespace(shape=(rows,))) for rows in (16, 8))
    assert facts.rows_of({"items": [(object(), first, 16, object()), (object(), second, 8, object())]}) == 16
    assert facts.rows_of({"items": [7, object()]}) is None
    assert facts.rows_of({"items": None}) is None


# ---- sources


def test_backends_are_found_in_the_source_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "found_backends"
    (package / "vendor").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "vendor" / "__init__.py").touch()
    (package / "base.py").write_text(
        "from abc import abstractmethod\nclass Base:\n    @abstractmethod\n    def capture_one(self): ...\n"
    )
    (package / "full.py").write_text("import no_such_library\nclass Full:\n    def capture_one(self): pass\n")
    (package / "vendor" / "x.py").write_text(
        "class X:\n    def capture_one(self): pass\nclass Y:\n    def other(self): 'def capture_one('\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert facts.classes_with("found_backends", "capture_one") == [
        "found_backends.full.Full.capture_one",
        "found_backends.vendor.x.X.capture_one",
    ]
    assert facts.classes_with("found_backends", "renamed") == []
    assert facts.resolve("found_backends.full.Full.capture_one", imports=True) is None
    assert facts.resolve("found_backends.vendor.x.X.capture_one") is None
    assert facts.resolve("found_backends.vendor.x.X.capture_one", imports=True) is not None


# ---- witnesses


@pytest.mark.parametrize(
    ("runner", "told"),
    [
        ({}, {}),
        ({"speculative_num_draft_tokens": 4, "speculative_num_steps": 3}, {"draftTokens": 4, "steps": 3}),
        ({"topk": 2, "captured_req_width": 5}, {"topk": 2, "width": 5}),
        ({"require_mlp_tp_gather": True, "num_dp_ranks": 8, "dp_size": 2}, {"gathered": 8}),
        ({"require_mlp_tp_gather": True, "dp_size": 2}, {"gathered": 2}),
        ({"require_mlp_tp_gather": False, "num_dp_ranks": 8, "dp_size": 2}, {}),
        ({"num_dp_ranks": 8, "dp_size": 2}, {}),
    ],
)
def test_factors_between_a_size_and_its_rows_are_told_as_far_as_the_runner_has_them(
    runner: dict[str, Any], told: dict[str, int]
) -> None:
    assert facts.witnesses(SimpleNamespace(**runner)) == told


# ---- no graphs


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"disable_cuda_graph": True}, "disable_cuda_graph is set"),
        ({"device": "cpu"}, "SGLang captures no graphs on device cpu"),
        ({"device": "cuda"}, None),
    ],
)
def test_graphs_are_off_only_where_that_is_known(args: dict[str, Any], reason: str | None) -> None:
    assert facts.eager_reason(SimpleNamespace(**args)) == reason


@pytest.mark.parametrize(("prefill", "off"), [("disabled", True), ("breakable", False)])
def test_both_backends_must_be_disabled(context: Any, prefill: str, off: bool) -> None:
    config = SimpleNamespace(decode=SimpleNamespace(backend="disabled"), prefill=SimpleNamespace(backend=prefill))
    assert (facts.eager_reason(SimpleNamespace(cuda_graph_config=config)) is not None) is off
    context.get_exec = lambda: SimpleNamespace(graph=SimpleNamespace(cuda_graph_config=config))
    assert (facts.eager_reason(SimpleNamespace()) is not None) is off
