"""``shapetrace watch``: a ProfileRun's ranks until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shapetrace_contract import names
from shapetrace_contract.progress import RankProgress

from shapetrace_cli.cluster import Cluster, UnreachableError
from shapetrace_cli.errors import CliError
from shapetrace_cli.ranks import RanksView
from shapetrace_cli.standing import causes, is_unseen, unseen
from shapetrace_cli.text import plain

POLL_SECONDS = 1.0
"""As often as the operator reads progress; each is one small GET."""
_MAX_SILENCE_SECONDS = 120.0
"""How long the API server may be away: it restarts in seconds, a node's loss takes a minute."""
_UNSEEN_SECONDS = 10.0
"""An operator writes a new run's status within a second; a restart of it takes a few."""


@dataclass(frozen=True)
class Ended:
    """How the run ended."""

    succeeded: bool
    summary: str


def ended(run: Mapping[str, Any]) -> Ended | None:
    """The end, None while it goes on. Finished is True on every end (docs/contract.md)."""
    status = run.get("status") or {}
    conditions = {item.get("type"): item for item in status.get("conditions") or [] if isinstance(item, dict)}
    if (conditions.get("Finished") or {}).get("status") != "True":
        return None
    progress = status.get("progress") or {}
    words = [status.get("phase"), status.get("verdict"), progress.get("summary"), progress.get("ranksSummary")]
    text = "  ".join(plain(word, 60) for word in words if word)
    failure = status.get("failure") or {}
    succeeded = (conditions.get("Succeeded") or {}).get("status") == "True"
    if not succeeded:
        cause = conditions.get("Succeeded") or {}
        reason = failure.get("reason") or cause.get("reason") or "no reason is noted"
        text += f"  ({plain(reason, 60)}: {plain(failure.get('message') or cause.get('message') or '', 600)})"
    return Ended(succeeded, text)


def now(run: Mapping[str, Any]) -> tuple[str, list[RankProgress]]:
    """Phase, with what it waits for, and the ranks; entries that cannot be read are left out."""
    status = run.get("status") or {}
    phase = plain(status.get("phase") or "waiting for the operator", 60)
    found = causes(status)
    ranks = []
    for entry in status.get("ranks") or []:
        try:
            ranks.append(RankProgress.from_json(entry))
        except ValueError:
            continue
    return (f"{phase} ({'; '.join(found)})" if found else phase), ranks


def watch(
    cluster: Cluster,
    name: str,
    view: RanksView,
    *,
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ended:
    """Show the run until it ends; :class:`CliError` after ``timeout_seconds``."""
    began = heard = clock()
    status: Mapping[str, Any] = {}
    told = False
    with view:
        while True:
            try:
                run = cluster.profile_run(name)
                heard = clock()
                end = ended(run)
                if end is not None:
                    return end
                status = run.get("status") or {}
                view.update(*now(run))
                if not told and is_unseen(status) and clock() - began >= _UNSEEN_SECONDS:
                    told = True
                    view.say(unseen(cluster.namespace))
            except UnreachableError as error:
                if clock() - heard > _MAX_SILENCE_SECONDS:
                    raise
                view.say(f"trying again: {error.message}")
            if clock() - began > timeout_seconds:
                raise CliError(
                    f"{name} is not finished after {timeout_seconds:.0f} s",
                    f"{_standing(status, cluster.namespace)} "
                    f"kubectl describe {names.SHORT_NAME} {name} -n {cluster.namespace}",
                )
            sleep(POLL_SECONDS)


def _standing(status: Mapping[str, Any], namespace: str) -> str:
    """Where a run is that was not waited for to its end; that it goes on is said only where somebody works on it."""
    if is_unseen(status):
        return unseen(namespace)
    found = causes(status)
    if found:
        return f"It is {plain(status.get('phase') or 'waiting', 60)}: {'; '.join(found)}."
    return "It is suspended." if status.get("phase") == "Suspended" else "It goes on:"
