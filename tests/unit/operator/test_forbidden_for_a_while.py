"""An API server that has just started has not read its roles yet: what it forbids then is asked again."""

from __future__ import annotations

import pytest
from shapetrace_operator.main import FORBIDDEN_PAUSES_SECONDS, serve


class RefusedError(Exception):
    """As kopf's: the API server's answer has a status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered {status}")
        self.status = status


class Runs:
    """Runs that end one after the other as they are told: by the statuses of an error's group, or well."""

    def __init__(self, *ends: tuple[int, ...] | None) -> None:
        self._ends = list(ends)
        self.pauses_seconds: list[float] = []

    def __call__(self) -> None:
        end = self._ends.pop(0)
        if end is not None:
            raise BaseExceptionGroup("tasks", [RefusedError(status) for status in end])

    def serve(self) -> int:
        return serve(self, self.pauses_seconds.append)

    @property
    def left(self) -> int:
        return len(self._ends)


def test_what_was_forbidden_for_a_while_is_begun_again() -> None:
    runs = Runs((403,), (403, 403), None)
    assert (runs.serve(), runs.left) == (0, 0)
    assert runs.pauses_seconds == [1, 2]


def test_what_stays_forbidden_ends_the_process() -> None:
    runs = Runs(*[(403,)] * (len(FORBIDDEN_PAUSES_SECONDS) + 1))
    assert (runs.serve(), runs.left) == (1, 0)
    assert runs.pauses_seconds == list(FORBIDDEN_PAUSES_SECONDS)


@pytest.mark.parametrize("end", [(404,), (403, 500)])
def test_any_other_fault_ends_the_process_at_once(end: tuple[int, ...]) -> None:
    runs = Runs(end, None)
    assert (runs.serve(), runs.left) == (1, 1)
    assert runs.pauses_seconds == []


def test_a_signal_is_a_good_end() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert serve(interrupted, lambda _: None) == 0
