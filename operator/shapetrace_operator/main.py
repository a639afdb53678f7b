"""The operator's process: connect, wait for the CRD, take a first picture, then watch and work."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import getpass
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import aiohttp
import kopf

from shapetrace_operator import connect, handlers, listing, logs, probes
from shapetrace_operator.cache import Cache, Key, run_key
from shapetrace_operator.kube import ApiError, Kube
from shapetrace_operator.progress import Poller
from shapetrace_operator.reconcile import Reconciler
from shapetrace_operator.settings import Settings, read
from shapetrace_operator.work_queue import WorkQueue

CRD_RETRY_SECONDS = 2.0
FORBIDDEN_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)
"""An API server that has just started forbids everything until it has read its roles. kopf, which tries other faults
again, ends by that. After as many times the kubelet starts the process anew."""

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; the exit status. 1 means that something died, and the kubelet should start it again."""
    settings = read(sys.argv[1:] if arguments is None else arguments, os.environ)
    logs.configure(settings.log_json, settings.log_level)
    _name_the_user()
    return serve(lambda: asyncio.run(_run(settings)), time.sleep)


def serve(run: Callable[[], None], sleep: Callable[[float], None]) -> int:
    """``run`` until it ends; again, after a pause, where it was forbidden something. The exit status."""
    pauses_seconds = iter(FORBIDDEN_PAUSES_SECONDS)
    while True:
        try:
            run()
        except (KeyboardInterrupt, asyncio.CancelledError):
            return 0
        except BaseExceptionGroup as group:
            said = "; ".join(f"{type(error).__name__}: {error}" for error in group.exceptions)
            is_forbidden = all(getattr(error, "status", None) == HTTPStatus.FORBIDDEN for error in group.exceptions)
            pause_seconds = next(pauses_seconds, None) if is_forbidden else None
            if pause_seconds is None:
                log.error("stopped: %s", said)
                return 1
            log.warning("the watches ended, and begin again in %s s: %s", pause_seconds, said)
            sleep(pause_seconds)
        else:
            return 0


def _name_the_user() -> None:
    """kopf asks for the user's name even when it does not use it, and a fixed user has no entry in /etc/passwd."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = "shapetrace"


async def _run(settings: Settings) -> None:
    health = probes.Health()
    async with contextlib.AsyncExitStack() as stack:
        server = await probes.serve(health, settings.probe_port)
        stack.push_async_callback(server.cleanup)
        client = await stack.enter_async_context(await connect.client(settings))
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False, auto_decompress=False))
        kube, cache = Kube(client), Cache()
        await _wait_for_crd(kube, health)
        await _first_picture(kube, cache, settings, health)

        queue: WorkQueue[Key] = WorkQueue(jitter=lambda: random.uniform(0.8, 1.2))  # noqa: S311 - not a secret
        reconciler = Reconciler(kube, cache, settings.defaults, lambda: datetime.now(UTC), time.monotonic)
        for run in cache.runs.values():
            queue.add(run_key(run))
        login = functools.partial(connect.login, settings.kubeconfig, client.configuration.host)
        registry = handlers.registry(cache, queue.add, login)
        health.ready = True
        log.info("serving %s", ", ".join(settings.namespaces) or "all namespaces")
        await _work(settings, queue, reconciler, Poller(cache, session, queue.add), kube, cache, registry)


async def _work(
    settings: Settings,
    queue: WorkQueue[Key],
    reconciler: Reconciler,
    poller: Poller,
    kube: Kube,
    cache: Cache,
    registry: kopf.OperatorRegistry,
) -> None:
    """All tasks of the process. kopf ends on SIGTERM, and the others with it; one that dies ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(queue.work(reconciler.reconcile)) for _ in range(settings.workers)]
        tasks.append(group.create_task(poller.run()))
        tasks.append(group.create_task(listing.resync_for_ever(kube, cache, queue.add, settings.namespaces or (None,))))
        await kopf.operator(
            registry=registry,
            settings=handlers.settings(),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        )
        for task in tasks:
            task.cancel()


async def _wait_for_crd(kube: Kube, health: probes.Health) -> None:
    """kopf looks for its resources once, at its start: an operator installed before the CRD waits here."""
    health.waiting_for, said = "the API server to serve ProfileRuns", ""
    while True:
        try:
            if await kube.served():
                return
            now_said = "ProfileRuns are not served yet: waiting for the CRD"
        except ApiError as error:
            now_said = f"the API server cannot be asked: {error}"
        if now_said != said:
            log.info(now_said)
            said = now_said
        await asyncio.sleep(CRD_RETRY_SECONDS)


async def _first_picture(kube: Kube, cache: Cache, settings: Settings, health: probes.Health) -> None:
    """Before any decision: a Job that is not in the cache must not exist."""
    health.waiting_for = "the first lists"
    while True:
        try:
            await listing.fill(kube, cache, settings.namespaces or (None,))
        except ApiError as error:
            log.warning("no lists yet: %s", error)
            await asyncio.sleep(listing.RETRY_SECONDS)
        else:
            return
