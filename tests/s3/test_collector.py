"""The collector's own process against a real S3 server, with outages and kills."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import threading
import time

SIZES = (1, 2, 4, 8)


def write_all(pod, writer, sizes=SIZES, pace_seconds=0.0) -> None:
    """What an engine does, from its start to the launcher's stopped.json."""
    for rank in pod.ranks:
        rank.load()
        rank.plan([writer.shape(size) for size in sizes])
    for size in sizes:
        for rank in pod.ranks:
            rank.capture(writer.shape(size))
        time.sleep(pace_seconds)
    for rank in pod.ranks:
        rank.done()
    (pod.spool / "engine.log").write_text("loaded\n")
    pod.stop()


def check(pod, sizes=SIZES) -> dict[str, bytes]:
    """Every trace is there once, whole, and listed; the objects."""
    objects = pod.objects()
    assert pod.drained() == {"v": 1, "ok": True, "missing": 0, "parts": ["parts/00000.json", "parts/00001.json"]}
    listed = []
    for rank in (0, 1):
        part = json.loads(objects[f"parts/{rank:05d}.json"])
        assert (part["missing"], part["lost"], part["orphans"]) == (0, [], [])
        for trace in part["traces"]:
            stored = objects[trace["key"]]
            assert hashlib.sha256(stored).hexdigest() == trace["sha256"]
            assert json.loads(gzip.decompress(stored))["shapetrace"]["tag"] == trace["tag"]
            assert trace["index"]["metadata"]["tag"] == trace["tag"]
        listed += [trace["key"] for trace in part["traces"]]
    assert sorted(listed) == sorted(key for key in objects if key.startswith("traces/"))
    assert len(listed) == 2 * len(sizes)
    assert all(not list(rank.folder.glob("[0-9]*.json")) for rank in pod.ranks)
    return objects


def test_a_run_from_the_first_record_to_the_end(pod, writer, start_process, until) -> None:
    collector = start_process(pod.environment)
    waiting = {"state": "Waiting", "captured": 0, "uploaded": 0, "failed": 0, "bytes": 0}
    place = {"node": "node-a", "pod": "run-pod"}
    assert collector.get() == {"v": 1, "ranks": [{"rank": rank, **waiting, **place} for rank in (0, 1)]}
    write_all(pod, writer)
    until(pod.drained)
    objects = check(pod)
    assert gzip.decompress(objects["logs/pod-0/engine.log.gz"]) == b"loaded\n"
    states = [(rank["state"], rank["uploaded"], rank["expected"]) for rank in collector.get()["ranks"]]
    assert states == [("Done", 4, 4), ("Done", 4, 4)]
    assert collector.process.poll() is None, "a sidecar stays until it is told to end"
    collector.terminate()
    assert collector.wait() == 0
    secret = pod.environment["AWS_SECRET_ACCESS_KEY"]
    assert secret not in collector.log
    assert f"stored traces/rank-00000/{writer.shape(1).tag}.json.gz" in collector.log


def test_killed_at_random_moments_the_end_is_that_of_a_quiet_run(make_pod, writer, start_process, seed) -> None:
    chance = random.Random(seed)
    quiet, pod = make_pod(), make_pod()
    sizes = tuple(range(1, 13))
    write_all(quiet, writer, sizes)
    assert start_process(quiet.environment, "--exit-when-drained").wait() == 0
    engine = threading.Thread(target=write_all, args=(pod, writer, sizes, 0.1))
    engine.start()
    for _ in range(3):
        collector = start_process(pod.environment)
        collector.port()
        time.sleep(chance.uniform(0, 0.4))  # the moment of the kill is what is random here
        collector.kill()
    collector = start_process(pod.environment, "--exit-when-drained")
    engine.join()
    assert collector.wait() == 0
    assert check(pod, sizes) == quiet.objects()


