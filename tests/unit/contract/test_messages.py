"""Messages, keys and settings that cross a process are bounded and refuse what they may not carry."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract import keys, reasons
from shapetrace_contract.message import MAX_TERMINATION_BYTES, Termination, shorten
from shapetrace_contract.progress import RankProgress
from shapetrace_contract.settings import EngineSettings, Limits, RunId, SettingError


@given(st.text(max_size=5000), st.text(max_size=30))
def test_a_termination_message_fits_and_reads_back(text: str, reason: str) -> None:
    written = Termination(reason, text, rank=3, exitCode=-9, drained=True).to_json()
    assert len(written.encode()) <= MAX_TERMINATION_BYTES
    assert Termination.from_text(written) == Termination(reason, shorten(text), 3, -9, True)


@pytest.mark.parametrize("text", [None, "", "Traceback", "[]", "3", '{"v": 1}'])
def test_a_foreign_termination_message_is_none(text: str | None) -> None:
    assert Termination.from_text(text) is None


def test_every_exit_code_has_a_meaning_and_every_reason_is_described() -> None:
    assert set(reasons.MEANING) == set(reasons.Reason)
    assert {reasons.exit_code(reason) for reason in reasons.EXIT_CODES.values()} == set(reasons.EXIT_CODES)


@pytest.mark.parametrize("prefix", ["/a", "a/", "..", "a/../b", "a//b", "a b"])
def test_a_prefix_that_could_leave_its_folder_is_refused(prefix: str) -> None:
    with pytest.raises(keys.KeyPartError):
        keys.attempt_folder(prefix, "ns", "run", "uid", 1)


def test_keys_have_the_documented_form() -> None:
    assert keys.attempt_folder("p/q", "ns", "run", "u-1", 2) == "p/q/ns/run/u-1/attempt-2/"
    assert keys.attempt_folder("", "ns", "run", "u-1", 2) == "ns/run/u-1/attempt-2/"
    assert keys.trace_key(3, "R__bs_1") == "traces/rank-00003/R__bs_1.json.gz"
    assert keys.part_key(3) == "parts/00003.json"


def test_settings_travel_through_the_environment_and_ignore_what_is_newer() -> None:
    run = RunId("ns", "run", "uid", 2)
    assert RunId.from_env({RunId.ENV: run.to_env()}) == run
    newer = json.dumps({**json.loads(run.to_env()), "v": 2, "later": True})
    assert RunId.from_env({RunId.ENV: newer}) == run
    assert EngineSettings(parallelism={"tensor": 2, "dataReplicas": 3}).ranks == 6
    with pytest.raises(SettingError, match="SHAPETRACE_LIMITS"):
        Limits.from_env({})
    with pytest.raises(SettingError, match="SHAPETRACE_RUN"):
        RunId.from_env({RunId.ENV: "{"})


def test_a_progress_entry_that_lies_about_its_type_is_refused() -> None:
    assert RankProgress.from_json({"rank": 1, "later": "x", "state": "Done"}) == RankProgress(1, "Done")
    for bad in ({}, {"rank": "1"}, {"rank": 1, "captured": -1}, {"rank": 1, "state": "Odd"}, {"rank": True}):
        with pytest.raises(ValueError, match=r"."):
            RankProgress.from_json(bad)
