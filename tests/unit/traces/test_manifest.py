"""The manifest's model: tolerant when it reads, one spelling when it writes, a digest that knows no order."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapetrace_contract.reasons import Verdict
from shapetrace_traces.manifest import Manifest, ManifestTrace, digest


def trace(key: str, size_bytes: int = 1) -> dict[str, Any]:
    shape = {"runner": "R", "unit": "bs", "size": 1, "variants": {}}
    return {"key": key, "sha256": "0" * 64, "bytes": size_bytes, "tag": "R__bs_1", "alias": "R_bs_1_rank0"} | {
        "shape": shape,
        "rank": 0,
        "support": {"size": "proven", "variants": {}},
    }


def value(**more: Any) -> dict[str, Any]:
    run = {"namespace": "n", "name": "r", "uid": "u", "attempt": 1}
    return {"v": 1, "run": run, "verdict": "Complete", "digest": "", "engine": {"name": "torch"}, **more}


def test_fields_of_a_newer_writer_are_ignored() -> None:
    newer = value(traces=[{**trace("a"), "new": 1}], new={"a": 1})
    manifest = Manifest.from_bytes(json.dumps(newer).encode())
    assert manifest.verdict is Verdict.COMPLETE
    assert manifest.traces[0].stored_bytes == 1
    assert b'"new"' not in manifest.to_bytes()


def test_what_is_written_reads_back_and_is_written_the_same() -> None:
    body = Manifest.model_validate(value(traces=[trace("a"), trace("b")])).to_bytes()
    assert Manifest.from_bytes(body).to_bytes() == body
    assert json.loads(body)["traces"][0]["bytes"] == 1


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", json.dumps(value(v=2)).encode(), json.dumps(value(verdict="Fine")).encode()]
)
def test_what_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Manifest.from_bytes(body)


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(0, 9)), max_size=6), st.randoms(use_true_random=False))
def test_the_digest_depends_on_the_traces_and_not_on_their_order(
    items: list[tuple[str, int]], order: random.Random
) -> None:
    traces = [ManifestTrace.model_validate(trace(key, size)) for key, size in items]
    turned = list(traces)
    order.shuffle(turned)
    assert digest(traces) == digest(turned)
    assert digest([*traces, ManifestTrace.model_validate(trace("one more"))]) != digest(traces)
