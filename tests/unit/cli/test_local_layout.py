from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from shapetrace_api.engine import EnvVar
from shapetrace_cli.errors import UsageError
from shapetrace_cli.local.layout import Layout, environments
from shapetrace_cli.runfile import RunFile, read_run
from shapetrace_collector.configuration import Configuration
from shapetrace_contract.settings import CaptureSettings, RunId, StoreSettings
from shapetrace_launcher.settings import Settings

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PERSON = {"PATH": "/usr/bin", "PYTHONPATH": "/mine", "AWS_SECRET_ACCESS_KEY": "hush", "SHAPETRACE_SPOOL": "/stale"}


@pytest.fixture
def file() -> RunFile:
    return read_run(EXAMPLES / "quickstart.yaml")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "out", tmp_path / "spool", tmp_path / "payload", RunId("default", "quickstart", "u-1", 1))


def test_the_processes_read_their_settings_from_it(file: RunFile, layout: Layout) -> None:
    made = environments(file, layout, PERSON)
    settings = Settings.from_environment(made["engine"])
    assert settings.engine.args == list(file.spec.engine.args)
    assert settings.engine.ranks == 2
    assert settings.spool == layout.spool
    collector = Configuration.from_environment(made["collector"])
    assert (collector.run, collector.spool, list(collector.ranks)) == (layout.run, layout.spool, [0, 1])
    store = StoreSettings.from_env(made["finish"])
    assert (store.kind, Path(store.path)) == ("folder", layout.store)
    assert CaptureSettings.from_env(made["engine"]).targets[0]["sizes"] == [1, 2, 4, 8]


def test_the_engine_gets_payload_and_no_store_and_no_credential(file: RunFile, layout: Layout) -> None:
    engine = environments(file, layout, PERSON)["engine"]
    assert engine["PYTHONPATH"] == f"{layout.payload}:/mine"
    assert StoreSettings.ENV not in engine
    assert "hush" not in json.dumps(engine)


def test_a_dollar_sign_arrives_as_it_was_written(file: RunFile, layout: Layout) -> None:
    spec = file.spec.model_copy(deep=True)
    spec.engine.args = ["--option", "a=$HOME$(x)$$"]
    engine = environments(replace(file, spec=spec), layout, PERSON)["engine"]
    assert Settings.from_environment(engine).engine.args == spec.engine.args


def test_variables_of_the_run_reach_the_engine_alone(file: RunFile, layout: Layout) -> None:
    spec = file.spec.model_copy(deep=True)
    spec.engine.env = [EnvVar(name="OMP_NUM_THREADS", value="3")]
    made = environments(replace(file, spec=spec), layout, PERSON)
    assert made["engine"]["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in made["collector"]
    reference = EnvVar.model_validate({"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}})
    spec.engine.env = [reference]
    with pytest.raises(UsageError, match="TOKEN comes from a Secret"):
        environments(replace(file, spec=spec), layout, PERSON)


def test_a_model_on_a_volume_is_refused_with_what_to_do(layout: Layout) -> None:
    with pytest.raises(UsageError, match=r"spec\.models\[0\]\.pvc: there is no cluster here") as error:
        environments(read_run(EXAMPLES / "vllm-h100.yaml"), layout, PERSON)
    assert "path" in error.value.hint


def test_a_token_of_the_person_reaches_the_launcher_which_fetches_the_models(layout: Layout) -> None:
    file = read_run(EXAMPLES / "sglang-mi300x.yaml")
    file.spec.models = [model for model in file.spec.models if model.pvc is None]
    made = environments(file, layout, {**PERSON, "HF_TOKEN": "mine"})
    assert made["engine"]["HF_TOKEN"] == "mine"
