"""The queue of keys: none is lost, none is worked on twice at once, errors come back later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from shapetrace_operator import work_queue
from shapetrace_operator.work_queue import WorkQueue

Reconcile = Callable[[str], Awaitable[float | None]]
LIMIT_SECONDS = 60.0


def play(act: Callable[[WorkQueue[str]], Awaitable[None]], reconcile: Reconcile, workers: int = 2) -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(jitter=lambda: 0.01)
        tasks = [asyncio.create_task(queue.work(reconcile)) for _ in range(workers)]
        try:
            await asyncio.wait_for(act(queue), LIMIT_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    asyncio.run(main())


def test_a_key_that_is_added_while_it_is_worked_on_is_worked_on_again_afterwards() -> None:
    running = 0
    counts: list[int] = []
    begun, go, twice = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> None:
        nonlocal running
        running += 1
        counts.append(running)
        begun.set()
        await go.wait()
        running -= 1
        if len(counts) == 2:
            twice.set()

    async def act(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await begun.wait()
        queue.add("a")
        queue.add("a")
        go.set()
        await twice.wait()

    play(act, reconcile)
    assert counts == [1, 1]


def test_keys_that_wait_are_held_once() -> None:
    seen: list[str] = []
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        seen.append(key)
        if key == "end":
            done.set()

    async def act(queue: WorkQueue[str]) -> None:
        for key in ("a", "a", "a", "end"):
            queue.add(key)
        await done.wait()

    play(act, reconcile, workers=1)
    assert seen == ["a", "end"]


def test_the_clock_alone_brings_a_key_back() -> None:
    times = 0
    done = asyncio.Event()

    async def reconcile(key: str) -> float | None:
        nonlocal times
        times += 1
        if times == 3:
            done.set()
            return None
        return 0.01

    async def act(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await done.wait()

    play(act, reconcile)


def test_an_error_is_tried_again_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_queue, "FIRST_BACKOFF_SECONDS", 1.0)
    moments: list[float] = []
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        moments.append(asyncio.get_running_loop().time())
        if len(moments) == 4:
            done.set()
            return
        raise RuntimeError("no")

    async def act(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await done.wait()

    play(act, reconcile)
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses[0] >= 0.01
    assert pauses[1] >= 0.02
    assert pauses[2] >= 0.04


def test_the_earlier_of_two_times_holds_and_forgetting_cancels() -> None:
    seen: list[str] = []
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        seen.append(key)
        if key == "end":
            done.set()

    async def act(queue: WorkQueue[str]) -> None:
        queue.add_after("late", 0.02)
        queue.forget("late")
        queue.add_after("a", 60)
        queue.add_after("a", 0.01)
        queue.add_after("a", 60)
        queue.add_after("end", 0.05)
        await done.wait()

    play(act, reconcile)
    assert seen == ["a", "end"]
