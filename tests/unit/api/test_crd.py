"""The CRD as checked in: what the models make, with the defaults and columns that the documents promise."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from shapetrace_api.crd import crd_yaml, custom_resource_definition
from shapetrace_api.spec import IMMUTABLE, ProfileRunSpec
from shapetrace_contract.settings import Limits

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster" / "crd"))

from cel_cases import BASE, CASES, merge

ROOT = Path(__file__).parents[3]


@pytest.fixture
def version() -> dict[str, Any]:
    made: dict[str, Any] = custom_resource_definition()["spec"]["versions"][0]
    return made


def test_the_files_beside_the_models_and_in_the_chart_are_up_to_date() -> None:
    for path in ("crds/shapetrace.dev_profileruns.yaml", "charts/shapetrace/files/crd.yaml"):
        assert (ROOT / path).read_text() == crd_yaml(), f"{path}: run `make generate`"
    assert yaml.safe_load(crd_yaml()) == custom_resource_definition()


def test_the_columns_are_those_of_the_documentation(version: dict[str, Any]) -> None:
    columns = [(column["name"], column.get("priority", 0)) for column in version["additionalPrinterColumns"]]
    narrow = ["Phase", "Verdict", "Captured", "Ranks", "Model", "Age"]
    wide = ["Engine", "Attempt", "Reason", "Manifest"]
    assert columns == [(name, 0) for name in narrow] + [(name, 1) for name in wide]
    paths = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
    assert paths["Reason"] == ".status.reason", "it has to say what a run waits for, too"


def test_default_times_are_those_of_the_contract() -> None:
    spec, limits = ProfileRunSpec.model_validate(BASE["spec"]), Limits()
    assert (spec.pending_timeout_seconds, spec.retries, spec.ttl_seconds_after_finished) == (1800, 0, None)
    assert spec.active_deadline_seconds == limits.activeDeadlineSeconds
    assert spec.upload_timeout_seconds == limits.uploadTimeoutSeconds
    assert spec.disruption_grace_seconds == limits.disruptionGraceSeconds


def test_every_field_is_immutable_but_those_that_may_change(version: dict[str, Any]) -> None:
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(spec["properties"]) - set(IMMUTABLE) == {"suspend", "ttlSecondsAfterFinished", "artifacts"}
    assert spec["properties"]["artifacts"]["enum"] == ["Retain"], "with a second value it needs a rule"
    for field in IMMUTABLE:  # the rules have no has(): the field must always be there
        assert field in spec["required"] or "default" in spec["properties"][field]


def test_every_rule_has_a_case_for_the_cluster_test(version: dict[str, Any]) -> None:
    def messages(node: Any) -> list[str]:
        if not isinstance(node, dict):
            return []
        own = [rule["message"] for rule in node.get("x-kubernetes-validations", [])]
        return own + [message for child in node.values() for message in messages(child)]

    assert sorted(messages(version["schema"])) == sorted(case.message for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.message[:40])
def test_a_case_is_about_its_rule_and_no_bound(case: Any) -> None:
    """Both objects are within types and bounds, so that only the rule can refuse."""
    for patch in (case.accepted, case.refused):
        ProfileRunSpec.model_validate(merge(BASE, patch)["spec"])
