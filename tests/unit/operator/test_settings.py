"""Arguments and environment of the operator, and its rights as data."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from shapetrace_operator import rbac
from shapetrace_operator.settings import read

IMAGES = {"SHAPETRACE_IMAGE": "a:1", "SHAPETRACE_ENGINE_IMAGE": "b:1"}
OPERATOR = Path(__file__).parents[3] / "operator"


def test_an_operator_without_both_images_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read([], {"SHAPETRACE_IMAGE": "a:1"})
    assert ended.value.code == 2
    assert "SHAPETRACE_ENGINE_IMAGE" in capsys.readouterr().err


def test_arguments_win_over_the_environment() -> None:
    environment = {**IMAGES, "SHAPETRACE_NAMESPACES": "x,y", "SHAPETRACE_IMAGE_PULL_SECRETS": "one,two"}
    settings = read([], environment)
    assert settings.namespaces == ("x", "y")
    assert settings.defaults.image_pull_secrets == ("one", "two")
    assert read(["--namespace", "z", "--image", "c:2"], environment).namespaces == ("z",)
    assert read(["--image", "c:2"], environment).defaults.image == "c:2"


def test_without_namespaces_all_are_served() -> None:
    assert read([], IMAGES).namespaces == ()


def test_the_operator_has_no_right_on_secrets_and_never_all_rights() -> None:
    text = yaml.safe_dump(rbac.policy_rules())
    assert "secrets" not in text
    assert "*" not in text


def test_the_operators_folder_hides_no_module_of_the_standard_library() -> None:
    assert not (OPERATOR / "__init__.py").exists()
    assert not (Path(__file__).parent / "__init__.py").exists()
