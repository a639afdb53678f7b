"""Events about Jobs without a pod and pods that do not start: refusals and failed mounts are told nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shapetrace_operator.kube import ApiError, Kube
from shapetrace_operator.objects import Object, parse_time
from shapetrace_operator.observe import Event, Observed

FIRST_LOOK_SECONDS = 2.0
"""A pod is made, and its first container started, within a second or two where nothing is wrong."""
LOOK_SECONDS = 5.0
LATE_LOOK_SECONDS = 30.0
"""After the first minute: what keeps a pod waiting then changes slowly."""
EARLY_SECONDS = 60.0

log = logging.getLogger(__name__)


@dataclass
class _Seen:
    at_seconds: float
    uid: str
    events: Sequence[Event]


class EventReader:
    """Lists Events of what a run is stuck on, seldom, and remembers them in between."""

    def __init__(self, kube: Kube, monotonic: Callable[[], float]) -> None:
        self._kube = kube
        self._monotonic = monotonic
        self._seen: dict[str, _Seen] = {}

    def forget(self, run_uid: str) -> None:
        """The run is over or gone."""
        self._seen.pop(run_uid, None)

    async def read(self, run: Object, observed: Observed, now: datetime) -> tuple[Sequence[Event], float | None]:
        """The events of what the run is stuck on, oldest first, and the seconds until they should be read again."""
        run_uid = run["metadata"]["uid"]
        stuck = stuck_on(observed)
        if stuck is None:
            self.forget(run_uid)
            return (), None
        uid, since = stuck
        age_seconds = (now - since).total_seconds() if since else FIRST_LOOK_SECONDS
        if age_seconds < FIRST_LOOK_SECONDS:
            return (), FIRST_LOOK_SECONDS - age_seconds
        interval_seconds = LOOK_SECONDS if age_seconds < EARLY_SECONDS else LATE_LOOK_SECONDS
        known = self._seen.get(run_uid)
        if known is not None and known.uid == uid:
            left_seconds = known.at_seconds + interval_seconds - self._monotonic()
            if left_seconds > 0:
                return known.events, left_seconds
        try:
            found = await self._kube.list_events(run["metadata"]["namespace"], uid)
        except ApiError as error:
            log.debug("%s/%s: no events: %s", run["metadata"]["namespace"], run["metadata"]["name"], error)
            return (known.events if known is not None and known.uid == uid else ()), LOOK_SECONDS
        events = sorted((event_of(item) for item in found), key=lambda event: event.last_seen or now)
        self._seen[run_uid] = _Seen(self._monotonic(), uid, events)
        return events, interval_seconds


def stuck_on(observed: Observed) -> tuple[str, datetime | None] | None:
    """The object whose events matter: a Job without a pod, or a placed pod in which nothing has started."""
    attempt = observed.newest_attempt
    finishes = observed.finish_jobs(attempt)
    job = finishes[-1] if finishes else observed.capture_job(attempt)
    if job is None or job.over or job.deleting or job.suspended:
        return None
    pods = [pod for pod in observed.pods if pod.job == job.uid]
    if not pods:
        return job.uid, job.started or job.created
    for pod in pods:
        if not pod.over and pod.scheduled and all(item.started is None for item in pod.containers.values()):
            return pod.uid, pod.created
    return None


def event_of(obj: Object) -> Event:
    """Read an Event."""
    last = obj.get("lastTimestamp") or obj.get("eventTime") or obj.get("metadata", {}).get("creationTimestamp")
    return Event(str(obj.get("reason") or ""), str(obj.get("message") or ""), parse_time(last))
