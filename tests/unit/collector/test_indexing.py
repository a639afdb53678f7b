"""The helper processes that parse traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from shapetrace_collector.budget import Budget
from shapetrace_collector.indexing import Indexer, failed, memory_budget_bytes
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
def trace(tmp_path, writer):
    path = tmp_path / "000000.json"
    path.write_bytes(writer.raw_trace(writer.shape(2), 0))
    return path


def index(indexer, path):
    return indexer.start(path, path.lstat().st_size)()


def test_the_index_is_that_of_the_reader(make_indexer, trace) -> None:
    assert index(make_indexer(), trace) == json.loads(json.dumps(index_trace(trace.read_bytes())))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b'{"traceEvents": [{"ph"', "not JSON"),
        (b"\xff\x00" * 100, "not JSON"),
        (b"[" * 100_000, "deep"),
        (b'{"traceEvents": [], "shapetrace": {"n": 1e999}}', "cannot be written"),
    ],
)
def test_what_cannot_be_indexed_says_why_and_the_next_is_indexed(make_indexer, trace, tmp_path, raw, said) -> None:
    bad = tmp_path / "000001.json"
    bad.write_bytes(raw)
    indexer = make_indexer()
    answer = index(indexer, bad)
    assert said in answer["error"]
    assert set(answer) == set(failed("x"))
    assert index(indexer, trace)["error"] is None


def test_a_link_is_not_followed(make_indexer, trace, tmp_path) -> None:
    (tmp_path / "000001.json").symlink_to(trace)
    assert "no regular file" in index(make_indexer(), tmp_path / "000001.json")["error"]


def test_a_trace_that_needs_too_much_memory_is_refused_and_nothing_dies(make_indexer, trace, tmp_path) -> None:
    wide = tmp_path / "000001.json"
    wide.write_bytes(b"[" + b"[]," * 1_000_000 + b"[]]")
    indexer = make_indexer(memory_bytes=40 * 1024**2)
    assert "more memory" in index(indexer, wide)["error"]
    assert index(indexer, trace)["error"] is None


def test_a_worker_that_takes_too_long_is_ended_and_replaced(make_indexer, trace, tmp_path) -> None:
    once = tmp_path / "once"
    script = (
        f"import os, sys, time\n"
        f"if not os.path.exists({str(once)!r}):\n"
        f"    open({str(once)!r}, 'w').close(); time.sleep(100)\n"
        f"for line in sys.stdin: print('{{\"error\": null}}', flush=True)\n"
    )
    indexer = make_indexer(command=[sys.executable, "-c", script], first_seconds=0.5)
    assert "time and memory" in index(indexer, trace)["error"]
    # the next one starts a Python, which half a second may not be enough for on a busy machine
    indexer._first_seconds = 30
    assert index(indexer, trace)["error"] is None


@pytest.mark.parametrize(
    "script", ["", "print('no json', flush=True); input()", "print('x' * 10**6); input(); input()"]
)
def test_a_worker_that_answers_nonsense_is_ended(make_indexer, trace, script) -> None:
    assert "time and memory" in index(make_indexer(command=[sys.executable, "-c", script]), trace)["error"]


def test_a_program_that_does_not_start_costs_the_index_only(make_indexer, trace) -> None:
    assert "does not run" in index(make_indexer(command=["/nowhere/python"]), trace)["error"]


def test_when_the_time_is_over_the_index_is_given_up_and_later_it_works_again(make_indexer, trace, until) -> None:
    indexer = make_indexer(command=[sys.executable, "-c", "import time; time.sleep(100)"])
    pending = indexer.start(trace, 10)
    indexer.hurry(True)
    assert "time" in pending()["error"]
    assert "no time was left" in index(indexer, trace)["error"]
    indexer.hurry(False)
    indexer._command = [sys.executable, "-m", "shapetrace_collector.index_worker"]
    assert index(indexer, trace)["error"] is None


def test_a_worker_sees_no_credential(trace) -> None:
    script = (
        "import os, sys, json\nfor line in sys.stdin: print(json.dumps({'seen': sorted(os.environ)}), flush=True)\n"
    )
    secret = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ACCESS_KEY_ID": "i",
        "SHAPETRACE_STORE": "{}",
        "PATH": os.environ["PATH"],
    }
    indexer = Indexer(secret, workers=1, command=[sys.executable, "-c", script])
    seen = index(indexer, trace)["seen"]
    indexer.close()
    assert "PATH" in seen
    assert not [name for name in seen if name.startswith(("AWS_", "SHAPETRACE_"))]


def test_a_worker_ends_with_the_collector() -> None:
    command = [sys.executable, "-m", "shapetrace_collector.index_worker"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker.communicate(timeout=20)  # closes its stdin, which is what the death of its parent does
    assert worker.returncode == 0


@pytest.mark.parametrize(
    ("text", "expected"), [("2147483648\n", 1024**3), ("max\n", 2 * 1024**3), ("9223372036854771712", 2 * 1024**3)]
)
def test_the_memory_follows_the_containers_limit(tmp_path, text, expected) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert memory_budget_bytes([str(tmp_path / "absent"), str(tmp_path / "memory.max")]) == expected


def test_a_budget_is_never_overdrawn_and_the_largest_goes_alone() -> None:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Lock

    budget, lock, taken, most = Budget(100), Lock(), 0, 0

    def work(wanted: int) -> int:
        nonlocal taken, most
        with budget.take(wanted) as granted:
            with lock:
                taken += granted
                most = max(most, taken)
            with lock:
                taken -= granted
        return granted

    with ThreadPoolExecutor(8) as pool:
        granted = list(pool.map(work, [30, 60, 1000, 100, 1] * 20))
    assert most <= 100
    assert set(granted) == {1, 30, 60, 100}
