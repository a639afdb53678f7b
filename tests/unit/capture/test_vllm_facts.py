"""What is read from vLLM's objects: ranks, the reason for no graphs, rows. The objects here are of this test."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from shapetrace_capture.adapters.vllm.facts import (
    eager_reason,
    graph_wrappers,
    is_captured,
    loras_of,
    rank_of,
    rows_of,
    rows_of_closure,
)
from shapetrace_capture.ranks import RankId


def parallel(**values: Any) -> SimpleNamespace:
    base = {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "prefill_context_parallel_size": 1}
    return SimpleNamespace(**(base | {"data_parallel_index": 0, "data_parallel_rank": 0} | values))


def test_tensor_ranks_lie_inside_pipeline_ranks() -> None:
    config = parallel(tensor_parallel_size=2, pipeline_parallel_size=3)
    assert [rank_of(config, rank) for rank in range(6)] == [
        RankId(rank, tp=rank % 2, pp=rank // 2) for rank in range(6)
    ]


def test_replicas_of_a_dense_model_are_told_apart_although_their_data_parallel_rank_is_0() -> None:
    ranks = [
        rank_of(parallel(tensor_parallel_size=2, data_parallel_index=index, data_parallel_rank=0), rank)
        for index in range(2)
        for rank in range(2)
    ]
    assert ranks == [RankId(0), RankId(1, tp=1), RankId(2, dp=1), RankId(3, tp=1, dp=1)]


def test_replicas_of_a_model_with_experts_share_the_experts() -> None:
    config = {"tensor_parallel_size": 2, "enable_expert_parallel": True, "data_parallel_index": 1}
    assert rank_of(parallel(**config, data_parallel_rank=1), 1) == RankId(3, tp=1, dp=1, ep=3)


def test_an_external_launcher_numbers_all_replicas_in_one_world() -> None:
    assert rank_of(parallel(tensor_parallel_size=2, data_parallel_rank=1, data_parallel_index=1), 3) == RankId(
        3, tp=1, dp=1
    )


def test_context_parallel_ranks_lie_between_pipeline_and_tensor() -> None:
    config = parallel(tensor_parallel_size=2, pipeline_parallel_size=2, prefill_context_parallel_size=2)
    assert rank_of(config, 7) == RankId(7, tp=1, pp=1)
    assert rank_of(config, 3) == RankId(3, tp=1, pp=0)


def test_a_version_without_the_newer_fields_still_has_ranks() -> None:
    assert rank_of(SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1), 1) == RankId(1, tp=1)


def worker(device: str, *, eager: bool, mode: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        device=SimpleNamespace(type=device),
        vllm_config=SimpleNamespace(
            model_config=SimpleNamespace(enforce_eager=eager),
            compilation_config=SimpleNamespace(cudagraph_mode=None if mode is None else SimpleNamespace(name=mode)),
        ),
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (worker("cpu", eager=True, mode="NONE"), "the CPU platform of vLLM captures no graphs"),
        (worker("cuda", eager=True, mode="NONE"), "enforce_eager is set"),
        (worker("cuda", eager=False, mode="NONE"), "compilation_config.cudagraph_mode is NONE"),
        (worker("cuda", eager=False, mode=None), "compilation_config.cudagraph_mode is NONE"),
        (worker("cuda", eager=False, mode="FULL_AND_PIECEWISE"), None),
    ],
)
def test_eager_has_a_reason_or_is_not_claimed(given: SimpleNamespace, reason: str | None) -> None:
    assert eager_reason(given) == reason


def of(*shape: int) -> SimpleNamespace:
    return SimpleNamespace(shape=shape)


def test_rows_are_those_of_ids_or_embeddings_and_of_the_last_axis_of_positions() -> None:
    assert rows_of(input_ids=of(8), positions=of(3, 8)) == 8
    assert rows_of(input_ids=None, positions=of(3, 8), inputs_embeds=of(16, 64)) == 16
    assert rows_of(input_ids=None, positions=of(3, 8)) == 8
    assert rows_of() is None


def test_rows_of_a_forward_are_found_in_what_it_closes_over() -> None:
    def factory(model_inputs: dict[str, Any]) -> Any:
        return lambda mode: (mode, model_inputs)

    assert rows_of_closure(factory({"input_ids": of(32)})) == 32
    assert rows_of_closure(lambda mode: mode) is None
    assert rows_of_closure(print) is None


@dataclass(frozen=True)
class LoraKey:
    num_tokens: int
    num_active_loras: int = 0


@pytest.mark.parametrize(
    ("claimed", "requests", "held"),
    [
        pytest.param(0, (0, 0, 0, 0), "", id="none"),
        pytest.param(2, (1, 2, 1, 2), "2", id="as many as claimed"),
        pytest.param(4, (1, 2, 3, 1), "4", id="one more than slots: all of them"),
        pytest.param(3, (1, 2), "3", id="no more than requests"),
        pytest.param(1, (1, 2, 1, 2), "2", id="too many"),
        pytest.param(3, (1, 2, 1, 2), "2", id="too few"),
        pytest.param(0, (1, 1, 1, 1), "1", id="some"),
        pytest.param(4, (0, 0, 0, 0), "", id="none, though some are claimed"),
    ],
)
def test_adapters_that_are_mapped_are_held_against_the_number_that_a_key_claims(
    claimed: int, requests: tuple[int, ...], held: str
) -> None:
    tokens = tuple(adapter for adapter in requests for _ in range(2))
    mapping = SimpleNamespace(index_mapping=tokens, prompt_mapping=requests)
    manager = SimpleNamespace(_adapter_manager=SimpleNamespace(_last_mapping=mapping, lora_slots=3))
    mapped = len(set(requests) - {0})
    assert loras_of(SimpleNamespace(lora_manager=manager), LoraKey(8, claimed)) == {
        "lora": "true" if mapped else "",
        "mappedloras": str(mapped),
        "activeloras": held,
    }


def test_without_adapters_nothing_is_said_of_them() -> None:
    assert loras_of(SimpleNamespace(), LoraKey(8)) == {}


@dataclass(frozen=True)
class Key:
    """A descriptor."""

    num_tokens: int


class OldWrapper:
    """vLLM 0.26's breakable wrapper: for every mode, and it answers for its model."""

    def __init__(self, entries: dict[Key, Any]) -> None:
        self.entries = entries

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def test_a_wrapper_without_a_mode_captures_in_every_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = OldWrapper({Key(8): SimpleNamespace(capture=object()), Key(4): SimpleNamespace(capture=None)})
    module = SimpleNamespace(BreakableCUDAGraphWrapper=SimpleNamespace(_all_instances=[wrapper]))
    monkeypatch.setitem(sys.modules, "vllm.compilation.breakable_cudagraph", module)  # type: ignore[arg-type]
    assert [found for found, _, _ in graph_wrappers("PIECEWISE")] == [wrapper]
    assert (is_captured(Key(8), "FULL"), is_captured(Key(4), "FULL"), is_captured(Key(2), "FULL")) == (
        True,
        False,
        False,
    )
