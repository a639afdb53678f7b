"""Fetching from a hub: which files, what is tried again, and what a failure says."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from shapetrace_contract.settings import EngineSettings
from shapetrace_launcher import fetch, hub

TOKEN = "hf_hush"
ENVIRONMENT = {"HF_TOKEN": TOKEN}


class RepositoryNotFoundError(Exception):
    """As huggingface_hub calls it."""


class LocalEntryNotFoundError(Exception):
    pass


class HfHubHTTPError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"{status} Client Error for url")
        self.response = type("Response", (), {"status_code": status})()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (type("GatedRepoError", (Exception,), {})("x"), 44, "access to it is gated: accept its terms"),
        (RepositoryNotFoundError("x"), 44, "there is no such model on the hub, or it is private"),
        (type("RevisionNotFoundError", (Exception,), {})("x"), 44, "it has no such revision"),
        (HfHubHTTPError(401), 44, "the hub refuses the access token"),
        (HfHubHTTPError(503), 50, "it cannot be fetched; try again"),
        (ModuleNotFoundError("No module named 'huggingface_hub'"), 44, "has no huggingface_hub"),
        (LocalEntryNotFoundError("x"), 50, "the hub cannot be reached"),
        (OSError(28, "No space left on device", "/cache/blob"), 50, "is engine.cache full?"),
        (ConnectionError("refused"), 50, "it cannot be fetched"),
    ],
)
def test_a_failure_says_what_to_do(error: BaseException, code: int, words: str) -> None:
    found = fetch.explain("org/model", error, ENVIRONMENT)
    assert found.code == code
    assert str(found).startswith("models: org/model: ")
    assert words in str(found)
    assert type(error).__name__ in str(found)


def test_the_token_is_never_in_a_failure() -> None:
    found = fetch.explain("org/model", ValueError(f"bad header: Bearer {TOKEN}"), ENVIRONMENT)
    assert TOKEN not in str(found)
    assert "Bearer ***" in str(found)


class Hub:
    """The part of huggingface_hub that is used."""

    files: ClassVar[list[str]] = ["config.json", "model-1.safetensors", "pytorch_model.bin"]

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: dict[str, Any] = {}

    def HfApi(self) -> Hub:
        return self

    def list_repo_files(self, name: str, revision: str | None) -> list[str]:
        if self.error is not None:
            raise self.error
        return self.files

    def snapshot_download(self, name: str, **asked: Any) -> str:
        self.asked = {"name": name, **asked}
        return "/cache/it"


def test_weights_are_fetched_once() -> None:
    of = Hub()
    assert fetch.fetch(of, {"name": "a/b", "revision": "v1", "weights": True}) == "/cache/it"
    assert (of.asked["name"], of.asked["revision"]) == ("a/b", "v1")
    assert "*.bin" in of.asked["ignore_patterns"], "the same weights as safetensors"
    assert "*.safetensors" not in of.asked["ignore_patterns"]


def test_a_model_that_has_no_other_weights_is_fetched_with_those_it_has() -> None:
    assert "*.bin" not in fetch.unwanted(["config.json", "pytorch_model.bin"], weights=True)


def test_weights_are_left_where_they_are_not_wanted() -> None:
    of = Hub()
    fetch.fetch(of, {"name": "a/b", "weights": False})
    assert {"*.safetensors", "*.bin", "*.gguf"} <= set(of.asked["ignore_patterns"])
    assert of.asked["revision"] is None


def test_without_a_hub_the_cache_is_asked() -> None:
    of = Hub(ConnectionError("no route"))
    assert fetch.fetch(of, {"name": "a/b"}) == "/cache/it"
    assert "*.bin" in of.asked["ignore_patterns"], "an earlier fetch may have left them out"


def test_a_hub_that_says_no_is_not_asked_for_the_files() -> None:
    of = Hub(RepositoryNotFoundError("404"))
    with pytest.raises(RepositoryNotFoundError):
        fetch.fetch(of, {"name": "a/b"})
    assert not of.asked


def test_an_absent_hub_is_tried_again_and_one_that_says_no_is_not() -> None:
    slept: list[float] = []
    answers: list[Exception | str] = [ConnectionError(), "/cache/it"]

    def action() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert fetch.persistently(action, slept.append) == "/cache/it"
    assert slept == [fetch.PAUSE_SECONDS]
    answers[:] = [HfHubHTTPError(503), "/cache/it"]
    assert fetch.persistently(action, slept.append) == "/cache/it"
    for no in (RepositoryNotFoundError("404"), HfHubHTTPError(401), TypeError("a fault of ours")):
        answers[:] = [no, "/cache/it"]
        with pytest.raises(type(no)):
            fetch.persistently(action, slept.append)
    answers[:] = [ConnectionError()] * fetch.TRIES
    with pytest.raises(ConnectionError):
        fetch.persistently(action, slept.append)
    assert not answers


def test_the_log_hears_how_much_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "blob").open("wb") as stream:
        stream.truncate(3 * 1024**3)  # sparse: no disk is used
    said = ""
    with fetch.Progress("org/model", tmp_path, say_seconds=0.01):
        limit = time.monotonic() + 60
        while not said and time.monotonic() < limit:
            said = capsys.readouterr().out
            time.sleep(0.01)
    assert "fetching org/model: 3.0 GiB after" in said


def test_only_models_on_a_hub_are_fetched_and_dummy_weights_are_not() -> None:
    models = [
        {"role": "target", "name": "a/b", "revision": "main"},
        {"role": "draft", "path": "/d"},
        {"role": "adapter", "name": "a/lora"},
        {"role": "tokenizer", "name": "a/tokens"},
    ]
    engine = EngineSettings("sglang", ["--load-format", "dummy"], models)
    argv = hub.command(engine, "python3", Path("/answer")).argv
    assert argv[:4] == ("python3", "-m", "shapetrace_launcher.fetch", "/answer")
    assert json.loads(argv[4]) == [
        {"name": "a/b", "revision": "main", "weights": False},
        {"name": "a/lora", "revision": None, "weights": True},
        {"name": "a/tokens", "revision": None, "weights": False},
    ]
    whole = hub.command(EngineSettings("sglang", [], models), "python3", Path("/answer")).argv[4]
    assert '"name": "a/b", "revision": "main", "weights": true' in whole
    filled = hub.with_folders(engine, ["/1", "/2", "/3"]).models
    assert [model["path"] for model in filled] == ["/1", "/d", "/2", "/3"]


def test_a_password_in_the_hubs_address_is_not_told() -> None:
    error = RuntimeError("Client error '500' for url 'https://me:s3cret@hub.example/api/models/org/m'")
    text = str(fetch.explain("org/m", error, {}))
    assert "s3cret" not in text
    assert "hub.example/api/models" in text