def test_refused_connections_during_capture_lose_nothing(make_pod, writer, start_process, proxy, until) -> None:
    pod = make_pod(endpoint=proxy.endpoint)
    collector = start_process(pod.environment, "--exit-when-drained")
    pod.ranks[0].capture(writer.shape(99))
    until(lambda: collector.get()["ranks"][0]["uploaded"] == 1)
    proxy.refuse()
    pod.ranks[0].capture(writer.shape(98))
    until(lambda: "uploads wait" in collector.get()["ranks"][0].get("message", ""))
    write_all(pod, writer)
    until(lambda: collector.get()["ranks"][1]["state"] == "Draining")
    assert collector.get()["ranks"][0]["uploaded"] == 1
    proxy.open()
    assert collector.wait() == 0
    objects = pod.objects()
    assert len([key for key in objects if key.startswith("traces/")]) == 10
    assert "the store answers again" in collector.log


def test_a_write_whose_answer_was_lost_is_recognised_as_ours(make_pod, writer, start_process, proxy, until) -> None:
    pod = make_pod(endpoint=proxy.endpoint)
    collector = start_process(pod.environment, "--exit-when-drained")
    collector.port()
    proxy.lose_answers()
    pod.ranks[0].capture(writer.shape(SIZES[0]))
    # stored, and stored again in vain: the collector has not heard of either
    until(lambda: proxy.lost_answers >= 2 and len(pod.objects()) == 1)
    assert collector.get()["ranks"][0]["uploaded"] == 0
    proxy.open()
    for size in SIZES[1:]:
        pod.ranks[0].capture(writer.shape(size))
    for size in SIZES:
        pod.ranks[1].capture(writer.shape(size))
    for rank in pod.ranks:
        rank.done()
    pod.stop()
    assert collector.wait() == 0
    check(pod)


def test_a_server_that_stands_still_for_a_while_loses_nothing(pod, writer, start_process, server, until) -> None:
    collector = start_process(pod.environment, "--exit-when-drained")
    collector.port()
    server.pause()
    try:
        write_all(pod, writer)
        until(lambda: [rank["captured"] for rank in collector.get()["ranks"]] == [4, 4])
        assert [rank["uploaded"] for rank in collector.get()["ranks"]] == [0, 0]
    finally:
        server.resume()
    assert collector.wait() == 0
    check(pod)


def test_when_the_launcher_died_sigterm_still_gets_everything_stored(pod, writer, start_process, until) -> None:
    collector = start_process(pod.environment)
    for rank in pod.ranks:
        rank.plan([writer.shape(size) for size in SIZES])
        rank.capture(writer.shape(1))
    until(lambda: [rank["captured"] for rank in collector.get()["ranks"]] == [1, 1])
    for rank in pod.ranks:
        rank.capture(writer.shape(2))
    collector.terminate()
    collector.terminate()
    assert collector.wait() == 0
    objects = pod.objects()
    for rank in (0, 1):
        part = json.loads(objects[f"parts/{rank:05d}.json"])
        assert [trace["tag"] for trace in part["traces"]] == [writer.shape(1).tag, writer.shape(2).tag]
        assert (part["stopped"], part["done"]) == (None, None)


def test_credentials_that_do_not_hold_are_shown_and_end_with_the_time(make_pod, writer, start_process) -> None:
    pod = make_pod(identity="wrong secret", limits={"uploadTimeoutSeconds": 2})
    pod.ranks[0].capture(writer.shape(1))
    pod.ranks[0].done()
    pod.stop()
    collector = start_process(pod.environment, "--exit-when-drained")
    assert collector.wait() == 52
    assert pod.drained() == {"v": 1, "ok": False, "missing": 1, "parts": []}
    assert pod.environment["AWS_SECRET_ACCESS_KEY"] not in collector.log
    assert "does not accept the credentials" in collector.log
    left = json.loads((pod.spool / "termination-log").read_text())
    assert (left["reason"], left["drained"]) == ("UploadTimeout", False)
