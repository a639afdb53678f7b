"""The status stays small, writes times as Kubernetes does, and takes foreign text of any length."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError
from shapetrace_api.engine import MAX_RANKS
from shapetrace_api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    Failure,
    Manifest,
    Phase,
    ProfileRunStatus,
    Progress,
    RankStatus,
)
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.reasons import RankState, Verdict
from shapetrace_contract.tag import MAX_TAG_BYTES

NOON = datetime(2026, 5, 1, 12, 0, 0, 999_999, tzinfo=UTC)
TAG = "DecodeCudaGraphRunner__bs_128__attention-candidate_128__lora-nolora"


def _status(ranks: int, message: str | None = None, tag: str = TAG) -> ProfileRunStatus:
    entry = RankStatus(
        rank=0, node="gpu-node-0123456789", pod="glm-mi355x-capture-0a1b2-a1-x7x9k", state=RankState.CAPTURING,
        expected=52, captured=52, uploaded=52, failed=0, bytes=52 * 3_000_000, verdict=Verdict.COMPLETE,
        last_shape=tag, message=message, updated_time=NOON,
    )  # fmt: skip
    return ProfileRunStatus(
        phase=Phase.SUCCEEDED,
        verdict=Verdict.COMPLETE,
        conditions=[
            Condition(
                type=kind, status=ConditionStatus.TRUE, reason="Done", message="m" * 200, last_transition_time=NOON,
                observed_generation=1,
            )
            for kind in ConditionType
        ],
        progress=Progress(expected=416, captured=416, uploaded=416, bytes=10**9, summary="416/416"),
        ranks=[entry.model_copy(update={"rank": rank}) for rank in range(ranks)],
        manifest=Manifest(uri="s3://bucket/" + "p" * 200, sha256="0" * 64),
        attempt=1, start_time=NOON, capture_time=NOON, completion_time=NOON, observed_generation=1,
    )  # fmt: skip


def test_eight_ranks_stay_far_below_16_kb() -> None:
    assert len(json.dumps(_status(8).to_dict())) < 7000


def test_eight_ranks_with_the_longest_texts_stay_below_16_kb() -> None:
    assert len(json.dumps(_status(8, message="m" * 1000, tag="t" * 1000).to_dict())) < 14_000


def test_foreign_text_is_cut_not_refused() -> None:
    rank = RankStatus(rank=0, message="x" * 1000, last_shape="t" * 1000, pod="p" * 1000)
    assert len(rank.message or "") == 256
    assert len(rank.last_shape or "") == MAX_TAG_BYTES
    failure = Failure(reason="EngineFailed", message="line\n" * 1000)
    assert len(failure.message) <= 512
    assert "\n" not in failure.message


def test_times_are_whole_seconds_in_utc() -> None:
    status = ProfileRunStatus(start_time=NOON.astimezone(timezone(timedelta(hours=2))))
    assert status.to_dict()["startTime"] == "2026-05-01T12:00:00Z"
    assert ProfileRunStatus.model_validate(status.to_dict()) == status
    with pytest.raises(ValidationError, match="without a zone"):
        ProfileRunStatus(start_time=NOON.replace(tzinfo=None))


def test_what_is_read_back_equals_what_was_written() -> None:
    status = _status(8)
    assert ProfileRunStatus.model_validate(json.loads(json.dumps(status.to_dict()))) == status


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert ProfileRunStatus.model_validate({"phase": "Pending", "later": {"a": 1}}).phase is Phase.PENDING


def test_an_assignment_is_checked() -> None:
    status = ProfileRunStatus()
    with pytest.raises(ValidationError):
        status.phase = "Done"  # type: ignore[assignment]


def test_an_answer_of_a_collector_is_a_rank_of_the_status() -> None:
    answer = RankProgress(
        rank=3, state="Capturing", expected=16, captured=4, uploaded=3, bytes=9, lastShape=TAG, node="n"
    )
    assert RankStatus.model_validate(answer.to_json()).to_dict() == answer.to_json()


@pytest.mark.parametrize("rank", [-1, MAX_RANKS])
def test_a_rank_is_within_its_bounds(rank: int) -> None:
    with pytest.raises(ValidationError):
        RankStatus(rank=rank)


def test_an_empty_status_says_nothing() -> None:
    empty: dict[str, Any] = ProfileRunStatus().to_dict()
    assert empty == {"conditions": [], "ranks": []}
