"""Lists: the first picture before any decision, and a look now and then for deletions that no watch delivered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from shapetrace_contract import names

from shapetrace_operator.cache import Cache, Key, run_key
from shapetrace_operator.kube import CORE, JOBS, RUNS, ApiError, Kube

RESYNC_SECONDS = 60.0
"""A watch that starts over after a break lists what is there, and is silent about what is gone."""
RETRY_SECONDS = 2.0

log = logging.getLogger(__name__)


async def fill(kube: Kube, cache: Cache, namespaces: Sequence[str | None]) -> None:
    """The first picture: all runs, and the Jobs and pods that carry a run's label. ApiError where it cannot be had."""
    for namespace in namespaces:
        async for run in kube.list_all(RUNS, names.PLURAL, namespace):
            cache.put_run(run)
        async for job in kube.list_all(JOBS, "jobs", namespace, names.LABEL_RUN):
            cache.put_job(job)
        async for pod in kube.list_all(CORE, "pods", namespace, names.LABEL_RUN):
            cache.put_pod(pod)


async def resync(kube: Kube, cache: Cache, key: Key) -> bool:
    """Compare one run's children with a list taken now; whether something had gone unnoticed."""
    # only what was known before the lists were taken can be missed in them
    before = cache.children_of(key.uid)
    selector = f"{names.LABEL_RUN}={key.uid}"
    jobs = [job async for job in kube.list_all(JOBS, "jobs", key.namespace, selector)]
    pods = [pod async for pod in kube.list_all(CORE, "pods", key.namespace, selector)]
    found = {obj["metadata"]["uid"] for obj in [*jobs, *pods]}
    for job in jobs:
        cache.put_job(job)
    for pod in pods:
        cache.put_pod(pod)
    gone = (before - found) & cache.children_of(key.uid)
    for uid in gone:
        if uid in cache.jobs:
            cache.remove_job(cache.jobs[uid])
        else:
            cache.remove_pod(cache.pods[uid])
    return bool(gone)


async def forget_gone(kube: Kube, cache: Cache, namespaces: Sequence[str | None]) -> None:
    """Forget the runs that are in no list any more."""
    before = set(cache.runs)
    found = {run["metadata"]["uid"] for space in namespaces async for run in kube.list_all(RUNS, names.PLURAL, space)}
    for uid in before - found:
        cache.remove_run(uid)


async def resync_for_ever(
    kube: Kube, cache: Cache, queue: Callable[[Key], None], namespaces: Sequence[str | None] = (None,)
) -> None:
    """Every minute: runs that are gone are forgotten, and the children of every unfinished run compared."""
    while True:
        await asyncio.sleep(RESYNC_SECONDS)
        try:
            await forget_gone(kube, cache, namespaces)
        except ApiError as error:
            log.debug("no list of runs: %s", error)
        for run in cache.unfinished_runs():
            key = run_key(run)
            try:
                if await resync(kube, cache, key):
                    log.info("%s: a deletion had gone unnoticed", key)
            except ApiError as error:
                log.debug("%s: no list: %s", key, error)
            queue(key)
