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
from shapetrace_contract.message import MAX_TERMINATION_BYTES, Termination
from shapetrace_contract.reasons import Reason, Verdict
from shapetrace_contract.settings import CaptureSettings, EngineSettings, RunId
from shapetrace_contract.tag import Shape
from shapetrace_finish import gather
from shapetrace_finish.__main__ import main
from shapetrace_finish.patience import Patience
from shapetrace_finish.run import Finish
from shapetrace_traces.store import Store, StoreUnreachable


def finish(attempt: Any) -> int:
    """The finish as the pod runs it."""
    return main(attempt.environment, sleep=lambda seconds: None)


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


def both_ranks(attempt: Any, **more: Any) -> None:
    attempt.put_rank(0, **more)
    attempt.put_rank(1, **more)


def test_a_whole_run_is_complete_and_every_label_is_supported(attempt: Any) -> None:
    both_ranks(attempt)
    assert finish(attempt) == 0
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


def test_the_message_gives_verdict_address_and_hash(attempt: Any) -> None:
    both_ranks(attempt)
    assert finish(attempt) == 0
    message = attempt.message
    assert message["verdict"] == "Complete"
    assert message["uri"] == attempt.store.uri(keys.MANIFEST)
    assert message["sha256"] == hashlib.sha256(attempt.store.get(keys.MANIFEST)).hexdigest()
    assert message["failure"] is None
    sizes = [item.stored_bytes for item in attempt.manifest.ranks]
    assert message["ranks"] == [[rank, 12, 12, 12, 0, size, "Complete"] for rank, size in enumerate(sizes)]
    assert "rest" not in message


def test_twice_in_a_row_gives_the_same_bytes_and_the_same_message(attempt: Any) -> None:
    both_ranks(attempt)
    assert finish(attempt) == 0
    body, message = attempt.store.get(keys.MANIFEST), attempt.message
    attempt.store.delete(keys.part_key(1))  # judged again it would be another verdict
    assert finish(attempt) == 0
    assert attempt.store.get(keys.MANIFEST) == body
    assert attempt.message == message


def test_a_manifest_that_was_deleted_is_written_again_the_same(attempt: Any) -> None:
    attempt.put_rank(0, with_part=False)
    attempt.put_rank(1)
    assert finish(attempt) == 0
    body = attempt.store.get(keys.MANIFEST)
    attempt.store.delete(keys.MANIFEST)
    assert finish(attempt) == 0
    assert attempt.store.get(keys.MANIFEST) == body


def test_the_manifest_is_written_last_and_lists_exactly_what_is_stored(attempt: Any) -> None:
    both_ranks(attempt)
    store = Watched(attempt.store)
    finish_with(attempt, store)
    assert store.writes == [keys.ENVIRONMENT, keys.MANIFEST]
    assert {trace.key for trace in attempt.manifest.traces} == {item.key for item in attempt.store.list(keys.TRACES)}


def test_a_finish_that_was_overtaken_reports_what_the_other_one_wrote(attempt: Any) -> None:
    attempt.put_rank(0)
    store = Watched(attempt.store)
    store.before[keys.MANIFEST] = lambda: finish(attempt)
    message = finish_with(attempt, store)
    assert message == attempt.message
    assert message["sha256"] == hashlib.sha256(attempt.store.get(keys.MANIFEST)).hexdigest()


def test_a_write_whose_answer_was_lost_is_recognised(attempt: Any) -> None:
    both_ranks(attempt)
    store = Watched(attempt.store)
    store.lose_answers_of = {keys.ENVIRONMENT, keys.MANIFEST}
    assert finish_with(attempt, store)["verdict"] == "Complete"


def test_a_short_outage_is_waited_out_and_a_long_one_ends_as_finish_storage(attempt: Any) -> None:
    both_ranks(attempt)
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
    assert finish(attempt) == 0
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
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.MISLABELLED
    assert any(f"rank 0: {small.tag} holds size 4 (" in text for text in attempt.manifest.reasons)
    failure = attempt.message["failure"]
    assert failure["reason"] == "Mislabelled"
    assert failure["message"].startswith("rank 0: ")
    assert failure["message"].endswith("1 more in manifest.json")


def test_a_rank_without_part_is_listed_from_its_objects_and_partial(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, with_part=False)
    assert finish(attempt) == 0
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
    assert finish(attempt) == 0
    assert len(attempt.manifest.traces) == 24


