"""Names of a run's children, deterministic: doing a step twice meets the same object."""

from __future__ import annotations

from shapetrace_contract import names

MAX_NAME_CHARACTERS = 40
"""An Indexed Job's name may have 61 characters at most; this leaves room for the suffixes."""
UID_CHARACTERS = 5

ANNOTATION_RETRIES = f"{names.GROUP}/retries"
"""On a Job: failed attempts before it that count against spec.retries. Written with the Job, so no crash loses it."""
ANNOTATION_FINISH = f"{names.GROUP}/finish"
"""On a finish Job: its number within the attempt, from 1."""


def capture_job_name(name: str, uid: str, attempt: int) -> str:
    """``<name cut to 40>-<uid5>-a<n>``."""
    head = name[:MAX_NAME_CHARACTERS].replace(".", "-").rstrip("-")
    return f"{head}-{uid[:UID_CHARACTERS]}-a{attempt}"


def finish_job_name(name: str, uid: str, attempt: int, number: int) -> str:
    """The capture Job's name and ``-f<k>``."""
    return f"{capture_job_name(name, uid, attempt)}-f{number}"
