"""The helper processes that parse traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from shapetrace_collector.indexing import WORKER_BYTES, Indexer, failed, memory_budget_bytes, worker_count
from shapetrace_traces.index import index_trace


@pytest.fixture
def make_indexer():
    made = []

    def make(**options):
        made.append(Indexer({"PATH": os.environ["PATH"]}, **{"workers": 1, **options}))
        return made[-1]

    yield make
    for indexer in made:
        indexer.close()


@pytest.fixture
def trace(writer) -> bytes:
    return writer.raw_trace(writer.shape(2), 0)


def stand_in(answer: str) -> list[str]:
    """A worker that answers each trace, which ends with a block of length 0, by a statement."""
    script = "import json, os, sys\nwhile True:\n  seen = b''\n"
    script += f"  while not seen.endswith(bytes(4)): seen += os.read(0, 65536) or sys.exit()\n  {answer}\n"
    return [sys.executable, "-c", script]


def index(indexer, trace: bytes, block_bytes: int = 1024 * 1024):
    indexing = indexer.start("000000.json", len(trace))
    for begin in range(0, len(trace), block_bytes):
        indexing.feed(trace[begin : begin + block_bytes])
    found = indexing.result()
    indexing.close()
    return found


def test_the_index_is_that_of_the_reader(make_indexer, trace) -> None:
    assert index(make_indexer(), trace) == json.loads(json.dumps(index_trace(trace)))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b'{"traceEvents": [{"ph"', "not JSON"),
        (b"\xff\x00" * 100, "not JSON"),
        (b"[" * 100_000, "deep"),
        (b"\xef\xbb\xbf[] []", "more text"),
        (b'{"traceEvents": [], "shapetrace": {"n": 1e999}}', "cannot be written"),
    ],
)
def test_what_cannot_be_indexed_says_why_and_the_next_is_indexed(make_indexer, trace, raw, said) -> None:
    indexer = make_indexer()
    answer = index(indexer, raw)
    assert said in answer["error"]
    assert set(answer) == set(failed("x"))
    assert index(indexer, trace)["error"] is None


def test_blocks_of_any_length_give_the_same(make_indexer, trace) -> None:
    indexer = make_indexer()
    assert index(indexer, trace, 7) == index(indexer, trace)


def test_a_bad_beginning_is_told_after_the_last_of_many_blocks(make_indexer, trace) -> None:
    """The worker must take in what it no longer needs, or the collector would wait for it."""
    indexer = make_indexer()
    assert "not JSON" in index(indexer, b"no trace" * 1_000_000)["error"]
    assert index(indexer, trace)["error"] is None


def test_a_trace_that_needs_too_much_memory_is_refused_and_nothing_dies(make_indexer, trace) -> None:
    wide = b"[[" + b"1.5," * 1_500_000 + b"1.5]]"  # the numbers take ten times the room of their text
    indexer = make_indexer(worker_bytes=24 * 1024**2)
    assert "more memory" in index(indexer, wide)["error"]
    assert index(indexer, trace)["error"] is None


def test_a_trace_that_is_given_up_half_way_costs_its_worker_only(make_indexer, trace) -> None:
    indexer = make_indexer()
    half = indexer.start("000000.json", len(trace))
    half.feed(trace[:20])
    half.close()
    assert index(indexer, trace)["error"] is None


def test_one_worker_serves_several_traces_at_once(make_indexer, trace) -> None:
    from concurrent.futures import ThreadPoolExecutor

    indexer = make_indexer()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index(indexer, trace), range(8)))
    assert all(item == found[0] and item["error"] is None for item in found)


def test_a_worker_that_takes_too_long_is_ended_and_replaced(make_indexer, trace) -> None:
    indexer = make_indexer(command=[sys.executable, "-c", "import time; time.sleep(100)"], first_seconds=0.5)
    assert "time and memory" in index(indexer, trace)["error"]
    # half a second may not be enough for a Python that starts on a busy machine
    indexer._first_seconds = 60
    indexer._command = stand_in("print('{\"error\": null}', flush=True)")
    assert index(indexer, trace)["error"] is None


@pytest.mark.parametrize(
    "script", ["", "print('no json', flush=True); input()", "print('x' * 10**6); input(); input()"]
)
def test_a_worker_that_answers_nonsense_is_ended(make_indexer, trace, script) -> None:
    assert "time and memory" in index(make_indexer(command=[sys.executable, "-c", script]), trace)["error"]


def test_a_program_that_does_not_start_costs_the_index_only(make_indexer, trace) -> None:
    assert "does not run" in index(make_indexer(command=["/nowhere/python"]), trace)["error"]


def test_when_the_time_is_over_the_index_is_given_up_and_later_it_works_again(make_indexer, trace) -> None:
    indexer = make_indexer(command=[sys.executable, "-c", "import time; time.sleep(100)"])
    pending = indexer.start("000000.json", 10)
    indexer.hurry(True)
    pending.feed(trace)
    assert "time" in pending.result()["error"]
    assert "no time was left" in index(indexer, trace)["error"]
    indexer.hurry(False)
    indexer._command = [sys.executable, "-m", "shapetrace_collector.index_worker", str(WORKER_BYTES)]
    assert index(indexer, trace)["error"] is None


def test_a_worker_sees_no_credential(trace) -> None:
    secret = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ACCESS_KEY_ID": "i",
        "SHAPETRACE_STORE": "{}",
        "PATH": os.environ["PATH"],
    }
    command = stand_in("print(json.dumps({'seen': sorted(os.environ)}), flush=True)")
    indexer = Indexer(secret, workers=1, command=command)
    seen = index(indexer, trace)["seen"]
    indexer.close()
    assert "PATH" in seen
    assert not [name for name in seen if name.startswith(("AWS_", "SHAPETRACE_"))]


def test_a_worker_ends_with_the_collector() -> None:
    command = [sys.executable, "-m", "shapetrace_collector.index_worker", str(WORKER_BYTES)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker.communicate(timeout=60)  # closes its stdin, which is what the death of its parent does
    assert worker.returncode == 0


@pytest.mark.parametrize(
    ("text", "expected"), [("2147483648\n", 1024**3), ("max\n", 2 * 1024**3), ("9223372036854771712", 2 * 1024**3)]
)
def test_the_memory_follows_the_containers_limit(tmp_path, text, expected) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert memory_budget_bytes([str(tmp_path / "absent"), str(tmp_path / "memory.max")]) == expected


def test_there_are_no_more_workers_than_memory() -> None:
    assert worker_count(WORKER_BYTES // 2) == 1
    assert worker_count(100 * WORKER_BYTES) <= 4