def test_an_object_of_another_tag_is_dirty_and_one_of_another_run_is_not_listed(attempt: Any) -> None:
    attempt.put_rank(0)
    first, second = attempt.shapes[:2]
    for label, metadata in ((first, {"shapetrace-tag": second.tag}), (second, {"shapetrace-run": "another"})):
        attempt.store.put(keys.trace_key(1, label.tag), b"{}", metadata=metadata)
    assert finish(attempt) == 0
    listed = [trace for trace in attempt.manifest.traces if trace.rank == 1]
    assert [trace.tag for trace in listed] == [first.tag]
    assert listed[0].dirty == [f"its object says shapetrace-tag {second.tag}"]
    assert any("1 trace files without a record" in text for text in attempt.manifest.reasons)


def test_a_rank_that_left_nothing_is_named(attempt: Any) -> None:
    attempt.put_rank(0)
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert attempt.manifest.reasons == ["rank 1 left no part and no trace"]


def test_ranks_that_are_not_asked_for_are_not_expected(attempt: Any) -> None:
    attempt.capture = CaptureSettings(ranks="First")
    attempt.put_rank(0)
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert len(attempt.manifest.ranks) == 1


def test_traces_that_the_collector_could_not_index_are_indexed_here(attempt: Any) -> None:
    both_ranks(attempt, indexed=False)
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert {trace.support.size for trace in attempt.manifest.traces} == {"proven"}


def test_a_trace_too_long_to_be_read_again_is_listed_unproven(attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MAX_REINDEX_RAW_BYTES", 10)
    both_ranks(attempt, indexed=False)
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert {trace.support.size for trace in attempt.manifest.traces} == {"unproven"}
    assert "too long to be indexed" in attempt.manifest.reasons[0]


def test_what_was_lost_is_listed_with_its_cause(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, lost=attempt.shapes[:1])
    assert finish(attempt) == 0
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
    assert finish(attempt) == 0
    failure = {"reason": "EngineFailed", "message": "rank 1 was killed", "rank": 1, "exitCode": -9}
    assert attempt.message["failure"] == failure
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert any("ended before its capture was done (EngineFailed" in text for text in attempt.manifest.reasons)


def test_a_bad_exit_after_everything_was_stored_does_not_change_the_verdict(attempt: Any) -> None:
    stopped = {"reason": "EngineFailed", "rank": 0, "exitCode": 1, "signal": None, "message": "at shutdown"}
    both_ranks(attempt, stopped=stopped)
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    assert attempt.message["failure"]["reason"] == "EngineFailed"


@pytest.mark.parametrize("strict", [True, False])
def test_strict_fails_a_run_whose_labels_are_not_all_proven(attempt: Any, strict: bool) -> None:
    attempt.capture = CaptureSettings(strict=strict)
    both_ranks(attempt, shapes=attempt.shapes[:4])  # one size only: consistent, not proven
    assert finish(attempt) == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    failure = attempt.message["failure"]
    assert (failure or {}).get("reason") == ("NotProven" if strict else None)
    if strict:
        assert failure["message"].startswith("strict is set, and 8 of 8 traces are not proven, first rank 0 ")


def test_strict_is_satisfied_by_a_proven_run_and_not_by_an_eager_one(attempt: Any) -> None:
    attempt.capture = CaptureSettings(strict=True)
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 1})
    attempt.put_rank(0)
    assert finish(attempt) == 0
    assert attempt.message["failure"] is None
    for item in list(attempt.store.list()):
        if not item.key.startswith(keys.CLAIMS):
            attempt.store.delete(item.key)
    attempt.put_rank(0, shapes=[], plan=[], done={"records": 0, "ok": True, "eager": "--enforce-eager"})
    assert finish(attempt) == 0
    assert attempt.message["verdict"] == "Eager"
    assert attempt.message["failure"]["reason"] == "NotProven"


def test_why_a_run_is_eager_is_in_the_message_of_the_finish(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 2})
    for rank in range(2):
        attempt.put_rank(rank, shapes=[], plan=[], done={"records": 0, "ok": True, "eager": "é" * 4000})
    assert finish(attempt) == 0
    assert attempt.message["verdict"] == "Eager"
    assert attempt.message["eager"].startswith("ééé")
    assert len(attempt.message["eager"]) <= 256
    assert attempt.message["failure"] is None


