"""One cycle for one run: observe, decide, apply. Stopped anywhere and started again, it ends the same."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from shapetrace_api.status import ProfileRunStatus

from shapetrace_operator import status_patch
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.cache import Cache, Key
from shapetrace_operator.decide import Case, Plan, decide, is_finished
from shapetrace_operator.events import EventReader
from shapetrace_operator.kube import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kube,
    NotFoundError,
)
from shapetrace_operator.listing import resync
from shapetrace_operator.objects import Object, owner_uid
from shapetrace_operator.observe import Observed, Refusal, observe

AGAIN_SECONDS = 0.1

log = logging.getLogger(__name__)


class Reconciler:
    """Brings runs forward. ``now`` is the wall clock, ``monotonic`` the one for spacing writes, in seconds."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        defaults: Defaults,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._defaults = defaults
        self._now = now
        self._monotonic = monotonic
        self._events = EventReader(kube, monotonic)
        self._written: dict[str, float] = {}
        """Run uid -> when its status was last written."""
        self._looked_for: dict[str, int] = {}
        """Run uid -> the attempt whose Job was looked for in a list."""

    async def reconcile(self, key: Key) -> float | None:
        """One cycle; the seconds until the clock alone makes another one necessary."""
        run = self._cache.runs.get(key.uid)
        if run is None:
            self._forget(key)
            return None
        observed = observe(run, self._cache)
        events, events_due_seconds = await self._events.read(run, observed, self._now())
        observed = replace(observed, events=events)
        plan = self._decide(run, observed)
        wait_seconds = self._postponed(run, plan)
        if self._is_idle(run, plan) or wait_seconds is not None:
            return _earliest(plan.wake_seconds, events_due_seconds, wait_seconds)
        fresh = await self._fresh(key)
        if fresh is None:
            return None
        try:
            plan = await self._apply(key, fresh, observed)
        except ConflictError:
            return AGAIN_SECONDS  # somebody was faster: decide anew on what is there now
        return _earliest(plan.wake_seconds, events_due_seconds)

    # ---- inner
    def _decide(self, run: Object, observed: Observed) -> Plan:
        return decide(Case(run=run, observed=observed, now=self._now(), defaults=self._defaults))

    def _patch(self, run: Object, plan: Plan) -> Object:
        old = run.get("status") or {}
        patch = status_patch.merge_patch(old, plan.status.to_dict())
        return patch if isinstance(patch, dict) else {}

    def _is_idle(self, run: Object, plan: Plan) -> bool:
        return not (self._patch(run, plan) or plan.create or plan.delete or plan.delete_run)

    def _postponed(self, run: Object, plan: Plan) -> float | None:
        """Seconds that a write of counters has still to wait; None where it need not, or something else is due."""
        patch = self._patch(run, plan)
        if plan.create or plan.delete or plan.delete_run or not patch:
            return None
        if not status_patch.can_wait(run.get("status") or {}, patch):
            return None
        last = self._written.get(run["metadata"]["uid"])
        if last is None:
            return None
        left_seconds = last + status_patch.COUNTERS_SECONDS - self._monotonic()
        return left_seconds if left_seconds > 0 else None

    async def _fresh(self, key: Key) -> Object | None:
        """The run as it is now: nothing is written on the ground of a state that has passed."""
        try:
            run = await self._kube.get_run(key.namespace, key.name)
        except NotFoundError:
            run = None
        if run is None or run["metadata"]["uid"] != key.uid:
            self._cache.remove_run(key.uid)
            self._forget(key)
            return None
        self._cache.put_run(run)
        return run

    async def _apply(self, key: Key, run: Object, observed: Observed) -> Plan:
        await self._look_for_job(key, run, observed)
        # the status that was just read may speak of more than the watches had delivered before
        observed = replace(observe(run, self._cache), events=observed.events)
        plan = self._decide(run, observed)
        if plan.create is not None:
            refusal = await self._create(key, plan.create)
            if refusal is not None:
                plan = self._decide(run, replace(observed, refusal=refusal))
        await self._write(key, run, plan)
        for job in plan.delete:
            await self._delete_job(key, job.name, job.uid)
        if plan.delete_run:
            await self._delete_run(key)
        return plan

    async def _look_for_job(self, key: Key, run: Object, observed: Observed) -> None:
        """Before a Job of which the status speaks is taken for vanished, it is looked for, once.

        The watches may be behind the status: after the process stood still, and where two operators overlap.
        """
        attempt = (run.get("status") or {}).get("attempt") or 0
        if not attempt or self._looked_for.get(key.uid) == attempt or observed.capture_job(attempt) is not None:
            return
        await resync(self._kube, self._cache, key)
        self._looked_for[key.uid] = attempt

    async def _create(self, key: Key, job: Object) -> Refusal | None:
        """Create a Job, or adopt it where an earlier cycle did and never heard so."""
        name = job["metadata"]["name"]
        try:
            created = await self._kube.create_job(job)
        except AlreadyExistsError as error:
            found = await self._kube.find_job(key.namespace, name)
            if found is None:
                raise ConflictError(error.status, error.reason, f"the Job {name} exists and does not") from error
            if owner_uid(found) != key.uid:
                return Refusal(422, "AlreadyExists", f"a Job {name} exists that is not this run's: delete it")
            created = found
        except ApiError as error:
            # 500 is a webhook that is away: the run has to say so, and to end when it has waited too long
            if not isinstance(error, ForbiddenError | InvalidError) and error.status != 500:
                raise
            log.info("%s: the Job %s is refused: %s", key, name, error.message)
            return Refusal(error.status, error.reason, error.message)
        # the watch will tell as well, but the next cycle may come first
        self._cache.put_job(created)
        log.info("%s: Job %s", key, name)
        return None

    async def _write(self, key: Key, run: Object, plan: Plan) -> None:
        patch = self._patch(run, plan)
        if not patch:
            return
        body = {"metadata": {"resourceVersion": run["metadata"]["resourceVersion"]}, "status": patch}
        written = await self._kube.patch_status(key.namespace, key.name, body)
        self._written[key.uid] = self._monotonic()
        self._cache.put_run(written)
        _log_transition(key, run, plan.status)
        if is_finished(plan.status):
            self._cache.forget_details(key.uid)
            self._events.forget(key.uid)

    async def _delete_job(self, key: Key, name: str, uid: str) -> None:
        try:
            await self._kube.delete_job(key.namespace, name, uid)
            self._cache.mark_deleting(uid, self._now().isoformat())
            log.info("%s: Job %s deleted", key, name)
        except (NotFoundError, ConflictError):
            return  # gone already, or a namesake

    async def _delete_run(self, key: Key) -> None:
        try:
            await self._kube.delete_run(key.namespace, key.name, key.uid)
            log.info("%s: deleted, its time after the end is over", key)
        except (NotFoundError, ConflictError):
            return

    def _forget(self, key: Key) -> None:
        self._written.pop(key.uid, None)
        self._looked_for.pop(key.uid, None)
        self._events.forget(key.uid)


def _earliest(*seconds: float | None) -> float | None:
    return min((value for value in seconds if value is not None), default=None)


def _log_transition(key: Key, run: Object, status: ProfileRunStatus) -> None:
    before = run.get("status") or {}
    phase = status.phase.value if status.phase else None
    if phase == before.get("phase") and status.attempt == before.get("attempt"):
        return
    verdict = f" {status.verdict}" if status.verdict else ""
    cause = f" ({status.failure.reason}: {status.failure.message})" if status.failure else ""
    summary = f" {status.progress.summary}" if status.progress else ""
    log.info("%s: %s%s%s, attempt %s%s", key, phase, verdict, summary, status.attempt or 0, cause)
