from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from shapetrace_cli.errors import UsageError
from shapetrace_cli.runfile import read_run

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/quickstart.yaml"


@pytest.fixture
def value() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    return loaded


def written(folder: Path, *values: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump_all(list(values)))
    return path


def test_a_file_may_hold_other_objects_and_several_runs(value: dict[str, Any], tmp_path: Path) -> None:
    other = {**value, "metadata": {"name": "other", "namespace": "profiling"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    path = written(tmp_path, secret, value, None, other)
    assert read_run(path, "other").namespace == "profiling"
    assert read_run(path, "quickstart").namespace == "default"
    with pytest.raises(UsageError, match="holds 2 ProfileRuns: quickstart, other"):
        read_run(path)
    with pytest.raises(UsageError, match="no ProfileRun called 'third'"):
        read_run(path, "third")


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("spec.capture.targets.0.sizes", [0], r"spec\.capture\.targets\[0\]\.sizes\[0\]"),
        ("spec.capture.targets.0.sizes", [2, 2], "2 is there twice"),
        ("spec.capture.targets.0.size", [2], r"spec\.capture\.targets\[0\]\.size: no such field"),
        ("spec.parallelism.tensor", 5, r"tensor: 5 does not divide --heads 12"),
        ("spec.parallelism.tensors", 2, r"spec\.parallelism\.tensors: no such field"),
        ("spec.engine.name", "tensorflow", r"spec\.engine\.name"),
        ("spec.engine", {"name": "sglang", "image": "i"}, "sglang needs exactly one model"),
        ("spec.storage", None, r"spec\.storage"),
        ("metadata.name", 7, "no text"),
        ("metadata.name", "Not_A_Name", "no name of a ProfileRun"),
        ("spec", [], "spec is missing"),
        ("sped", {}, "sped: no such field"),
        ("kind", "Profile", "holds no ProfileRun"),
        ("apiVersion", "shapetrace.dev/v2", "holds no ProfileRun"),
    ],
)
def test_a_refusal_names_the_field(
    place: str, content: Any, message: str, value: dict[str, Any], tmp_path: Path
) -> None:
    *parents, last = place.split(".")
    target: Any = value
    for name in parents:
        target = target[int(name)] if name.isdigit() else target[name]
    target[last] = content
    with pytest.raises(UsageError, match=message):
        read_run(written(tmp_path, value))


@pytest.mark.parametrize("text", ["{", "a: b: c", "", "- 1", "&a [*a]", "\x00", "!!python/object/apply:os.system [x]"])
def test_what_is_no_run_is_a_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_run(path)


def test_many_faults_are_cut(value: dict[str, Any], tmp_path: Path) -> None:
    value["spec"]["capture"]["targets"][0]["sizes"] = [0] * 100
    with pytest.raises(UsageError, match=r"\.\.\. and 92 more"):
        read_run(written(tmp_path, value))
