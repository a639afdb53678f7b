"""An engine that serves and has not recorded: how it is noticed, and what is said last of one that died."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import pytest
from shapetrace_contract.reasons import Reason
from shapetrace_launcher import serves as serves_module
from shapetrace_launcher.cause import SILENT_SECONDS, Cause, Exit, Observed, cause_of
from shapetrace_launcher.serves import ASK_SECONDS, Serves, answers
from shapetrace_launcher.words import is_error, last_words

HOOKED: dict[str, Any] = {"hooks": {"engine": "applied"}}


def silent(
    seconds: float | None, records: dict[int, Any], done: dict[int, Any], processes: tuple[dict[str, Any], ...] = ()
) -> Cause | None:
    return cause_of(
        Observed((0, 1), [], records, done, serves_seconds=seconds, engine="SGLang 0.5.23", processes=processes)
    )


@pytest.mark.parametrize("seconds", [None, 0.0, SILENT_SECONDS - 1])
def test_an_engine_that_loads_or_has_just_begun_to_serve_is_waited_for(seconds: float | None) -> None:
    assert silent(seconds, {}, {}) is None


@pytest.mark.parametrize(
    ("records", "done", "processes", "rank", "words"),
    [
        ({}, {}, (), 0, "was loaded in none of its processes"),
        ({0: HOOKED}, {0: {}}, ({"errors": []}, {"errors": ["boom"]}), 1, "is in 2 of its processes: boom"),
        ({0: HOOKED, 1: HOOKED}, {1: {}}, ({},), 0, "rank 0 serves and never said that its graph work is over"),
    ],
)
def test_a_rank_that_is_missed_of_a_serving_engine_is_hooks_not_applied(
    records: dict[int, Any], done: dict[int, Any], processes: tuple[dict[str, Any], ...], rank: int, words: str
) -> None:
    cause = silent(SILENT_SECONDS, records, done, processes)
    assert cause is not None
    assert (cause.reason, cause.rank) == (Reason.HOOKS_NOT_APPLIED, rank)
    assert cause.message.startswith("SGLang 0.5.23: ")
    assert words in cause.message


def test_a_serving_engine_whose_ranks_are_done_is_done() -> None:
    cause = silent(SILENT_SECONDS * 2, {0: HOOKED, 1: HOOKED}, {0: {}, 1: {}})
    assert cause is not None
    assert cause.reason is Reason.DONE


def test_since_when_an_engine_serves_is_asked_now_and_then_until_it_does() -> None:
    asked: list[int] = []
    now = 100.0

    def ask(port: int) -> bool:
        asked.append(port)
        return len(asked) > 1

    serves = Serves(7, lambda: now, ask)
    assert serves.seconds() is None
    assert serves.seconds() is None
    assert asked == [7], "not at every look"
    now += ASK_SECONDS
    assert serves.seconds() == 0
    now += 3
    assert serves.seconds() == 3
    assert asked == [7, 7]
    never = Serves(None, lambda: now, ask)
    assert never.seconds() is None
    assert not never.forever


def served(answer: bytes) -> bool:
    """What is found of a server that answers like this, or of one that only listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError), listening.accept()[0] as connection:
                assert connection.recv(100).startswith(b"GET /shapetrace ")
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        if answer:
            thread.start()
        try:
            return answers(listening.getsockname()[1])
        finally:
            if answer:
                thread.join(60)


def test_an_open_port_that_does_not_answer_is_no_web_server() -> None:
    assert not served(b""), "it listens, and does not answer yet"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else gets it
        assert not answers(closed.getsockname()[1])


def test_any_answer_of_a_web_server_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serves_module, "ANSWER_SECONDS", 60.0)  # the server of this test may have to wait for a core
    assert served(b"HTTP/1.1 404 Not Found\r\n\r\n")
    assert not served(b"SSH-2.0\r\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("RuntimeError: CUDA out of memory", True),
        ("torch.OutOfMemoryError: HIP out of memory", True),
        ("[TP0] ValueError: x", True),
        ("AssertionError", True),
        ("Exception: x", True),
        ("Received sigquit from a child process", False),
        ("an error: of another kind", False),
        ("No Errors: fine", False),
    ],
)
def test_the_end_of_a_traceback_is_told_from_other_lines(line: str, expected: bool) -> None:
    assert is_error(line) is expected


def test_of_many_processes_the_last_error_is_what_is_said() -> None:
    output = b"ValueError: first\nRuntimeError: second\n\nwe end now \x1b[0m\n"
    assert last_words(output, of_many=True) == "RuntimeError: second"
    assert last_words(output, of_many=False) == "we end now [0m"
    assert last_words(b"we end now\n", of_many=True) == "we end now"
    assert last_words(b"", of_many=True) == ""


NOISE = b"USDT:2026-11-30 22:05:26 20816:20816 SyncActivityProfilerHandler.cpp:46] profiler_stop\n"


@pytest.mark.parametrize("of_many", [False, True])
@pytest.mark.parametrize("word", [b"USDT", b"ERROR", b"WARNING", b"INFO", b"STAGE"])
def test_the_profilers_own_log_is_nobodys_last_word(word: bytes, of_many: bool) -> None:
    noise = NOISE.replace(b"USDT", word)
    assert last_words(b"ValueError: x\n" + noise, of_many=of_many) == "ValueError: x"
    assert last_words(noise * 2, of_many=of_many) == ""
    other = noise.replace(b":20816 ", b" ")
    assert last_words(other, of_many=of_many) == other.decode().strip()


def test_an_engine_that_said_nothing_is_told_where_to_look() -> None:
    cause = cause_of(Observed((0,), [Exit("rank 0", (0,), 3)]))
    assert cause is not None
    assert cause.message == "rank 0 ended with exit code 3: printed no error; see logs/pod-0/engine.log.gz"


def test_a_killed_engine_that_said_why_is_not_laid_to_memory() -> None:
    for words, hinted in (("RuntimeError: x", False), ("loading weights", True)):
        cause = cause_of(Observed((0, 1), [Exit("engine", (0, 1), -9, words)]))
        assert cause is not None
        assert ("want of memory" in cause.message) is hinted


def test_the_head_of_vllm_refers_to_the_error_of_the_part_that_died() -> None:
    output = b"""(EngineCore pid=5) ERROR 11-30 16:37:09 [core.py:900] EngineCore failed to start.
(EngineCore pid=5) ValueError: No available memory for the cache blocks.
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
    said = "(EngineCore pid=5) ValueError: No available memory for the cache blocks."
    assert last_words(output, of_many=True) == said
    assert last_words(b"RuntimeError: it failed. See root cause above.", of_many=True).startswith("RuntimeError: it")
