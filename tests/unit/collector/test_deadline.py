from __future__ import annotations

import pytest
from shapetrace_collector.deadline import last_moment, upload_until
from shapetrace_contract.settings import Limits

LIMITS = Limits(uploadTimeoutSeconds=300, disruptionGraceSeconds=60)


@pytest.mark.parametrize(
    ("stopped_at", "reason", "terminated_at", "expected"),
    [
        (None, None, None, None),
        (100, "Done", None, 400),
        (100, "EngineFailed", None, 400),
        # the launcher was told to stop: a pod's grace is running, and up to 10 s of it are gone
        (100, "Stopped", None, 150),
        # the launcher died without a word: the whole grace is ours
        (None, None, 100, 160),
        # the launcher waited for us and was ended: a quarter of the grace is left
        (100, "Done", 120, 135),
        (100, "Done", 399, 400),
        (100, "Stopped", 145, 150),
    ],
)
def test_the_last_moment_is_that_of_the_limit_that_ends_first(stopped_at, reason, terminated_at, expected) -> None:
    assert last_moment(LIMITS, stopped_at, reason, terminated_at) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (LIMITS, 995),
        (Limits(uploadTimeoutSeconds=8, disruptionGraceSeconds=60), 998),
        (Limits(uploadTimeoutSeconds=300, disruptionGraceSeconds=4), 999),
    ],
)
def test_parts_have_their_time(limits, expected) -> None:
    assert upload_until(1000, limits) == expected


def test_uploads_have_no_end_while_nobody_waits() -> None:
    assert upload_until(None, LIMITS) is None
