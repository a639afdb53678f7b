"""`make demo`, as README promises it: 32 of 32 traces, each what its name says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/cluster/support"), str(ROOT / "tests/localcluster")]

import s3 as objectstore  # noqa: E402
from independent import differences  # noqa: E402

pytestmark = [pytest.mark.cluster, pytest.mark.disruptive, pytest.mark.timeout(1800)]


def kubectl(*arguments: str) -> str:
    script = [str(ROOT / "tests/localcluster/cluster"), "kubectl", "-n", "shapetrace-demo", *arguments]
    return subprocess.run(script, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_demo_delivers_32_proven_traces() -> None:
    done = subprocess.run(["make", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    out = ROOT / "demo-out"
    manifest = json.loads((out / "manifest.json").read_text())
    assert len(manifest["traces"]) == 32
    for trace in manifest["traces"]:
        assert trace["support"]["size"] == "proven", trace["key"]
        assert set(trace["support"]["variants"]) == {"lora", "attention"}
        assert set(trace["support"]["variants"].values()) <= {"proven", "distinct"}, trace["key"]
    assert differences(out) == []
    columns = kubectl("get", "prun", "quickstart", "--no-headers").split()
    assert columns[1:5] == ["Succeeded", "Complete", "32/32", "2/2"]
    run = json.loads(kubectl("get", "prun", "quickstart", "-o", "json"))
    assert [entry["rank"] for entry in run["status"]["ranks"]] == [0, 1]
    # every SHA-256 of the manifest is that of the object in the bucket, read anew
    store = objectstore.shared()
    bucket, _, key = run["status"]["manifest"]["uri"].removeprefix("s3://").partition("/")
    folder = key.removesuffix("manifest.json")
    client = store.admin_client()
    assert (
        hashlib.sha256(client.get_object(Bucket=bucket, Key=key)["Body"].read()).hexdigest()
        == run["status"]["manifest"]["sha256"]
    )
    for trace in manifest["traces"]:
        body = client.get_object(Bucket=bucket, Key=folder + trace["key"])["Body"].read()
        assert hashlib.sha256(body).hexdigest() == trace["sha256"], trace["key"]
    assert "proven" in done.stdout, "the table of shapes x ranks is printed"
