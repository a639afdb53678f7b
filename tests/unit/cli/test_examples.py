"""The examples are what they say: accepted as they are, each in its own words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from shapetrace_api.engine import EngineName
from shapetrace_cli.runfile import RunFile, read_run

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_is_accepted(path: Path) -> None:
    file = read_run(path)
    assert file.name
    assert "shapetrace fetch" in path.read_text() or "run-local" in path.read_text(), "it says how to go on"


def test_each_engine_has_an_example() -> None:
    assert {read_run(path).spec.engine.name for path in FILES} == set(EngineName)


def test_the_quickstart_is_16_shapes_on_2_ranks() -> None:
    file: RunFile = read_run(EXAMPLES / "quickstart.yaml")
    assert sum(target.declared_shapes for target in file.spec.capture.targets) == 16
    assert file.spec.parallelism.ranks == 2
    s3 = file.spec.storage.s3
    assert (s3.bucket, s3.endpoint, s3.path_style) == ("shapetrace", "http://10.244.0.1:8333", True)
    assert s3.credentials_secret_ref is not None
    assert s3.credentials_secret_ref.name == "shapetrace-s3"


def test_the_example_of_a_lora_serving_model_has_an_adapter() -> None:
    models = read_run(EXAMPLES / "sglang-mi300x.yaml").spec.models
    assert [str(model.role) for model in models] == ["target", "adapter"]


def test_the_script_of_the_command_example_is_there_and_compiles() -> None:
    script = EXAMPLES / "user_script.py"
    ast.parse(script.read_text())
    assert "examples/user_script.py" in read_run(EXAMPLES / "command.yaml").spec.engine.args
