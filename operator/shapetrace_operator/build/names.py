"""Names of a run's children, deterministic: doing a step twice meets the same object."""

from __future__ import annotations

import re

from shapetrace_contract import names

MAX_NAME_CHARACTERS = 40
"""An Indexed Job's name may have 61 characters at most; this leaves room for the suffixes."""
UID_CHARACTERS = 5

ANNOTATION_RETRIES = f"{names.GROUP}/retries"
"""On a Job: failed attempts before it that count against spec.retries. Written with the Job, so no crash loses it."""
ANNOTATION_FINISH = f"{names.GROUP}/finish"
"""On a finish Job, for readers: its number within the attempt, from 1. The operator reads the Job's name."""


def capture_job_name(name: str, uid: str, attempt: int) -> str:
    """``<name cut to 40>-<uid5>-a<n>``."""
    head = name[:MAX_NAME_CHARACTERS].replace(".", "-").rstrip("-")
    return f"{head}-{uid[:UID_CHARACTERS]}-a{attempt}"


_NUMBERS = re.compile(r"-a([1-9][0-9]{0,9})(?:-f([1-9]))?")
_MAX_ATTEMPT = 2**31 - 1
"""``status.attempt`` is an int32."""


def numbers_of(job_name: str, name: str, uid: str) -> tuple[int, int] | None:
    """(attempt, finish) of a run's Job by its name, the finish 0 for a capture; None where the name is not ours.

    A name never changes; labels and annotations can be edited by everybody who may edit Jobs.
    """
    head = capture_job_name(name, uid, 0).removesuffix("-a0")
    found = _NUMBERS.fullmatch(job_name[len(head) :]) if job_name.startswith(head) else None
    if found is None or int(found[1]) > _MAX_ATTEMPT:
        return None
    return int(found[1]), int(found[2] or 0)


def finish_job_name(name: str, uid: str, attempt: int, number: int) -> str:
    """The capture Job's name and ``-f<k>``."""
    return f"{capture_job_name(name, uid, attempt)}-f{number}"
