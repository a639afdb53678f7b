"""``python3 -m shapetrace_collector.preflight``: before a GPU waits, is the store there, and is the attempt ours?

The pod's claim is an object that only one pod can create. Creating it shows that the store is reached and takes writes;
creating it again must be refused, which shows that nothing of this run can ever be overwritten.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

from shapetrace_contract import VERSION, keys, message, names
from shapetrace_contract.message import Termination
from shapetrace_contract.reasons import Reason, exit_code
from shapetrace_contract.settings import RunId, SettingError, StoreSettings

from shapetrace_collector.configuration import pod_index

if TYPE_CHECKING:
    from shapetrace_traces.store import Store

TOTAL_SECONDS = 20.0
"""All tries together: a run that cannot store gives its GPUs back soon, and a store that starts late is waited for."""
PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """How the preflight ended."""

    reason: Reason
    message: str


def check(environment: Mapping[str, str], deadline: float, clock: Callable[[], float] = monotonic) -> Outcome:
    """Try until the deadline; only what may pass by itself (no answer, a busy server) is tried again."""
    from shapetrace_traces.store import (
        ObjectMissing,
        Patience,
        StoreDenied,
        StoreMisconfigured,
        StoreUnreachable,
        open_store,
    )

    try:
        run, settings = RunId.from_env(environment), StoreSettings.from_env(environment)
        index, pod_uid = pod_index(environment), environment.get(names.ENV_POD_UID)
        if not pod_uid:
            raise SettingError(f"{names.ENV_POD_UID} is not set: it is whose claim this is")
        # one try a request: this loop is the retry, and it knows when the time is over
        patience = Patience(connect_timeout_seconds=3, read_timeout_seconds=5, attempts=1)
        store = open_store(settings, run, environment, patience)
        while True:
            try:
                return claim(store, keys.claim_key(index), pod_uid)
            except (StoreUnreachable, ObjectMissing) as error:  # taken, and yet not there: a server that is not itself
                if clock() + PAUSE_SECONDS >= deadline:
                    return Outcome(Reason.STORAGE_UNREACHABLE, f"look at spec.storage.s3.endpoint: {error}")
                print(f"trying again: {error}", file=sys.stderr, flush=True)
                sleep(PAUSE_SECONDS)
    except SettingError as error:
        return Outcome(Reason.BAD_CONFIGURATION, str(error))
    except StoreMisconfigured as error:
        return Outcome(Reason.BAD_CONFIGURATION, f"look at spec.storage.s3: {error}")
    except StoreDenied as error:
        fields = "spec.storage.s3.bucket and spec.storage.s3.credentialsSecretRef"
        return Outcome(Reason.STORAGE_DENIED, f"look at {fields}: {error}")


def claim(store: Store, key: str, pod_uid: str) -> Outcome:
    """Claim the attempt, and see that the claim cannot be overwritten. StoreError where the store does not let us."""
    from shapetrace_traces.store import ObjectExists

    body = (json.dumps({"v": VERSION, "podUid": pod_uid}) + "\n").encode()
    try:
        store.put(key, body, content_type="application/json")
    except ObjectExists:
        holder = _holder(store.get(key))
        if holder != pod_uid:
            return Outcome(
                Reason.ATTEMPT_TAKEN,
                f"{store.uri(key)} is the claim of pod {holder}, this is pod {pod_uid}: an attempt is used once; "
                "start a new run",
            )
    try:
        store.put(key, body, content_type="application/json")
    except ObjectExists:
        pass
    else:
        return Outcome(
            Reason.CONDITIONAL_WRITES_IGNORED,
            f"{store.location} overwrote an object despite If-None-Match: *; the store must honour conditional "
            "writes, or traces could be replaced unseen: use a server or a version that does",
        )
    store.get(key)
    next(iter(store.list(keys.CLAIMS)), None)
    return Outcome(Reason.DONE, f"{store.location} takes conditional writes, and the attempt is claimed")


def _holder(body: bytes) -> str:
    try:
        return str(json.loads(body)["podUid"])
    except (ValueError, KeyError, TypeError):
        return "(unreadable claim)"


def hung(environment: Mapping[str, str]) -> Outcome:
    """The outcome of a check that never came back. It names the store all the same: the person has to look there."""
    where = ""
    with contextlib.suppress(SettingError):  # a check that cannot read it says so itself
        settings = StoreSettings.from_env(environment)
        where = f" at {settings.endpoint}" if settings.endpoint else f" of bucket {settings.bucket}"
    return Outcome(
        Reason.STORAGE_UNREACHABLE,
        f"the object store{where} did not answer within {TOTAL_SECONDS:.0f} s: check spec.storage.s3.endpoint, name "
        "resolution and network policies",
    )


def main(environment: Mapping[str, str]) -> int:
    """Run the check with a hard end; the exit code."""
    logging.getLogger("botocore").setLevel(logging.CRITICAL)
    deadline = monotonic() + TOTAL_SECONDS
    found: list[Outcome] = []
    # name resolution knows no timeout, so the check runs beside and is left behind where it hangs
    worker = threading.Thread(target=lambda: found.append(check(environment, deadline)), daemon=True)
    worker.start()
    worker.join(TOTAL_SECONDS)
    outcome = found[0] if found else hung(environment)
    print(f"{outcome.reason}: {outcome.message}", file=sys.stderr, flush=True)
    message.leave(Termination(outcome.reason.value, outcome.message).to_json(), environment)
    return 0 if outcome.reason is Reason.DONE else exit_code(outcome.reason)


if __name__ == "__main__":
    os._exit(main(os.environ))
