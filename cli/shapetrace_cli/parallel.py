"""Work on many objects, a few at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], count: int) -> Iterator[Result]:
    """The result of each item as it is known, in no order; at most ``count`` are worked on or waited for.

    What ``work`` raises ends it, as does a caller that stops: items that were not begun never are.
    """
    pool = ThreadPoolExecutor(count)
    try:
        waiting = iter(items)
        running: set[Future[Result]] = {pool.submit(work, item) for item in islice(waiting, count)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                running.update(pool.submit(work, item) for item in islice(waiting, 1))
    finally:
        # not waited for: a thread may be stuck in a read until the store's timeout
        pool.shutdown(wait=False, cancel_futures=True)
