"""The finish of runs whose ranks did not plan alike: they do not succeed, and the message says whose plan differs."""

from __future__ import annotations

from typing import Any

from shapetrace_contract.reasons import Verdict


def test_a_rank_with_a_shorter_plan_makes_the_run_partial(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, attempt.shapes[:-1])
    attempt.finish()
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert [item.verdict for item in attempt.manifest.ranks] == [Verdict.COMPLETE, Verdict.PARTIAL]
    said = f"rank 1: did not plan {attempt.shapes[-1].tag}, which rank 0 did"
    assert said in attempt.manifest.reasons
    assert said in attempt.log.read_text()


def test_an_eager_rank_beside_one_with_graphs_makes_the_run_partial(attempt: Any) -> None:
    attempt.put_rank(0)
    done = {"records": 0, "ok": True, "reason": "Done", "eager": "--disable-cuda-graph"}
    attempt.put_rank(1, [], plan=[], done=done)
    attempt.finish()
    assert attempt.manifest.verdict is Verdict.PARTIAL
    assert f"rank 1: planned no graph, though rank 0 planned {len(attempt.shapes)}" in attempt.log.read_text()
