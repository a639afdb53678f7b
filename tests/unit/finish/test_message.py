"""What the end of a run tells: the message of the finish, its notes, and what ``strict`` refuses."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from shapetrace_contract import keys
from shapetrace_contract.message import MAX_TERMINATION_BYTES
from shapetrace_contract.reasons import Verdict
from shapetrace_contract.settings import CaptureSettings, EngineSettings
from shapetrace_contract.tag import Shape


def test_the_message_gives_verdict_address_and_hash(attempt: Any) -> None:
    attempt.put_both()
    assert attempt.finish() == 0
    message = attempt.message
    assert message["verdict"] == "Complete"
    assert message["uri"] == attempt.store.uri(keys.MANIFEST)
    assert message["sha256"] == hashlib.sha256(attempt.store.get(keys.MANIFEST)).hexdigest()
    assert message["failure"] is None
    sizes = [item.stored_bytes for item in attempt.manifest.ranks]
    assert message["ranks"] == [[rank, 12, 12, 12, 0, size, "Complete"] for rank, size in enumerate(sizes)]
    assert "rest" not in message


@pytest.mark.parametrize("strict", [True, False])
def test_strict_fails_a_run_whose_labels_are_not_all_proven(attempt: Any, strict: bool) -> None:
    attempt.capture = CaptureSettings(strict=strict)
    attempt.put_both(shapes=attempt.shapes[:4])  # one size only: consistent, not proven
    assert attempt.finish() == 0
    assert attempt.manifest.verdict is Verdict.COMPLETE
    failure = attempt.message["failure"]
    assert (failure or {}).get("reason") == ("NotProven" if strict else None)
    if strict:
        assert failure["message"].startswith("strict is set, and 8 of 8 traces are not proven, first rank 0 ")


def test_strict_is_satisfied_by_a_proven_run_and_not_by_an_eager_one(attempt: Any) -> None:
    attempt.capture = CaptureSettings(strict=True)
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 1})
    attempt.put_rank(0)
    assert attempt.finish() == 0
    assert attempt.message["failure"] is None
    for item in list(attempt.store.list()):
        if not item.key.startswith(keys.CLAIMS):
            attempt.store.delete(item.key)
    attempt.put_rank(0, shapes=[], plan=[], done={"records": 0, "ok": True, "eager": "--enforce-eager"})
    assert attempt.finish() == 0
    assert attempt.message["verdict"] == "Eager"
    assert attempt.message["failure"]["reason"] == "NotProven"


def test_why_a_run_is_eager_is_in_the_message_of_the_finish(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 2})
    for rank in range(2):
        attempt.put_rank(rank, shapes=[], plan=[], done={"records": 0, "ok": True, "eager": "é" * 4000})
    assert attempt.finish() == 0
    assert attempt.message["verdict"] == "Eager"
    assert attempt.message["eager"].startswith("ééé")
    assert len(attempt.message["eager"]) <= 256
    assert attempt.message["failure"] is None


def test_places_that_no_hook_covers_are_in_manifest_and_message(attempt: Any) -> None:
    begun = {"all": 14, "tagged": 12, "untagged": ["engine/lazy.py:300 capture", "é" * 4000]}
    attempt.put_both()
    assert attempt.finish() == 0
    assert "note" not in attempt.message
    (attempt.folder / keys.MANIFEST).unlink()
    part = json.loads(attempt.store.get(keys.part_key(1)))
    part["done"]["captureBegin"] = begun
    (attempt.folder / keys.part_key(1)).unlink()
    attempt.store.put(keys.part_key(1), json.dumps(part).encode())
    assert attempt.finish() == 0
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
    attempt.put_both()
    assert attempt.finish() == 0
    said = [text for text in attempt.manifest.reasons if "24 of 24 traces were recorded on the CPU" in text]
    assert bool(said) is is_said
    assert all(device in text and "torch.cuda.is_available()" in text for text in said)
    told = "24 of 24 traces were recorded on the CPU and hold no graph"
    assert attempt.message.get("note", "").startswith(told) is is_said
    assert attempt.message["failure"] is None


def test_traces_of_a_cpu_where_a_gpu_was_asked_for_are_not_what_strict_asks_for(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 2}, device="cuda")
    attempt.capture = CaptureSettings(strict=True)
    attempt.put_both()
    assert attempt.finish() == 0
    assert attempt.message["failure"]["reason"] == "NotProven"
    assert "24 of 24 traces were recorded on the CPU" in attempt.message["failure"]["message"]


@pytest.mark.parametrize("strict", [False, True])
def test_a_declared_shape_that_the_engine_does_not_capture_is_told_and_refused_by_strict(
    attempt: Any, strict: bool
) -> None:
    attempt.capture = CaptureSettings(strict=strict)
    attempt.put_both()
    part = json.loads(attempt.store.get(keys.part_key(0)))
    unmet = {**part["traces"][0]["shape"], "size": 4096}
    part["plan"][0]["notPlanned"] = [{"shape": unmet, "reason": "above the largest size"}]
    (attempt.folder / keys.part_key(0)).unlink()
    attempt.store.put(keys.part_key(0), json.dumps(part).encode())
    assert attempt.finish() == 0
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
    assert attempt.finish() == 0
    assert "eager" not in attempt.message


def test_hundreds_of_ranks_give_a_message_that_fits(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 8, "dataReplicas": 32})
    long = "é" * 5000
    attempt.put_rank(0, stopped={"reason": "EngineFailed", "message": long}, done=None)
    assert attempt.finish() == 0
    assert len(attempt.log.read_bytes()) <= MAX_TERMINATION_BYTES
    message = attempt.message
    assert message["rest"] == 256 - len(message["ranks"])
    assert len(message["ranks"]) <= 48


def test_above_48_ranks_only_those_that_are_not_complete_are_told(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="torch", parallelism={"tensor": 50})
    for rank in range(49):
        attempt.put_rank(rank, shapes=attempt.shapes[::4])
    assert attempt.finish() == 0
    assert [(row[0], row[-1]) for row in attempt.message["ranks"]] == [(49, "Partial")]
    assert attempt.message["rest"] == 49


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
    attempt.put_both()
    for rank in range(2):
        part = json.loads(attempt.store.get(keys.part_key(rank)))
        part["done"]["gpuEvents"] = {"launched": 8, "seen": seen[rank]}
        (attempt.folder / keys.part_key(rank)).unlink()
        attempt.store.put(keys.part_key(rank), json.dumps(part).encode())
    assert attempt.finish() == 0
    assert (attempt.message["verdict"], attempt.message["gpuEvents"]["ok"]) == ("Complete", ok)
    assert said in attempt.message["gpuEvents"]["message"]
    assert [item.gpu_events.seen for item in attempt.manifest.ranks] == list(seen)


@pytest.mark.parametrize("value", [None, 3, {"launched": "8", "seen": 8}, {"launched": 8}])
def test_without_a_test_of_the_profiler_nothing_is_said_of_it(attempt: Any, value: Any) -> None:
    attempt.put_both()
    part = json.loads(attempt.store.get(keys.part_key(0)))
    part["done"]["gpuEvents"] = value
    (attempt.folder / keys.part_key(0)).unlink()
    attempt.store.put(keys.part_key(0), json.dumps(part).encode())
    assert attempt.finish() == 0
    assert "gpuEvents" not in attempt.message
    assert all(item.gpu_events is None for item in attempt.manifest.ranks)
