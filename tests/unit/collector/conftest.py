from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from shapetrace_collector.collector import Collector
from shapetrace_collector.configuration import Configuration
from shapetrace_collector.indexing import failed
from shapetrace_contract.progress import RankProgress
from shapetrace_traces.store import Store, open_store


def _load(name: str) -> ModuleType:
    # tests are no packages, so what they share is loaded by its path
    spec = importlib.util.spec_from_file_location(f"shapetrace_tests_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


spool_writer = _load("spool_writer")


@pytest.fixture
def writer() -> ModuleType:
    """The fake engine: writes the spool's records as capture and launcher do."""
    return spool_writer


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What ``condition`` returns once it is true."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s: {condition}")
        time.sleep(0.005)
    return value


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until


class NoIndex:
    """For tests that are not about the index."""

    def __init__(self, name: str, raw_bytes: int) -> None:
        pass

    def feed(self, block: bytes) -> None:
        pass

    def result(self) -> dict[str, Any]:
        return failed("not asked for")

    def close(self) -> None:
        pass


@pytest.fixture
def no_index() -> type[NoIndex]:
    return NoIndex


class Pod:
    """The folders of one pod and what reads and writes them."""

    def __init__(self, folder: Path, ranks: int = 2, **limits: int) -> None:
        self.spool = folder / "spool"
        self.spool.mkdir(parents=True)
        settings = {"kind": "folder", "path": str(folder / "objects")}
        self.environment = spool_writer.environment(self.spool, settings, ranks=ranks, **limits)
        self.configuration = Configuration.from_environment(self.environment)
        self.store: Store = open_store(self.configuration.store, self.configuration.run, self.environment)
        self.ranks = [spool_writer.FakeRank(self.spool, rank) for rank in range(ranks)]

    def part(self, rank: int) -> dict[str, Any]:
        return json.loads(self.store.get(f"parts/{rank:05d}.json"))

    def parts(self) -> dict[str, bytes]:
        return {item.key: self.store.get(item.key) for item in self.store.list("parts/")}

    def drained(self) -> dict[str, Any] | None:
        return spool_writer.read_drained(self.spool)

    def stop(self, reason: str = "Done", message: str = "") -> None:
        spool_writer.stop(self.spool, reason, message)


class Running:
    """A collector in a thread of the test."""

    def __init__(self, pod: Pod, store: Store | None = None, exit_when_drained: bool = True, **options: Any) -> None:
        options = {"start_index": NoIndex, **options}
        self.collector = Collector(pod.configuration, store or pod.store, **options)
        self.result: bool | None = None
        self._thread = threading.Thread(target=self._run, args=(exit_when_drained,), daemon=True)
        self._thread.start()

    def _run(self, exit_when_drained: bool) -> None:
        self.result = self.collector.run(exit_when_drained)

    def rank(self, rank: int) -> RankProgress:
        return self.collector.progress()[rank]

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, seconds: float = 60.0) -> bool:
        self._thread.join(seconds)
        assert self.ended, "the collector does not end"
        assert self.result is not None, "the collector died"
        return self.result


@pytest.fixture
def make_pod(tmp_path: Path) -> Callable[..., Pod]:
    numbers = iter(range(1000))
    return lambda **options: Pod(tmp_path / f"pod-{next(numbers)}", **options)


@pytest.fixture
def pod(make_pod: Callable[..., Pod]) -> Pod:
    return make_pod()


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    """Starts a collector in a thread, and ends it with the test."""
    started: list[Running] = []

    def start(pod: Pod, **options: Any) -> Running:
        started.append(Running(pod, **options))
        return started[-1]

    yield start
    for running in started:
        running.collector.terminate()


class CollectorProcess:
    """``python3 -m shapetrace_collector`` as a pod starts it."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "shapetrace_collector", "--host", "127.0.0.1", "--port", "0", *arguments]
        self.log_path = Path(environment["SHAPETRACE_SPOOL"]).parent / "collector.log"
        with self.log_path.open("ab") as log:
            self._begin = log.tell()
            self.process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    @property
    def log(self) -> str:
        return self.log_path.read_bytes()[self._begin :].decode()

    def port(self) -> int:
        words = wait_until(lambda: self.process.poll() is not None or "progress on port " in self.log)
        assert words
        return int(self.log.partition("progress on port ")[2].partition(",")[0])

    def get(self, path: str = "/progress") -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port()}{path}", timeout=30) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            return json.load(answer)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float = 120.0) -> int:
        """Exit code. A store that stood still costs its clients a timeout and a pause before they ask again."""
        return self.process.wait(seconds)


@pytest.fixture
def start_process() -> Iterator[Callable[..., CollectorProcess]]:
    started: list[CollectorProcess] = []

    def start(environment: dict[str, str], *arguments: str) -> CollectorProcess:
        started.append(CollectorProcess(environment, *arguments))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.kill()


@pytest.fixture
def seed() -> int:
    """Printed, and repeatable by SHAPETRACE_TEST_SEED."""
    value = int(os.environ.get("SHAPETRACE_TEST_SEED") or int.from_bytes(os.urandom(4)))
    print(f"SHAPETRACE_TEST_SEED={value}")
    return value
