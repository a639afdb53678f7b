"""The finish on a real folder store: what it commits, that it commits once, and what it tells."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from shapetrace_contract import keys
from shapetrace_contract.message import Termination
from shapetrace_contract.reasons import Reason, Verdict
from shapetrace_contract.settings import CaptureSettings, RunId
from shapetrace_finish import gather
from shapetrace_finish.__main__ import main
from shapetrace_finish.patience import Patience
from shapetrace_finish.run import Finish
from shapetrace_traces.store import Store, StoreUnreachable


class Clock:
    """Time passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Watched:
    """A real store whose writes are noted, and which fails or is overtaken where a test says so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes: list[str] = []
        self.outages = 0
        self.before: dict[str, Any] = {}
        self.lose_answers_of: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _weather(self) -> None:
        if self.outages:
            self.outages -= 1
            raise StoreUnreachable("no route to the store")

    def get(self, key: str) -> bytes:
        self._weather()
        return self._store.get(key)

    def put(self, key: str, *rest: Any, **named: Any) -> Any:
        self._weather()
        self.writes.append(key)
        self.before.pop(key, lambda: None)()
        stored = self._store.put(key, *rest, **named)
        if key in self.lose_answers_of:
            self.lose_answers_of.remove(key)
            raise StoreUnreachable("the answer was lost")
        return stored


def finish_with(attempt: Any, store: Any, clock: Clock | None = None) -> dict[str, Any]:
    clock = clock or Clock()
    run = RunId.from_env(attempt.environment)
    said: list[str] = []
    made = Finish(store, run, attempt.engine, attempt.capture, Patience(clock, clock.sleep), said.append)
    return dict(json.loads(made()))


def test_a_whole_run_is_complete_and_every_label_is_supported(attempt: Any) -> None:
    attempt.put_both()
    assert attempt.finish() == 0
    manifest = attempt.manifest
    assert manifest.verdict is Verdict.COMPLETE
    assert (manifest.expected, manifest.captured, manifest.uploaded, manifest.failed) == (24, 24, 24, 0)
    assert manifest.reasons == []
    for trace in manifest.traces:
        assert trace.support.size == "proven"
        assert trace.support.variants == {"attention": "proven", "lora": "proven"}
        assert hashlib.sha256(attempt.store.get(trace.key)).hexdigest() == trace.sha256
    first = manifest.traces[0]
    assert (first.graph, first.device) == (False, "cpu")
    assert first.alias is None, "the torch engine writes no traces of its own"
    assert [(item.rank, item.tp, item.node, item.verdict) for item in manifest.ranks] == [
        (0, 0, "node-a", Verdict.COMPLETE),
        (1, 1, "node-a", Verdict.COMPLETE),
    ]


def test_twice_in_a_row_gives_the_same_bytes_and_the_same_message(attempt: Any) -> None:
    attempt.put_both()
    assert attempt.finish() == 0
    body, message = attempt.store.get(keys.MANIFEST), attempt.message
    attempt.store.delete(keys.part_key(1))  # judged again it would be another verdict
    assert attempt.finish() == 0
    assert attempt.store.get(keys.MANIFEST) == body
    assert attempt.message == message


def test_a_manifest_that_was_deleted_is_written_again_the_same(attempt: Any) -> None:
    attempt.put_rank(0, with_part=False)
    attempt.put_rank(1)
    assert attempt.finish() == 0
    body = attempt.store.get(keys.MANIFEST)
    attempt.store.delete(keys.MANIFEST)
    assert attempt.finish() == 0
    assert attempt.store.get(keys.MANIFEST) == body


def test_the_manifest_is_written_last_and_lists_exactly_what_is_stored(attempt: Any) -> None:
    attempt.put_both()
    store = Watched(attempt.store)
    finish_with(attempt, store)
    assert store.writes == [keys.ENVIRONMENT, keys.MANIFEST]
    assert {trace.key for trace in attempt.manifest.traces} == {item.key for item in attempt.store.list(keys.TRACES)}


def test_a_finish_that_was_overtaken_reports_what_the_other_one_wrote(attempt: Any) -> None:
    attempt.put_rank(0)
    store = Watched(attempt.store)
    store.before[keys.MANIFEST] = attempt.finish
    message = finish_with(attempt, store)
    assert message == attempt.message
    assert message["sha256"] == hashlib.sha256(attempt.store.get(keys.MANIFEST)).hexdigest()


def test_a_write_whose_answer_was_lost_is_recognised(attempt: Any) -> None:
    attempt.put_both()
    store = Watched(attempt.store)
    store.lose_answers_of = {keys.ENVIRONMENT, keys.MANIFEST}
    assert finish_with(attempt, store)["verdict"] == "Complete"


def test_a_short_outage_is_waited_out_and_a_long_one_ends_as_finish_storage(attempt: Any) -> None:
    attempt.put_both()
    store, clock = Watched(attempt.store), Clock()
    store.outages = 5
    assert finish_with(attempt, store, clock)["verdict"] == "Complete"
    assert 0 < clock.now < 45
    store.outages = 10_000
    with pytest.raises(StoreUnreachable):
        finish_with(attempt, store, clock)
    assert clock.now < 100


def test_swapped_variants_are_mislabelled_and_named(attempt: Any) -> None:
    dense, sparse = attempt.shapes[5], attempt.shapes[7]
    attempt.put_rank(0)
    attempt.put_rank(1, really={dense: sparse, sparse: dense})
    assert attempt.finish() == 0
    manifest = attempt.manifest
    assert manifest.verdict is Verdict.MISLABELLED
    assert any(text.startswith(f"rank 1: {dense.tag} holds attention sparse (") for text in manifest.reasons)
    assert any(text.startswith(f"rank 1: {sparse.tag} holds attention dense (") for text in manifest.reasons)
    wrong = {trace.tag for trace in manifest.traces if trace.support.variants["attention"] == "contradicted"}
    assert wrong == {dense.tag, sparse.tag}
    assert [row[-1] for row in attempt.message["ranks"]] == ["Complete", "Mislabelled"]


def test_swapped_sizes_are_mislabelled_and_named(attempt: Any) -> None:
    small, large = attempt.shapes[0], attempt.shapes[8]
    attempt.put_rank(0, really={small: large, large: small})
    attempt.put_rank(1)
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.MISLABELLED
    assert any(f"rank 0: {small.tag} holds size 4 (" in text for text in attempt.manifest.reasons)
    failure = attempt.message["failure"]
    assert failure["reason"] == "Mislabelled"
    assert failure["message"].startswith("rank 0: ")
    assert failure["message"].endswith("1 more in manifest.json")


def test_a_rank_without_part_is_listed_from_its_objects_and_partial(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, with_part=False)
    assert attempt.finish() == 0
    manifest = attempt.manifest
    assert manifest.verdict is Verdict.PARTIAL
    assert manifest.reasons == ["rank 1: left no part; 12 of its traces were found in the store"]
    assert manifest.expected is None
    listed = [trace for trace in manifest.traces if trace.rank == 1]
    assert len(listed) == 12
    for trace in listed:
        assert hashlib.sha256(attempt.store.get(trace.key)).hexdigest() == trace.sha256
        assert trace.raw_sha256 is not None
        assert trace.support.size == "proven"
    assert attempt.message["ranks"][1] == [1, None, 12, 12, 0, manifest.ranks[1].stored_bytes, "Partial"]


def test_a_part_that_cannot_be_read_is_as_good_as_none(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, with_part=False)
    attempt.store.put(keys.part_key(1), b'{"v": 1, "rank": 1, "traces": [{"key": 3}]}')
    assert attempt.finish() == 0
    assert len(attempt.manifest.traces) == 24


def test_an_object_of_another_tag_is_dirty_and_one_of_another_run_is_not_listed(attempt: Any) -> None:
    attempt.put_rank(0)
    first, second = attempt.shapes[:2]
    for label, metadata in ((first, {"shapetrace-tag": second.tag}), (second, {"shapetrace-run": "another"})):
        attempt.store.put(keys.trace_key(1, label.tag), b"{}", metadata=metadata)
    assert attempt.finish() == 0
    listed = [trace for trace in attempt.manifest.traces if trace.rank == 1]
    assert [trace.tag for trace in listed] == [first.tag]
    assert listed[0].dirty == [f"its object says shapetrace-tag {second.tag}"]
    assert any("1 trace files without a record" in text for text in attempt.manifest.reasons)


def test_a_rank_that_left_nothing_is_named(attempt: Any) -> None:
    attempt.put_rank(0)
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert attempt.manifest.reasons == ["rank 1 left no part and no trace"]


def test_ranks_that_are_not_asked_for_are_not_expected(attempt: Any) -> None:
    attempt.capture = CaptureSettings(ranks="First")
    attempt.put_rank(0)
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert len(attempt.manifest.ranks) == 1


def test_traces_that_the_collector_could_not_index_are_indexed_here(attempt: Any) -> None:
    attempt.put_both(indexed=False)
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert {trace.support.size for trace in attempt.manifest.traces} == {"proven"}


def test_a_trace_too_long_to_be_read_again_is_listed_unproven(attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MAX_REINDEX_RAW_BYTES", 10)
    attempt.put_both(indexed=False)
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert {trace.support.size for trace in attempt.manifest.traces} == {"unproven"}
    assert "too long to be indexed" in attempt.manifest.reasons[0]


def test_what_was_lost_is_listed_with_its_cause(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, lost=attempt.shapes[:1])
    assert attempt.finish() == 0
    manifest = attempt.manifest
    assert manifest.verdict is Verdict.PARTIAL
    assert [(item.rank, item.tag, item.error) for item in manifest.lost] == [
        (1, attempt.shapes[0].tag, "no room in the spool")
    ]
    assert (manifest.ranks[1].captured, manifest.ranks[1].uploaded, manifest.ranks[1].failed) == (11, 11, 1)


def test_the_first_cause_travels_into_manifest_and_message(attempt: Any) -> None:
    stopped = {"reason": "EngineFailed", "rank": 1, "exitCode": None, "signal": 9, "message": "rank 1 was killed"}
    attempt.put_rank(0, stopped={"reason": "Stopped", "message": "SIGTERM"}, done=None)
    attempt.put_rank(1, stopped=stopped, done=None)
    assert attempt.finish() == 0
    failure = {"reason": "EngineFailed", "message": "rank 1 was killed", "rank": 1, "exitCode": -9}
    assert attempt.message["failure"] == failure
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert any("ended before its capture was done (EngineFailed" in text for text in attempt.manifest.reasons)


def test_a_bad_exit_after_everything_was_stored_does_not_change_the_verdict(attempt: Any) -> None:
    stopped = {"reason": "EngineFailed", "rank": 0, "exitCode": 1, "signal": None, "message": "at shutdown"}
    attempt.put_both(stopped=stopped)
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert attempt.message["failure"]["reason"] == "EngineFailed"


def test_a_model_of_the_user_s_is_not_judged_by_the_engine_s_markers(attempt: Any) -> None:
    attempt.engine = replace(attempt.engine, args=["--model", "mine:build"])
    attempt.put_both()
    assert attempt.finish() == 0
    assert {word for trace in attempt.manifest.traces for word in trace.support.variants.values()} == {"distinct"}


def test_the_environment_lists_ranks_and_each_process_once(attempt: Any) -> None:
    attempt.put_both()
    assert attempt.finish() == 0
    environment = json.loads(attempt.store.get(keys.ENVIRONMENT))
    assert [item["rank"] for item in environment["ranks"]] == [0, 1]
    assert [item["pid"] for item in environment["processes"]] == [11, 12]
    assert environment["run"]["uid"] == RunId.from_env(attempt.environment).uid


def test_without_a_claim_there_is_nothing_to_finish(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.store.delete(keys.claim_key(0))
    assert attempt.finish() == 61
    termination = Termination.from_text(attempt.log.read_text())
    assert termination is not None
    assert termination.reason == Reason.NOTHING_TO_FINISH.value
    assert attempt.store.head(keys.MANIFEST) is None


def test_a_claim_alone_gives_a_manifest_that_says_so(attempt: Any) -> None:
    assert attempt.finish() == 0
    assert attempt.message["verdict"] == "Partial"
    assert attempt.manifest.reasons == ["rank 0 left no part and no trace", "rank 1 left no part and no trace"]


def test_a_missing_setting_is_named(attempt: Any) -> None:
    environment = {name: value for name, value in attempt.environment.items() if name != "SHAPETRACE_CAPTURE"}
    assert main(environment) == 44
    assert "SHAPETRACE_CAPTURE is not set" in attempt.log.read_text()


def test_a_manifest_that_is_none_is_a_storage_fault_not_a_verdict(attempt: Any) -> None:
    attempt.store.put(keys.MANIFEST, b"{}")
    assert attempt.finish() == 60
    assert "exists and cannot be read" in attempt.log.read_text()


def test_it_runs_as_a_module(attempt: Any) -> None:
    attempt.put_both()
    command = [sys.executable, "-m", "shapetrace_finish"]
    done = subprocess.run(command, env=attempt.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Complete, 24/24 traces, 2 ranks" in done.stderr
    assert attempt.message["verdict"] == "Complete"
