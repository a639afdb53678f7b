"""Models on a hub, fetched by the launcher before a stand-in for an engine starts; the hub's library is a stand-in."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from shapetrace_contract import spool
from stand_in import Launched, wait_for

TOKEN = "hf_thisIsTheSecretToken"
MODELS = {
    "models": [
        {"role": "target", "name": "org/large", "revision": "main"},
        {"role": "adapter", "name": "org/small-lora"},
        {"role": "tokenizer", "path": "/in/the/image"},
    ]
}
HUB = """
import os
from pathlib import Path
SPOOL = Path(os.environ["SHAPETRACE_SPOOL"])
class GatedRepoError(Exception): pass
class HfApi:
    def list_repo_files(self, name, revision=None): return ["model.safetensors"]
def snapshot_download(name, revision=None, ignore_patterns=()):
    assert os.environ["HF_TOKEN"].startswith("hf_")
    assert "*.bin" in ignore_patterns
    return f"/cache/{name}/{revision}"
"""
GATED = (
    HUB
    + """
def snapshot_download(name, revision=None, ignore_patterns=()):
    raise GatedRepoError("403 for " + os.environ["HF_TOKEN"] + ": ask for access")
"""
)
HANGING = (
    HUB + "\ndef snapshot_download(*_, **__):\n    import time\n    (SPOOL / 'asked').touch()\n    time.sleep(300)\n"
)
ENGINE = """
import json
say("seen", json.dumps({"argv": sys.argv, "offline": os.environ.get("HF_HUB_OFFLINE"), "names": sorted(os.environ)}))
record(); done(); serve()
"""


def launched(root: Path, hub: str, **options: Any) -> Launched:
    variables = {"HF_TOKEN": TOKEN, "HUGGING_FACE_HUB_TOKEN": TOKEN, "HF_HUB_CACHE": str(root / "hub")}
    return Launched(
        root,
        ENGINE,
        engine="sglang",
        version="0.5.23",
        settings=MODELS,
        variables=variables,
        hub=hub,
        **options,
    )


def all_text(run: Launched) -> str:
    assert run.process.stdout is not None
    files = [path.read_text() for path in run.spool.rglob("*") if path.is_file()]
    return "\n".join([run.process.stdout.read(), run.termination.read_text(), *files])


def test_the_engine_starts_offline_from_the_folders_and_without_the_token(tmp_path: Path) -> None:
    with launched(tmp_path, HUB) as run:
        run.drain()
        assert run.end()[0] == 0
        seen = json.loads((run.spool / "seen").read_text())
        argv = seen["argv"]
        assert argv[argv.index("--model-path") + 1] == "/cache/org/large/main"
        assert argv[argv.index("--lora-paths") + 1] == "small-lora=/cache/org/small-lora/None"
        assert argv[argv.index("--tokenizer-path") + 1] == "/in/the/image"
        assert seen["offline"] == "1"
        assert not {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} & set(seen["names"])
        assert "fetching org/large, revision main" in (run.spool / spool.ENGINE_LOG).read_text()
        assert TOKEN not in all_text(run)


def test_the_commits_that_the_revisions_were_are_told_at_the_end(tmp_path: Path) -> None:
    hub = (
        HUB
        + """
def snapshot_download(name, revision=None, ignore_patterns=()):
    return f"/cache/{name}" if revision is None else "/cache/models--org--large/snapshots/" + "ab" * 20
"""
    )
    with launched(tmp_path, hub) as run:
        run.drain()
        assert run.end()[0] == 0
        assert (spool.read_json(run.spool / spool.STOPPED) or {})["models"] == [
            {"name": "org/large", "revision": "main", "resolvedRevision": "ab" * 20},
            {"name": "org/small-lora", "revision": None, "resolvedRevision": None},
        ]


def test_a_model_that_the_hub_refuses_is_bad_configuration_and_no_token_is_shown(tmp_path: Path) -> None:
    with launched(tmp_path, GATED, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
        assert (code, message["reason"]) == (44, "BadConfiguration")
        assert message["message"].startswith("models: org/large: access to it is gated: accept its terms")
        assert not run.has("seen")(), "the engine was not started"
        assert TOKEN not in all_text(run)


def test_an_image_without_the_hubs_library_says_what_else_can_be_done(tmp_path: Path) -> None:
    with launched(tmp_path, "raise ImportError('no library here')", uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert code == 44
    assert "give the model as path or pvc" in message["message"]


def test_a_download_that_would_leave_no_time_for_captures_is_given_up(tmp_path: Path) -> None:
    with launched(tmp_path, HANGING, fast=60, activeDeadlineSeconds=120, uploadTimeoutSeconds=0) as run:
        code, message = run.end()
    assert (code, message["reason"]) == (50, "EngineFailed")
    assert "more than 96 s, 80% of activeDeadlineSeconds" in message["message"]


def test_sigterm_during_a_download_is_exit_143(tmp_path: Path) -> None:
    with launched(tmp_path, HANGING, disruptionGraceSeconds=1) as run:
        wait_for("the download", run.has("asked"))
        run.process.send_signal(signal.SIGTERM)
        code, message = run.end()
    assert (code, message["reason"]) == (143, "Stopped")


def test_what_cannot_be_started_is_not_downloaded(tmp_path: Path) -> None:
    with Launched(
        tmp_path,
        ENGINE,
        engine="sglang",
        version="0.5.13",
        settings=MODELS,
        variables={"HF_TOKEN": TOKEN, "HF_HUB_CACHE": str(tmp_path)},
        hub=HANGING,
        uploadTimeoutSeconds=0,
    ) as run:
        code, message = run.end()
        assert not run.has("asked")()
    assert code == 44
    assert "it has SGLang 0.5.13; at least 0.5.14 is needed" in message["message"]
