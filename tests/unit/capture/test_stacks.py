"""Stacks are left out where they could cost a trace, and the reason is told."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from shapetrace_capture.stacks import Stacks


def stacks(asked: bool = True) -> Stacks:
    made = Stacks(asked, clock=lambda: 0.0, sleep=lambda _: None)
    made.prepare(SimpleNamespace(__version__="2.9.0"))
    return made


def test_who_asks_for_stacks_gets_them_and_nobody_else() -> None:
    assert (stacks().refusal(), stacks().to_json()) == (None, "all")
    assert (stacks(asked=False).refusal(), stacks(asked=False).to_json()) == (None, "none")


def test_the_first_reason_to_give_up_stays() -> None:
    made = stacks()
    made.give_up("first")
    made.give_up("second")
    assert (made.refusal(), made.to_json(), made.has_given_up) == ("first", "none any more: first", True)


def test_a_profile_function_of_the_engines_is_not_replaced() -> None:
    made = stacks()
    sys.setprofile(lambda *_: None)
    try:
        refusal = made.refusal()
    finally:
        sys.setprofile(None)
    assert refusal is not None
    assert "profile function" in refusal
    assert made.refusal() is None, "for as long as it is set"


def test_a_workaround_that_fails_costs_the_stacks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapetrace_capture.decoy.is_needed", lambda *_: True)
    made = stacks()  # this torch has no profiler
    refusal = made.refusal()
    assert refusal is not None
    assert "AttributeError" in refusal


def test_states_of_old_windows_are_let_go_of() -> None:
    class Held:
        pass

    import gc
    import weakref

    made, first = stacks(), Held()
    seen = weakref.ref(first)
    made.closed(first)
    del first
    gc.collect()
    assert seen() is not None
    for _ in range(20):
        made.closed(Held())
    gc.collect()
    assert seen() is None