def test_places_that_no_hook_covers_are_in_manifest_and_message(attempt: Any) -> None:
    begun = {"all": 14, "tagged": 12, "untagged": ["engine/lazy.py:300 capture", "é" * 4000]}
    both_ranks(attempt)
    assert finish(attempt) == 0
    assert "note" not in attempt.message
    (attempt.folder / keys.MANIFEST).unlink()
    part = json.loads(attempt.store.get(keys.part_key(1)))
    part["done"]["captureBegin"] = begun
    (attempt.folder / keys.part_key(1)).unlink()
    attempt.store.put(keys.part_key(1), json.dumps(part).encode())
    assert finish(attempt) == 0
    assert attempt.message["verdict"] == "Complete"
    said = "2 places captured graphs that no hook covers, first engine/lazy.py:300 capture"
    assert attempt.message["note"] == said
    assert said in attempt.manifest.reasons
    assert [(item.caller[:27], item.ranks) for item in attempt.manifest.untagged] == [
        ("engine/lazy.py:300 capture", [1]),
        ("é" * 27, [1]),
    ]


@pytest.mark.parametrize(("device", "is_said"), [("cuda", True), ("rocm", True), ("cpu", False)])
def test_traces_of_a_cpu_are_told_where_devices_were_asked_for(attempt: Any, device: str, is_said: bool) -> None:
    attempt.engine = replace(attempt.engine, device=device)
    both_ranks(attempt)
    assert finish(attempt) == 0
    said = [text for text in attempt.manifest.reasons if "24 of 24 traces were recorded on the CPU" in text]
    assert bool(said) is is_said
    assert all(device in text and "torch.cuda.is_available()" in text for text in said)
    told = "24 of 24 traces were recorded on the CPU and hold no graph"
    assert attempt.message.get("note", "").startswith(told) is is_said
    assert attempt.message["failure"] is None


def test_traces_of_a_cpu_where_a_gpu_was_asked_for_are_not_what_strict_asks_for(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 2}, device="cuda")
    attempt.capture = CaptureSettings(strict=True)
    both_ranks(attempt)
    assert finish(attempt) == 0
    assert attempt.message["failure"]["reason"] == "NotProven"
    assert "24 of 24 traces were recorded on the CPU" in attempt.message["failure"]["message"]


@pytest.mark.parametrize("strict", [False, True])
def test_a_declared_shape_that_the_engine_does_not_capture_is_told_and_refused_by_strict(
    attempt: Any, strict: bool
) -> None:
    attempt.capture = CaptureSettings(strict=strict)
    both_ranks(attempt)
    part = json.loads(attempt.store.get(keys.part_key(0)))
    unmet = {**part["traces"][0]["shape"], "size": 4096}
    part["plan"][0]["notPlanned"] = [{"shape": unmet, "reason": "above the largest size"}]
    (attempt.folder / keys.part_key(0)).unlink()
    attempt.store.put(keys.part_key(0), json.dumps(part).encode())
    assert finish(attempt) == 0
    assert attempt.message["verdict"] == "Complete"
    said = f"1 declared shape is not captured by the engine, first {Shape.from_json(unmet).tag}: above the largest size"
    assert attempt.message["note"] == said
    assert attempt.manifest.reasons == [said]
    failure = attempt.manifest.failure
    assert (failure and (failure.reason, failure.message)) == (
        ("NotProven", f"strict is set, and {said}") if strict else None
    )


def test_only_an_eager_run_has_a_reason_for_it(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 1})
    attempt.put_rank(0)
    assert finish(attempt) == 0
    assert "eager" not in attempt.message


def test_a_model_of_the_user_s_is_not_judged_by_the_engine_s_markers(attempt: Any) -> None:
    attempt.engine = replace(attempt.engine, args=["--model", "mine:build"])
    both_ranks(attempt)
    assert finish(attempt) == 0
    assert {word for trace in attempt.manifest.traces for word in trace.support.variants.values()} == {"distinct"}


def test_the_environment_lists_ranks_and_each_process_once(attempt: Any) -> None:
    both_ranks(attempt)
    assert finish(attempt) == 0
    environment = json.loads(attempt.store.get(keys.ENVIRONMENT))
    assert [item["rank"] for item in environment["ranks"]] == [0, 1]
    assert [item["pid"] for item in environment["processes"]] == [11, 12]
    assert environment["run"]["uid"] == RunId.from_env(attempt.environment).uid


