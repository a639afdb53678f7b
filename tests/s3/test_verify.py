"""`shapetrace verify` on a real S3 server."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import open_store


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(f"shapetrace_tests_{path.stem}_for_verify", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


made = _load(Path(__file__).parents[1] / "unit" / "cli" / "attempts.py")
shapetrace = _load(Path(__file__).with_name("test_fetch.py")).shapetrace
RUN = RunId(namespace="profiling", name="demo", uid=made.UID, attempt=1)


@pytest.fixture
def store(server, prefix, identities, tmp_path: Path):
    """An attempt in the bucket: two ranks, two sizes, stored as the collector stores."""
    root = tmp_path / "attempt"
    entries = [made.entry(root, rank, size) for rank in (0, 1) for size in (1, 2)]
    made.write(root, entries)
    found = open_store(StoreSettings(**server.settings(prefix=prefix)), RUN, identities["writer"])
    for entry in entries:
        metadata = {"shapetrace-run": made.UID, "shapetrace-attempt": "1", "shapetrace-rank": str(entry["rank"])}
        metadata |= {"shapetrace-tag": entry["tag"], "shapetrace-raw-sha256": entry["rawSha256"]}
        found.put(entry["key"], root / entry["key"], metadata=metadata)
    found.put("manifest.json", root / "manifest.json")
    return found


@pytest.fixture
def address(store, prefix: str) -> str:
    return f"s3://traces/{prefix}/profiling/demo/{made.UID}/attempt-1/"


def test_what_is_stored_is_verified_where_it_is(server, identities, address: str) -> None:
    done = shapetrace(server, identities["reader"], "verify", address)
    assert (done.returncode, done.stdout) == (0, "profiling/demo attempt 1: Complete, 4 of 4 traces verified\n")


def test_what_was_replaced_removed_or_came_late_is_named(server, identities, store, address: str) -> None:
    traces = [info.key for info in store.list("traces/")]
    content = store.get(traces[0])
    store.delete(traces[0])
    store.put(traces[0], content, metadata={"shapetrace-rank": "7"})
    store.delete(traces[1])
    store.put("traces/rank-00001/late.json.gz", b"late")
    done = shapetrace(server, identities["reader"], "verify", address, "-o", "json")
    value = json.loads(done.stdout)
    assert (done.returncode, value["verified"]) == (1, 2)
    assert [(item["key"], item["missing"]) for item in value["wrong"]] == [(traces[0], False), (traces[1], True)]
    assert value["wrong"][0]["faults"] == ["its object says shapetrace-rank 7"]
    assert value["late"] == ["traces/rank-00001/late.json.gz"]


def test_a_refusal_is_no_verdict(server, identities, address: str) -> None:
    done = shapetrace(server, identities["wrong secret"], "verify", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: could not")
