"""Counters of running pods, asked for every second in a task of its own: no worker waits for a pod that is gone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable

import aiohttp
from shapetrace_api.engine import MAX_RANKS
from shapetrace_contract import names
from shapetrace_contract.progress import MAX_BODY_BYTES, RankProgress

from shapetrace_operator.cache import Cache, Key, Reachability, run_key
from shapetrace_operator.observe import Pod, observe

POLL_SECONDS = 1.0
CONNECT_SECONDS = 0.5
"""Within one cluster; the address of a pod that is gone drops packets."""
ANSWER_SECONDS = 2.0
"""A collector that compresses on a busy node answers late."""
MAX_REQUESTS = 64
"""At once: bounds sockets and memory where many runs go on; the others have their turn in the next rounds."""

log = logging.getLogger(__name__)


class Poller:
    """Asks the collectors of unfinished runs and queues the keys of those that changed."""

    def __init__(self, cache: Cache, session: aiohttp.ClientSession, changed: Callable[[Key], None]) -> None:
        self._cache = cache
        self._session = session
        self._changed = changed
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._turns: dict[str, int] = {}
        """Pod uid -> the round in which it was asked last."""
        self._round = 0

    async def run(self) -> None:
        """For ever."""
        while True:
            self.ask_all()
            await asyncio.sleep(POLL_SECONDS)

    def ask_all(self) -> None:
        """Ask every pod that is not being asked already."""
        for uid in [uid for uid, task in self._asked.items() if task.done()]:
            del self._asked[uid]
        self._round += 1
        askable = self._askable()
        self._turns = {pod.uid: self._turns.get(pod.uid, 0) for _, pod in askable}
        # whoever has waited longest is first: where there are more pods than requests, all of them have their turn
        for key, pod in sorted(askable, key=lambda item: self._turns[item[1].uid]):
            if pod.uid not in self._asked and len(self._asked) < MAX_REQUESTS:
                self._asked[pod.uid] = asyncio.create_task(self._ask(key, pod))
                self._turns[pod.uid] = self._round

    def _askable(self) -> list[tuple[Key, Pod]]:
        found = []
        for run in self._cache.unfinished_runs():
            try:
                observed = observe(run, self._cache)
            except Exception:  # noqa: S112 - the run's own cycle meets the same, and tells
                continue
            pods = observed.capture_pods(observed.newest_attempt)
            found += [(run_key(run), pod) for pod in pods if is_askable(pod)]
        return found

    async def _ask(self, key: Key, pod: Pod) -> None:
        reach = self._cache.reachability.setdefault(pod.uid, Reachability())
        before = reach.failures
        try:
            entries = await fetch(self._session, pod.ip or "")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            reach.failures += 1
            if before == 0:
                log.debug("%s: no progress from pod %s: %s", key, pod.name, error)
            if pod.uid not in self._cache.pods:
                self._cache.reachability.pop(pod.uid, None)
            elif not reach.answered:
                self._changed(key)
            return
        reach.failures, reach.answered = 0, True
        if pod.uid not in self._cache.pods:
            self._cache.reachability.pop(pod.uid, None)
        elif self._cache.progress.get(pod.uid) != entries:
            self._cache.progress[pod.uid] = entries
            self._changed(key)


def is_askable(pod: Pod) -> bool:
    """Whether the collector of a pod can be expected to answer."""
    collector = pod.container(names.CONTAINER_COLLECTOR)
    return not pod.over and pod.ip is not None and collector.started is not None and not collector.ended


async def fetch(session: aiohttp.ClientSession, address: str) -> list[RankProgress]:
    """One ``GET /progress``. ValueError for an answer that is none: the body is bounded, entries are checked."""
    host = f"[{address}]" if ":" in address else address
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=CONNECT_SECONDS)
    url = f"http://{host}:{names.PROGRESS_PORT}{names.PROGRESS_PATH}"
    headers = {"Accept-Encoding": "identity"}
    async with session.get(url, timeout=timeout, allow_redirects=False, headers=headers) as response:
        if response.status != 200:
            raise ValueError(f"{url} answers {response.status}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            # a kilobyte on the wire may be a megabyte in memory
            raise ValueError(f"{url} answers in an encoding that was not asked for")
        body = b""
        async for chunk in response.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"{url} answers more than {MAX_BODY_BYTES} bytes")
    value = json.loads(body)
    if not isinstance(value, dict) or not isinstance(value.get("ranks"), list):
        raise ValueError(f"{url} gives no progress")
    if len(value["ranks"]) > MAX_RANKS:
        raise ValueError(f"{url} speaks of more than {MAX_RANKS} ranks")
    return [RankProgress.from_json(entry) for entry in value["ranks"]]
