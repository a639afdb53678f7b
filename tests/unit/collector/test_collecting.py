"""From the spool to the store: the whole collector against a folder and a fake engine."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
from shapetrace_traces.store import ObjectExists, StoreUnreachable


def test_every_trace_is_delivered_listed_and_taken_off_the_spool(pod, run, writer) -> None:
    shapes = [writer.shape(size, lora=lora) for size in (1, 2) for lora in ("lora", "nolora")]
    running = run(pod)
    for rank in pod.ranks:
        rank.load()
        rank.plan(shapes)
        for shape in shapes:
            rank.capture(shape)
        rank.done()
    pod.stop()
    assert running.join() is True
    assert pod.drained() == {"v": 1, "ok": True, "missing": 0, "parts": ["parts/00000.json", "parts/00001.json"]}
    for rank in (0, 1):
        part = pod.part(rank)
        assert [trace["tag"] for trace in part["traces"]] == sorted(shape.tag for shape in shapes)
        assert (part["lost"], part["orphans"], part["missing"]) == ([], [], 0)
        assert part["done"]["records"] == 4
        assert part["stopped"]["reason"] == "Done"
        assert part["record"]["rank"] == rank
        for trace in part["traces"]:
            stored = pod.store.get(trace["key"])
            raw = gzip.decompress(stored)
            assert hashlib.sha256(stored).hexdigest() == trace["sha256"]
            assert hashlib.sha256(raw).hexdigest() == trace["rawSha256"]
            assert (len(stored), len(raw)) == (trace["bytes"], trace["rawBytes"])
            assert json.loads(raw)["shapetrace"]["tag"] == trace["tag"]
            assert trace["key"] == f"traces/rank-{rank:05d}/{trace['tag']}.json.gz"
            assert dict(pod.store.head(trace["key"]).metadata) == {
                "shapetrace-run": "u-1",
                "shapetrace-attempt": "1",
                "shapetrace-rank": str(rank),
                "shapetrace-tag": trace["tag"],
                "shapetrace-raw-sha256": trace["rawSha256"],
            }
        assert list(pod.ranks[rank].folder.glob("[0-9]*.json")) == []


def test_the_states_of_a_rank_from_waiting_to_done(pod, run, writer, until) -> None:
    shapes = [writer.shape(1), writer.shape(2)]
    running = run(pod)
    first = pod.ranks[0]

    def state() -> str:
        entry = running.rank(0)
        assert entry.uploaded <= entry.captured
        return entry.state

    assert state() == "Waiting"
    assert running.rank(0).expected is None
    first.load()
    until(lambda: state() == "Loading")
    first.plan(shapes)
    until(lambda: state() == "Capturing")
    first.capture(shapes[0])
    until(lambda: running.rank(0).uploaded == 1)
    entry = running.rank(0)
    assert (entry.expected, entry.captured, entry.failed, entry.lastShape) == (2, 1, 0, shapes[0].tag)
    assert (entry.pod, entry.node) == ("run-pod", "node-a")
    assert entry.bytes == pod.store.head(f"traces/rank-00000/{shapes[0].tag}.json.gz").bytes
    first.lose(shapes[1])
    until(lambda: running.rank(0).failed == 1)
    first.done()
    until(lambda: state() == "Done")
    assert running.rank(1).state == "Waiting"


def test_a_rank_that_is_not_asked_for_expects_nothing(pod, run, until) -> None:
    running = run(pod)
    pod.ranks[1].load(asked=False)
    until(lambda: running.rank(1).expected == 0)
    pod.ranks[1].done()
    until(lambda: running.rank(1).state == "Done")
    assert running.rank(0).expected is None


def test_a_rank_without_graphs_expects_nothing_once_it_said_so(pod, run, until) -> None:
    running = run(pod)
    pod.ranks[0].load()
    until(lambda: running.rank(0).state == "Loading")
    assert running.rank(0).expected is None
    pod.ranks[0].done(eager="enforce_eager")
    until(lambda: running.rank(0).state == "Done")
    assert running.rank(0).expected == 0


def test_a_rank_that_died_is_failed_with_the_first_cause_and_its_traces_are_kept(pod, run, writer) -> None:
    for rank in pod.ranks:
        rank.load()
        rank.plan([writer.shape(1), writer.shape(2)])
        rank.capture(writer.shape(1))
    pod.stop("EngineFailed", "rank 1 was killed by signal 9")
    running = run(pod)
    assert running.join() is True  # whether all that was recorded is stored, not whether all was captured
    assert running.rank(1).state == "Failed"
    assert running.rank(1).message == "rank 1 was killed by signal 9"
    part = pod.part(1)
    assert part["done"] is None
    assert part["stopped"]["reason"] == "EngineFailed"
    assert [trace["tag"] for trace in part["traces"]] == [writer.shape(1).tag]


def test_a_rank_that_never_came_has_a_part_that_says_so(pod, run) -> None:
    pod.stop("EngineFailed", "no module named x")
    assert run(pod).join() is True
    part = pod.part(1)
    assert (part["record"], part["plan"], part["done"], part["traces"]) == (None, [], None, [])
    assert part["stopped"]["message"] == "no module named x"


def test_losses_are_listed_with_their_reason(pod, run, writer) -> None:
    rank = pod.ranks[0]
    rank.load()
    rank.lose(writer.shape(1), "no room in the spool")
    rank.line(writer.shape(2), "000009.json", 10)  # the file is gone
    rank.line(writer.shape(4), "../../etc/passwd", 10)
    rank.capture(writer.shape(8), dirty=["profiled twice"])
    rank.trace_file(b"{}")  # a rank that was killed before its line
    rank.done(records=6)  # and one line that never came
    pod.stop()
    assert run(pod).join() is False
    part = pod.part(0)
    assert {entry["tag"]: entry["error"] for entry in part["lost"]} == {
        writer.shape(1).tag: "no room in the spool",
        writer.shape(2).tag: "the trace's file is gone",
        writer.shape(4).tag: "the record's file '../../etc/passwd' is no trace of this rank",
    }
    assert [(trace["tag"], trace["dirty"]) for trace in part["traces"]] == [(writer.shape(8).tag, ["profiled twice"])]
    assert part["orphans"] == ["000004.json"]
    assert part["missing"] == 3
    assert pod.drained()["ok"] is False
    assert pod.drained()["missing"] == 3


def test_a_corrupt_trace_is_stored_as_it_is(pod, run, writer, until) -> None:
    from shapetrace_collector.indexing import Indexer

    indexer = Indexer(pod.environment, workers=1)
    rank = pod.ranks[0]
    rank.capture(writer.shape(1), b'{"traceEvents": [{"ph"')
    rank.capture(writer.shape(2))
    rank.capture(writer.shape(4), b"")
    rank.done()
    pod.stop()
    assert run(pod, start_index=indexer.start).join() is True
    indexer.close()
    first, second, third = pod.part(0)["traces"]
    assert gzip.decompress(pod.store.get(first["key"])) == b'{"traceEvents": [{"ph"'
    assert "not JSON" in first["index"]["error"]
    assert (second["index"]["error"], second["index"]["metadata"]["tag"]) == (None, writer.shape(2).tag)
    assert third["rawBytes"] == 0
    assert third["index"]["error"]


def test_a_key_that_holds_something_else_is_kept_and_the_trace_counts_as_lost(pod, run, writer) -> None:
    key = f"traces/rank-00000/{writer.shape(1).tag}.json.gz"
    pod.store.put(key, b"foreign")
    pod.ranks[0].capture(writer.shape(1))
    pod.ranks[0].capture(writer.shape(2))
    pod.ranks[0].done()
    pod.stop()
    running = run(pod)
    assert running.join() is False
    assert pod.store.get(key) == b"foreign"
    assert [entry["error"] for entry in pod.part(0)["lost"]] == [
        f"another object has the key {key} already; it was kept"
    ]
    assert (running.rank(0).failed, running.rank(0).uploaded) == (1, 1)


def test_two_records_of_one_key_keep_the_first(pod, run, writer) -> None:
    first = writer.raw_trace(writer.shape(1), 0, operators=3)
    pod.ranks[0].capture(writer.shape(1), first)
    pod.ranks[0].capture(writer.shape(1), writer.raw_trace(writer.shape(1), 0, operators=5))
    pod.ranks[0].done()
    pod.stop()
    assert run(pod).join() is True
    part = pod.part(0)
    assert [trace["rawSha256"] for trace in part["traces"]] == [hashlib.sha256(first).hexdigest()]
    assert "an earlier record" in part["lost"][0]["error"]


def test_the_engines_log_is_stored_and_only_its_tail_where_it_is_long(pod, run, monkeypatch) -> None:
    from shapetrace_collector import ending

    monkeypatch.setattr(ending, "MAX_LOG_BYTES", 100)
    lines = [f"line {number:03d}\n" for number in range(50)]
    (pod.spool / "engine.log").write_text("".join(lines))
    pod.stop()
    assert run(pod).join() is True
    assert gzip.decompress(pod.store.get("logs/pod-0/engine.log.gz")).decode() == "".join(lines[-11:])


def test_process_records_travel_in_every_part(pod, run, writer) -> None:
    for pid in (12, 7):
        (pod.spool / f"process-{pid}.json").write_text(json.dumps({"v": 1, "pid": pid}))
    (pod.spool / "process-x.json").write_text("{}")
    pod.stop()
    assert run(pod).join() is True
    assert [process["pid"] for process in pod.part(0)["processes"]] == [7, 12]
    assert pod.part(1)["processes"] == pod.part(0)["processes"]


def test_a_second_process_of_a_rank_goes_on_after_the_first_was_done(pod, run, writer, until) -> None:
    running = run(pod)
    rank = pod.ranks[0]
    for size in (1, 2):
        rank.plan([writer.shape(size)])
        rank.capture(writer.shape(size))
        rank.done()
        until(lambda size=size: running.rank(0).uploaded == size and running.rank(0).state == "Done")
    pod.stop()
    assert running.join() is True
    assert pod.part(0)["done"]["records"] == 2
    assert (pod.part(0)["missing"], len(pod.part(0)["traces"])) == (0, 2)


def test_a_collector_that_starts_again_writes_the_same_and_unlinks_what_was_left(pod, run, writer) -> None:
    left = [pod.ranks[0].capture(writer.shape(size)) for size in (1, 2)]
    kept = left[0].read_bytes()
    pod.ranks[0].done()
    pod.stop()
    assert run(pod).join() is True
    before = pod.parts()
    left[0].write_bytes(kept)  # killed between the line and the unlink
    assert run(pod).join() is True
    assert pod.parts() == before
    assert not left[0].exists()


@pytest.mark.parametrize("where", ["before the line", "in the line"])
def test_an_object_that_was_stored_before_the_line_was_counts_as_delivered(pod, make_pod, run, writer, where) -> None:
    quiet = make_pod()
    for each in (pod, quiet):
        each.ranks[0].capture(writer.shape(1))
        each.ranks[0].done()
        each.stop()
    assert run(quiet).join() is True
    raw = writer.raw_trace(writer.shape(1), 0)
    (key,) = [item.key for item in quiet.store.list("traces/")]
    # another level of compression stands for another version of the library: the stored bytes are what counts
    pod.store.put(key, gzip.compress(raw, 9, mtime=0), metadata=quiet.store.head(key).metadata)
    if where == "in the line":
        (pod.ranks[0].folder / "uploaded.jsonl").write_text('{"seq": 0, "file": "000000.json", "ke')
    assert run(pod).join() is True
    (trace,) = pod.part(0)["traces"]
    assert trace["sha256"] == hashlib.sha256(gzip.compress(raw, 9, mtime=0)).hexdigest() == pod.store.head(key).sha256


class Flaky:
    """A store whose writes fail while ``away`` is set; everything else goes to the real one."""

    def __init__(self, store, away=lambda key: True) -> None:
        self._store = store
        self.away = away
        self.tries = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, key, *arguments, **options):
        self.tries += 1
        if self.away(key):
            raise StoreUnreachable(f"could not write {key}: the store is down")
        return self._store.put(key, *arguments, **options)


def test_an_outage_is_waited_out_and_shown(pod, run, writer, until) -> None:
    store = Flaky(pod.store)
    running = run(pod, store=store)
    for size in (1, 2, 4):
        pod.ranks[0].capture(writer.shape(size))
    until(lambda: running.rank(0).message)
    assert "uploads wait" in running.rank(0).message
    assert running.rank(0).uploaded == 0
    pod.ranks[0].done()
    pod.stop()
    until(lambda: running.rank(0).state == "Draining")
    store.away = lambda key: False
    assert running.join() is True
    assert len(pod.part(0)["traces"]) == 3
    assert running.rank(0).message is None


def test_when_the_time_is_over_the_parts_say_what_is_missing(make_pod, run, writer, until) -> None:
    pod = make_pod(uploadTimeoutSeconds=2)
    store = Flaky(pod.store, away=lambda key: key.endswith("bs_2.json.gz"))
    running = run(pod, store=store)
    for size in (1, 2, 4):
        pod.ranks[0].capture(writer.shape(size))
    pod.ranks[0].done()
    until(lambda: running.rank(0).uploaded == 2)
    pod.stop()
    assert running.join() is False
    part = pod.part(0)
    assert [trace["tag"] for trace in part["traces"]] == [writer.shape(1).tag, writer.shape(4).tag]
    assert [entry["tag"] for entry in part["lost"]] == [writer.shape(2).tag]
    assert part["missing"] == 1
    assert pod.drained() == {"v": 1, "ok": False, "missing": 1, "parts": ["parts/00000.json", "parts/00001.json"]}
    assert running.rank(0).state == "Failed"


def test_after_the_launcher_gave_up_a_store_that_comes_back_still_gets_everything(make_pod, run, writer, until) -> None:
    pod = make_pod(uploadTimeoutSeconds=2)
    store = Flaky(pod.store)
    pod.ranks[0].capture(writer.shape(1))
    pod.ranks[0].done()
    pod.stop()
    running = run(pod, store=store, exit_when_drained=False)
    assert until(pod.drained) == {"v": 1, "ok": False, "missing": 1, "parts": []}
    store.away = lambda key: False
    until(lambda: pod.drained()["ok"])
    assert len(pod.part(0)["traces"]) == 1
    running.collector.terminate()
    assert running.join() is True


def test_sigterm_without_stopped_json_writes_the_parts(pod, run, writer) -> None:
    running = run(pod, exit_when_drained=False)
    pod.ranks[0].capture(writer.shape(1))
    running.collector.terminate()
    running.collector.terminate()
    assert running.join() is True
    part = pod.part(0)
    assert (part["stopped"], part["done"], len(part["traces"])) == (None, None, 1)
    assert running.rank(0).message == "the engine ended before this rank was done"


def test_sigterm_during_an_outage_ends_within_the_grace(make_pod, run, writer) -> None:
    pod = make_pod(disruptionGraceSeconds=2)
    store = Flaky(pod.store, away=lambda key: key.startswith("traces/"))
    running = run(pod, store=store, exit_when_drained=False)
    pod.ranks[0].capture(writer.shape(1))
    running.collector.terminate()
    assert running.join(30) is False  # the grace of 2 s, on a machine that may be busy
    assert pod.part(0)["missing"] == 1


def test_a_part_that_differs_is_kept_and_decides(pod, run, writer) -> None:
    pod.store.put("parts/00000.json", b'{"missing": 2, "traces": []}')
    pod.ranks[0].capture(writer.shape(1))
    pod.ranks[0].done()
    pod.stop()
    assert run(pod).join() is False
    assert pod.part(0) == {"missing": 2, "traces": []}
    assert pod.drained()["missing"] == 2


def test_one_trace_that_the_store_never_takes_does_not_hold_up_the_others(pod, run, writer, until) -> None:
    store = Flaky(pod.store, away=lambda key: key.endswith("bs_1.json.gz"))
    running = run(pod, store=store)
    for size in (1, 2, 4, 8):
        pod.ranks[0].capture(writer.shape(size))
    until(lambda: running.rank(0).uploaded == 3)


def test_a_symbolic_link_is_never_followed(pod, run, writer, tmp_path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"token": "s3cr3t"}')
    rank = pod.ranks[0]
    rank.load()
    (rank.folder / "000000.json").symlink_to(secret)
    rank.line(writer.shape(1), "000000.json", 10)
    (rank.folder / "done.json").symlink_to(secret)
    (pod.spool / "engine.log").symlink_to(secret)
    pod.ranks[1].folder.symlink_to(tmp_path)
    pod.stop()
    assert run(pod).join() is False
    assert all(b"s3cr3t" not in pod.store.get(item.key) for item in pod.store.list())
    assert [item.key for item in pod.store.list("traces/")] == []


def test_replays_have_a_folder_of_their_own(pod, run, writer) -> None:
    pod.ranks[0].capture(writer.shape(1))
    pod.ranks[0].capture(writer.shape(1), stage="replay")
    pod.ranks[0].done()
    pod.stop()
    assert run(pod).join() is True
    assert [trace["key"] for trace in pod.part(0)["traces"]] == [
        f"traces/rank-00000/{writer.shape(1).tag}.json.gz",
        f"replay/rank-00000/{writer.shape(1).tag}.json.gz",
    ]


def test_nothing_is_ever_overwritten(pod, run, writer) -> None:
    pod.ranks[0].capture(writer.shape(1))
    pod.ranks[0].done()
    pod.stop()
    assert run(pod).join() is True
    for item in list(pod.store.list()):
        with pytest.raises(ObjectExists):
            pod.store.put(item.key, b"")
