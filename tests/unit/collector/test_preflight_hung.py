"""A check of the store that never comes back is told with the place where to look."""

from __future__ import annotations

import pytest
from shapetrace_collector.preflight import hung
from shapetrace_contract.reasons import Reason
from shapetrace_contract.settings import StoreSettings


@pytest.mark.parametrize(
    ("store", "place"),
    [
        (StoreSettings(bucket="traces", endpoint="http://10.0.0.1:9"), "at http://10.0.0.1:9 did not"),
        (StoreSettings(bucket="traces"), "of bucket traces did not"),
    ],
)
def test_a_store_that_hangs_is_named(store: StoreSettings, place: str) -> None:
    outcome = hung({StoreSettings.ENV: store.to_env()})
    assert outcome.reason is Reason.STORAGE_UNREACHABLE
    assert place in outcome.message
    assert "check spec.storage.s3.endpoint, name resolution" in outcome.message


def test_without_a_setting_that_can_be_read_nothing_is_raised() -> None:
    assert "the object store did not answer" in hung({}).message
