"""Every graph is counted, inside a capture of ours or elsewhere."""

from __future__ import annotations

from typing import Any

from shapetrace_capture.graphs import MAX_CALLERS, GraphCounter


def graph_class() -> Any:
    class Graph:
        begun = 0

        def capture_begin(self, pool: int | None = None) -> str:
            """Of the original."""
            type(self).begun += 1
            return f"pool {pool}"

    return Graph


def test_graphs_are_counted_and_untagged_ones_name_their_caller() -> None:
    counter, made, tagged = GraphCounter(), graph_class(), [True]
    assert counter.install(made, lambda: tagged[0]) == "applied"
    assert made().capture_begin(pool=7) == "pool 7"
    tagged[0] = False
    made().capture_begin()
    found = counter.to_json()
    assert (found["all"], found["tagged"]) == (2, 1)
    (caller,) = found["untagged"]
    assert "tests/unit/capture/test_graphs.py".endswith(caller.split(":")[0].split("/")[-1])
    assert caller.endswith("test_graphs_are_counted_and_untagged_ones_name_their_caller")


def test_a_later_counter_takes_over_and_no_call_counts_twice() -> None:
    first, second, made = GraphCounter(), GraphCounter(), graph_class()
    first.install(made, lambda: True)
    second.install(made, lambda: True)
    made().capture_begin()
    assert (first.all, second.all, made.begun) == (0, 1, 1)


def test_the_callers_are_bounded() -> None:
    counter, made = GraphCounter(), graph_class()
    counter.install(made, lambda: False)
    for number in range(MAX_CALLERS + 5):
        exec(f"def caller_{number}(graph): graph.capture_begin()\ncaller_{number}(made())", {"made": made})
    assert len(counter.to_json()["untagged"]) == MAX_CALLERS
    assert counter.all == MAX_CALLERS + 5


def test_a_failing_question_costs_the_engine_nothing() -> None:
    counter, made = GraphCounter(), graph_class()

    def fail() -> bool:
        raise RuntimeError

    counter.install(made, fail)
    assert made().capture_begin() == "pool None"


def test_a_torch_without_graphs_is_missing_not_an_error() -> None:
    assert GraphCounter().install(None, lambda: True) == "missing"


def test_graphs_that_only_measure_memory_are_counted_apart() -> None:
    counter, made = GraphCounter(), graph_class()
    counter.install(made, lambda: False)
    counter.measuring = True
    made().capture_begin()
    counter.measuring = False
    assert counter.to_json() == {"all": 0, "tagged": 0, "untagged": [], "measured": 1}
