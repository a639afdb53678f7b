"""A collector that is SIGKILLed at any step and started again: the end is that of an undisturbed run.

Each collector is a process of its own, made by fork so that hundreds of them take seconds. The steps at which it may be
killed are those that change something outside of it: around each PUT, each record, each unlink, each whole file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from shapetrace_collector.collector import Collector
from shapetrace_contract import spool
from shapetrace_traces.store import Store

MAX_STEPS = 200


class Steps:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, fatal: int) -> None:
        self._fatal = fatal
        self._lock = threading.Lock()
        self._count = 0

    def __call__(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)


class Stepping:
    """A store that steps before and after each write."""

    def __init__(self, store: Store, step: Steps) -> None:
        self._store, self._step = store, step

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def put(self, *arguments, **options):
        self._step()
        stored = self._store.put(*arguments, **options)
        self._step()
        return stored


def start_collector(pod, no_index, fatal: int) -> int:
    """Fork a collector that is killed at step ``fatal``; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        step = Steps(fatal)
        append, write, unlink = spool.append_line, spool.write_json, Path.unlink

        def torn_append(path, value):
            step()
            text = (json.dumps(value) + "\n").encode()
            with path.open("ab") as stream:
                stream.write(text[: len(text) // 2])
                stream.flush()
                step()
            append(path, value)
            step()

        def stepping_write(path, value):
            step()
            write(path, value)
            step()

        def stepping_unlink(path, missing_ok=False):
            unlink(path, missing_ok)
            if path.parent.name.startswith("rank-"):
                step()

        spool.append_line, spool.write_json, Path.unlink = torn_append, stepping_write, stepping_unlink
        ok = Collector(pod.configuration, Stepping(pod.store, step), no_index).run(exit_when_drained=True)
        os._exit(0 if ok else 1)
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(2)


def fill(pod, writer, sizes=(1, 2)) -> None:
    for rank in pod.ranks:
        rank.load()
        rank.plan([writer.shape(size) for size in sizes])
        for size in sizes:
            rank.capture(writer.shape(size))
        rank.lose(writer.shape(99))
        rank.done()
    (pod.spool / "engine.log").write_text("loaded\n")
    pod.stop()


def objects(pod) -> dict[str, bytes]:
    return {item.key: pod.store.get(item.key) for item in pod.store.list()}


def left_over(pod) -> list[Path]:
    return [path for rank in pod.ranks for path in rank.folder.glob("[0-9]*.json")]


def test_killed_at_each_step_the_end_is_the_same(make_pod, writer, no_index) -> None:
    quiet = make_pod()
    fill(quiet, writer)
    assert os.waitpid(start_collector(quiet, no_index, fatal=0), 0)[1] == 0
    expected = objects(quiet)
    assert len(expected) == 4 + 2 + 1

    for fatal in range(1, MAX_STEPS):
        pod = make_pod()
        fill(pod, writer)
        status = os.waitpid(start_collector(pod, no_index, fatal), 0)[1]
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL, f"step {fatal}: {status}"
        assert os.waitpid(start_collector(pod, no_index, fatal=0), 0)[1] == 0, f"after a kill at step {fatal}"
        assert objects(pod) == expected, f"after a kill at step {fatal}"
        assert left_over(pod) == [], f"after a kill at step {fatal}"
        assert pod.drained() == quiet.drained(), f"after a kill at step {fatal}"
    assert fatal > 4 * 5, "too few steps: the test no longer sees them"
    assert status == 0, "more steps than were tried"


def test_killed_again_and_again_while_the_engine_writes(make_pod, writer, seed, no_index) -> None:
    chance = random.Random(seed)
    sizes = tuple(range(1, 9))
    quiet, pod = make_pod(), make_pod()
    fill(quiet, writer, sizes)
    assert os.waitpid(start_collector(quiet, no_index, fatal=0), 0)[1] == 0

    def engine() -> None:
        for rank in pod.ranks:
            rank.load()
            rank.plan([writer.shape(size) for size in sizes])
        for size in sizes:
            for rank in pod.ranks:
                rank.capture(writer.shape(size))
            time.sleep(0.02)  # the pace of an engine, not a wait of the test
        for rank in pod.ranks:
            rank.lose(writer.shape(99))
            rank.done()
        (pod.spool / "engine.log").write_text("loaded\n")
        pod.stop()

    writing = threading.Thread(target=engine)
    # the first collector is forked before this process has a second thread
    child = start_collector(pod, no_index, fatal=chance.randrange(1, 25))
    writing.start()
    kills = 0
    while (status := os.waitpid(child, 0)[1]) != 0:
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
        child = start_collector(pod, no_index, fatal=chance.randrange(3, 25))
    writing.join()
    assert kills >= 3
    assert objects(pod) == objects(quiet)
    assert left_over(pod) == []
    assert pod.drained() == quiet.drained()


@pytest.mark.parametrize("moment", ["after the parts", "before the parts"])
def test_a_killed_collector_tells_the_launcher_after_all(make_pod, run, writer, moment) -> None:
    pod = make_pod()
    fill(pod, writer)
    assert run(pod).join() is True
    (pod.spool / "drained").unlink()
    if moment == "before the parts":
        for item in list(pod.store.list("parts/")):
            pod.store.delete(item.key)
    assert run(pod).join() is True
    assert pod.drained()["ok"] is True
