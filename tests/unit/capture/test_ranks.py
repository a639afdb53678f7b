"""Which rank a process is and what the run asks of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from shapetrace_capture.ranks import coordinates, has_stacks, is_asked


@given(tensor=st.integers(1, 16), pipeline=st.integers(1, 8), replica=st.integers(0, 7), data=st.data())
def test_the_coordinates_give_back_the_global_rank(
    tensor: int, pipeline: int, replica: int, data: st.DataObject
) -> None:
    tp, pp = data.draw(st.integers(0, tensor - 1)), data.draw(st.integers(0, pipeline - 1))
    rank = replica * (tensor * pipeline) + tensor * pp + tp
    found = coordinates(rank, {"tensor": tensor, "pipeline": pipeline})
    assert (found.rank, found.tp, found.pp, found.dp) == (rank, tp, pp, replica)


def test_a_rank_is_asked_for_by_name_or_by_number() -> None:
    assert [rank for rank in range(4) if is_asked("All", rank)] == [0, 1, 2, 3]
    assert [rank for rank in range(4) if is_asked("First", rank)] == [0]
    assert [rank for rank in range(4) if is_asked([1, 3], rank)] == [1, 3]


def test_stacks_on_the_first_rank_mean_the_first_that_is_recorded() -> None:
    assert [rank for rank in range(4) if has_stacks("First", "All", rank)] == [0]
    assert [rank for rank in range(4) if has_stacks("First", [3, 2], rank)] == [2]
    assert [rank for rank in range(2) if has_stacks("All", "All", rank)] == [0, 1]
    assert [rank for rank in range(2) if has_stacks("None", "All", rank)] == []