def test_without_a_claim_there_is_nothing_to_finish(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.store.delete(keys.claim_key(0))
    assert finish(attempt) == 61
    termination = Termination.from_text(attempt.log.read_text())
    assert termination is not None
    assert termination.reason == Reason.NOTHING_TO_FINISH.value
    assert attempt.store.head(keys.MANIFEST) is None


def test_a_claim_alone_gives_a_manifest_that_says_so(attempt: Any) -> None:
    assert finish(attempt) == 0
    assert attempt.message["verdict"] == "Partial"
    assert attempt.manifest.reasons == ["rank 0 left no part and no trace", "rank 1 left no part and no trace"]


def test_a_missing_setting_is_named(attempt: Any) -> None:
    environment = {name: value for name, value in attempt.environment.items() if name != "SHAPETRACE_CAPTURE"}
    assert main(environment) == 44
    assert "SHAPETRACE_CAPTURE is not set" in attempt.log.read_text()


def test_a_manifest_that_is_none_is_a_storage_fault_not_a_verdict(attempt: Any) -> None:
    attempt.store.put(keys.MANIFEST, b"{}")
    assert finish(attempt) == 60
    assert "exists and cannot be read" in attempt.log.read_text()


def test_hundreds_of_ranks_give_a_message_that_fits(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 8, "dataReplicas": 32})
    long = "é" * 5000
    attempt.put_rank(0, stopped={"reason": "EngineFailed", "message": long}, done=None)
    assert finish(attempt) == 0
    assert len(attempt.log.read_bytes()) <= MAX_TERMINATION_BYTES
    message = attempt.message
    assert message["rest"] == 256 - len(message["ranks"])
    assert len(message["ranks"]) <= 48


def test_above_48_ranks_only_those_that_are_not_complete_are_told(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 50})
    for rank in range(49):
        attempt.put_rank(rank, shapes=attempt.shapes[::4])
    assert finish(attempt) == 0
    assert [(row[0], row[-1]) for row in attempt.message["ranks"]] == [(49, "Partial")]
    assert attempt.message["rest"] == 49


def test_it_runs_as_a_module(attempt: Any) -> None:
    both_ranks(attempt)
    command = [sys.executable, "-m", "shapetrace_finish"]
    done = subprocess.run(command, env=attempt.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Complete, 24/24 traces, 2 ranks" in done.stderr
    assert attempt.message["verdict"] == "Complete"


@pytest.mark.parametrize(
    ("seen", "ok", "said"),
    [
        ((8, 8), True, "saw every kernel of a test on 2 ranks"),
        ((8, 3), False, "saw 3 of 8 kernels on rank 1: later traces of such a process hold no kernels"),
        ((0, 0), False, "saw 0 of 8 kernels on rank 0 and 1 more ranks"),
    ],
)
def test_what_the_profiler_saw_of_a_gpu_is_in_manifest_and_message(
    attempt: Any, seen: tuple[int, int], ok: bool, said: str
) -> None:
    both_ranks(attempt)
    for rank in range(2):
        part = json.loads(attempt.store.get(keys.part_key(rank)))
        part["done"]["gpuEvents"] = {"launched": 8, "seen": seen[rank]}
        (attempt.folder / keys.part_key(rank)).unlink()
        attempt.store.put(keys.part_key(rank), json.dumps(part).encode())
    assert finish(attempt) == 0
    assert (attempt.message["verdict"], attempt.message["gpuEvents"]["ok"]) == ("Complete", ok)
    assert said in attempt.message["gpuEvents"]["message"]
    assert [item.gpu_events.seen for item in attempt.manifest.ranks] == list(seen)


@pytest.mark.parametrize("value", [None, 3, {"launched": "8", "seen": 8}, {"launched": 8}])
def test_without_a_test_of_the_profiler_nothing_is_said_of_it(attempt: Any, value: Any) -> None:
    both_ranks(attempt)
    part = json.loads(attempt.store.get(keys.part_key(0)))
    part["done"]["gpuEvents"] = value
    (attempt.folder / keys.part_key(0)).unlink()
    attempt.store.put(keys.part_key(0), json.dumps(part).encode())
    assert finish(attempt) == 0
    assert "gpuEvents" not in attempt.message
    assert all(item.gpu_events is None for item in attempt.manifest.ranks)
