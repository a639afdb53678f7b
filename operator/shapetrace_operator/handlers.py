"""kopf's part: it watches and logs in. Handlers keep what was delivered and queue a key, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import kopf
from shapetrace_contract import names

from shapetrace_operator.cache import Cache, Key, run_key
from shapetrace_operator.objects import Object

REQUEST_SECONDS = 30.0
"""kopf's own lists; its default of five minutes would hide an API server that went away."""
CONNECT_SECONDS = 5.0
INACTIVITY_SECONDS = 70.0
"""The API server sends a bookmark every 60 s: a watch that is silent for longer is dead."""
LOGIN_BACKOFF_SECONDS = 2.0
ERROR_BACKOFFS_SECONDS = (0.5, 1, 2, 3)
ERROR_DELAYS_SECONDS = (1, 1, 2, 3, 5)


def settings() -> kopf.OperatorSettings:
    """kopf, reduced to watching: no events posted, no CRDs or namespaces scanned, only our own Jobs and pods."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.networking.request_timeout = REQUEST_SECONDS
    chosen.networking.connect_timeout = CONNECT_SECONDS
    chosen.networking.error_backoffs = list(ERROR_BACKOFFS_SECONDS)
    chosen.queueing.error_delays = list(ERROR_DELAYS_SECONDS)
    chosen.watching.inactivity_timeout = INACTIVITY_SECONDS
    for plural in ("jobs", "pods"):
        chosen.watching.label_selectors[plural] = names.LABEL_RUN
    return chosen


def registry(
    cache: Cache, queue: Callable[[Key], None], login: Callable[..., kopf.ConnectionInfo | None]
) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own: nothing is registered by an import."""
    made = kopf.OperatorRegistry()

    def handle(event: kopf.RawEvent, kind: str) -> None:
        key = deliver(cache, kind, event["type"] == "DELETED", cast(Object, event["object"]))
        if key is not None:
            queue(key)

    @kopf.on.login(registry=made, backoff=LOGIN_BACKOFF_SECONDS)
    def log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return login(**kwargs)

    @kopf.on.event(names.GROUP, names.API_VERSION, names.PLURAL, registry=made)
    async def on_run(event: kopf.RawEvent, **_: Any) -> None:
        handle(event, "run")

    @kopf.on.event("batch", "v1", "jobs", registry=made)
    async def on_job(event: kopf.RawEvent, **_: Any) -> None:
        handle(event, "job")

    @kopf.on.event("", "v1", "pods", registry=made)
    async def on_pod(event: kopf.RawEvent, **_: Any) -> None:
        handle(event, "pod")

    return made


def deliver(cache: Cache, kind: str, gone: bool, obj: Object) -> Key | None:
    """Keep what a watch delivered; the key to work on, None where no run of ours is concerned."""
    if kind == "run":
        if gone:
            cache.remove_run(obj["metadata"]["uid"])
            return run_key(obj)
        return cache.put_run(obj)
    if kind == "job":
        return cache.remove_job(obj) if gone else cache.put_job(obj)
    return cache.remove_pod(obj) if gone else cache.put_pod(obj)
