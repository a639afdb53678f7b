"""`shapetrace fetch` and `show` from a real S3 server, with a person's own credentials."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from shapetrace_contract.settings import RunId, StoreSettings
from shapetrace_traces.store import open_store


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(f"shapetrace_tests_cli_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


attempts = _load(Path(__file__).parents[1] / "unit" / "cli" / "attempts.py")
RUN = RunId(namespace="profiling", name="demo", uid=attempts.UID, attempt=1)


@pytest.fixture
def address(server, prefix, identities, tmp_path: Path) -> str:
    """An attempt in the bucket, made from the folder ``tmp_path/attempt``."""
    attempts.make_attempt(tmp_path / "attempt")
    store = open_store(StoreSettings(**server.settings(prefix=prefix)), RUN, identities["writer"])
    for name, body in attempts.files(tmp_path / "attempt").items():
        store.put(name, body)
    return f"s3://traces/{prefix}/profiling/demo/{attempts.UID}/attempt-1/"


def shapetrace(server, who: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-m", "shapetrace_cli", *map(str, arguments), "--endpoint", server.endpoint],
        env={**clean, **who},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_reader_gets_every_object_verified(server, identities, address: str, tmp_path: Path) -> None:
    done = shapetrace(server, identities["reader"], "fetch", address, tmp_path / "out", "--parts")
    assert done.returncode == 0, done.stderr
    assert attempts.files(tmp_path / "out") == attempts.files(tmp_path / "attempt")
    assert "8 of 8 traces" in done.stderr
    again = shapetrace(server, identities["reader"], "fetch", address, tmp_path / "out")
    assert "(8 were there)" in again.stderr
    shown = shapetrace(server, identities["reader"], "show", address)
    assert "Complete, 8/8 traces, 2 ranks" in shown.stdout


def test_an_object_that_was_replaced_or_removed_is_named(
    server, identities, prefix: str, address: str, tmp_path: Path
) -> None:
    traces = sorted(name for name in attempts.files(tmp_path / "attempt") if name.startswith("traces/"))
    folder = f"{prefix}/profiling/demo/{attempts.UID}/attempt-1"
    server.client().put_object(Bucket="traces", Key=f"{folder}/{traces[0]}", Body=b"something else")
    server.client().delete_object(Bucket="traces", Key=f"{folder}/{traces[1]}")
    done = shapetrace(server, identities["reader"], "fetch", address, tmp_path / "out")
    assert done.returncode == 1
    assert re.search(rf"{re.escape(traces[0])}: size: ", done.stderr), done.stderr
    assert f"{traces[1]}: missing" in done.stderr
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("who", ["wrong secret", "unknown key"])
def test_a_refusal_is_a_sentence_without_a_secret(server, identities, address: str, tmp_path: Path, who: str) -> None:
    done = shapetrace(server, identities[who], "fetch", address, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.startswith("error: could not")
    assert "Traceback" not in done.stderr
    assert "put" not in done.stderr, "it only reads"
    assert "403 403" not in done.stderr
    assert "the store does not accept the credentials" in done.stderr
    assert identities[who]["AWS_SECRET_ACCESS_KEY"] not in done.stderr + done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "who",
    [{}, {"AWS_PROFILE": "nobody"}, {"AWS_ACCESS_KEY_ID": "half"}],
    ids=["none", "a profile that is not there", "half of them"],
)
def test_a_person_without_credentials_is_told_what_to_set(
    server, address: str, tmp_path: Path, who: dict[str, str]
) -> None:
    nowhere = {"HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    done = shapetrace(server, {**nowhere, **who}, "fetch", address, tmp_path / "out")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    first = done.stderr.splitlines()[0]
    assert "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in first
    assert "--use-run-credentials" in first
    assert " pod" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_wrong_address_is_reported_and_a_later_fetch_goes_on(
    server, identities, address: str, tmp_path: Path
) -> None:
    wrong = address.replace("attempt-1", "attempt-2")
    done = shapetrace(server, identities["reader"], "fetch", wrong, tmp_path / "out")
    assert done.returncode == 1
    assert "there is no manifest.json" in done.stderr
    absent = type("Absent", (), {"endpoint": "http://127.0.0.1:9"})
    done = shapetrace(absent, identities["reader"], "fetch", address, tmp_path / "out")
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr
    assert shapetrace(server, identities["reader"], "fetch", address, tmp_path / "out").returncode == 0
