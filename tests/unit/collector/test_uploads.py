"""Which traces are uploaded now. Deliveries are functions of the test; threads and time are real or given."""

from __future__ import annotations

import threading

import pytest
from shapetrace_collector import uploads
from shapetrace_collector.record import parse
from shapetrace_collector.uploads import UploadQueue
from shapetrace_traces.store import StoreMisconfigured, StoreUnreachable


class Rank:
    """As much of a ledger as a queue needs."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.done: list[str] = []
        self.lost: dict[str, str] = {}

    def delivered(self, record, line) -> bool:
        self.done.append(record.file)
        return True

    def refused(self, record, reason) -> None:
        self.lost[record.file] = reason


class Bench:
    def __init__(self, folder, writer, deliver) -> None:
        self.rank, self.now, self.wake = Rank(folder), 100.0, threading.Event()
        self.queue = UploadQueue(deliver, self.wake, clock=lambda: self.now)
        self._writer, self._folder = writer, folder

    def add(self, *sizes: int) -> None:
        for number, size in enumerate(sizes, start=len(list(self._folder.iterdir()))):
            shape = self._writer.shape(number + 1)
            with (self._folder / f"{number:06d}.json").open("wb") as stream:
                stream.truncate(size)  # as large as needed, and takes no room
            line = {"tag": shape.tag, "shape": shape.to_json(), "stage": "capture", "file": f"{number:06d}.json"}
            self.queue.add(self.rank, parse(0, line))

    def pump_until_idle(self, until) -> None:
        def step() -> bool:
            self.queue.pump()
            self.now += 0.01
            return self.queue.idle

        until(step)


@pytest.fixture
def bench(tmp_path, writer):
    benches = []

    def make(deliver):
        benches.append(Bench(tmp_path, writer, deliver))
        return benches[-1]

    yield make
    for bench in benches:
        bench.queue.abandon()


def line_of(record) -> dict[str, object]:
    return {"key": record.key, "bytes": 1}


def test_a_few_at_once_and_no_more(bench, until) -> None:
    lock, active, most, go = threading.Lock(), 0, 0, threading.Event()

    def deliver(folder, record):
        nonlocal active, most
        with lock:
            active += 1
            most = max(most, active)
        assert go.wait(60)
        with lock:
            active -= 1
        return line_of(record)

    it = bench(deliver)
    it.add(*[10] * 12)
    it.queue.pump()
    until(lambda: active == uploads.CONCURRENCY)
    go.set()
    it.pump_until_idle(until)
    assert most == uploads.CONCURRENCY
    assert len(it.rank.done) == 12


def test_large_traces_go_alone(bench, until) -> None:
    lock, active, together = threading.Lock(), 0, []

    def deliver(folder, record):
        nonlocal active
        with lock:
            active += (folder / record.file).stat().st_size
            together.append(active)
        with lock:
            active -= (folder / record.file).stat().st_size
        return line_of(record)

    it = bench(deliver)
    half, over = uploads.MAX_ACTIVE_BYTES // 2, uploads.MAX_ACTIVE_BYTES * 2
    it.add(half, half, half, over, half, 10)
    it.pump_until_idle(until)
    assert len(it.rank.done) == 6
    assert max(together) == over


def test_while_the_store_is_away_one_try_at_a_time_with_growing_pauses(bench, until) -> None:
    tries, away = [], threading.Event()
    away.set()

    def deliver(folder, record):
        tries.append(it.now)
        if away.is_set():
            raise StoreUnreachable("down")
        return line_of(record)

    it = bench(deliver)
    it.add(*[10] * 6)
    it.queue.pump()
    until(lambda: len(tries) == uploads.CONCURRENCY)

    def step() -> bool:
        it.queue.pump()
        it.now += 0.05 if not it.queue.busy else 0
        return it.now > 125

    until(step)
    first, rest = tries[: uploads.CONCURRENCY], tries[uploads.CONCURRENCY :]
    pauses = [round(after - before, 1) for before, after in zip([first[-1], *rest], rest, strict=False)]
    assert pauses[:5] == pytest.approx([0.5, 1.0, 2.0, 4.0, 5.0], abs=0.11)
    assert len(pauses) < 8
    assert "down" in it.queue.trouble
    away.clear()
    it.now += 10
    it.pump_until_idle(until)
    assert (len(it.rank.done), it.queue.trouble) == (6, None)


@pytest.mark.parametrize("error", [OSError("cannot read"), StoreMisconfigured("entity too large"), ValueError("odd")])
def test_a_trace_that_fails_by_itself_is_lost_after_a_few_tries(bench, until, error) -> None:
    def deliver(folder, record):
        if record.file == "000000.json":
            raise error
        return line_of(record)

    it = bench(deliver)
    it.add(10, 10, 10)
    it.pump_until_idle(until)
    assert it.rank.done == ["000001.json", "000002.json"]
    assert str(error) in it.rank.lost["000000.json"]
