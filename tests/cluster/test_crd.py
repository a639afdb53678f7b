"""The CRD on a real API server: structural, what the models say, and each of its rules accepts and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shapetrace_api.crd import NAME, custom_resource_definition
from shapetrace_api.spec import ProfileRunSpec

sys.path.insert(0, str(Path(__file__).parent / "crd"))

from cel_cases import BASE, CASES, Case, Patch, merge

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def _schema(crd: dict[str, Any]) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _rules(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", [])
        for child in node.values():
            yield from _rules(child)


@pytest.fixture
def crd(kubectl: Kubectl) -> dict[str, Any]:
    """The CRD as the API server has it, after ours was applied."""
    definition = custom_resource_definition()
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(definition))
    kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=30s")
    served: dict[str, Any] = json.loads(kubectl("get", "crd", NAME, "-o", "json").stdout)
    return served


def test_the_server_keeps_the_schema_as_it_is(crd: dict[str, Any]) -> None:
    assert _schema(crd) == _schema(custom_resource_definition())
    spec, ours = crd["spec"], custom_resource_definition()["spec"]
    assert spec["names"] == ours["names"]
    assert spec["versions"][0]["additionalPrinterColumns"] == ours["versions"][0]["additionalPrinterColumns"]
    assert spec["versions"][0]["subresources"] == {"status": {}}


def test_the_schema_is_structural_and_its_names_are_free(crd: dict[str, Any]) -> None:
    conditions = {entry["type"]: entry["status"] for entry in crd["status"]["conditions"]}
    assert "NonStructuralSchema" not in conditions
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"


def test_every_rule_has_a_case(crd: dict[str, Any]) -> None:
    rules = [rule["message"] for rule in _rules(_schema(crd))]
    assert rules, "no rule was found in the CRD"
    assert sorted(rules) == sorted(case.message for case in CASES)


def _create(kubectl: Kubectl, namespace: str, run: dict[str, Any], *options: str) -> str:
    """What the server says against the object; empty where it takes it."""
    done = kubectl("create", "-n", namespace, "-f", "-", *options, stdin=json.dumps(run), check=False)
    return done.stderr if done.returncode else ""


def _change(kubectl: Kubectl, namespace: str, patch: Patch) -> str:
    """What the server says against a change of the object ``case``."""
    arguments = ("profilerun/case", "-n", namespace, "--type=merge", "--dry-run=server", "-p", json.dumps(patch))
    done = kubectl("patch", *arguments, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.usefixtures("crd")
def test_every_rule_accepts_and_refuses(kubectl: Kubectl, namespace: str) -> None:
    assert not _create(kubectl, namespace, BASE)

    def answer(case: Case, patch: Patch) -> str:
        if case.change:
            return _change(kubectl, namespace, patch)
        return _create(kubectl, namespace, merge(merge(BASE, {"metadata": {"name": "new"}}), patch), "--dry-run=server")

    wrong = []
    for case in CASES:
        if complaint := answer(case, case.accepted):
            wrong.append(f"refused what it should accept: {case.message}\n{complaint}")
        complaint = answer(case, case.refused)
        if case.message not in complaint:
            wrong.append(f"did not refuse: {case.message}\n{complaint or 'the object was taken'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("crd")
def test_the_server_fills_in_the_same_defaults_as_the_models(kubectl: Kubectl, namespace: str) -> None:
    run = kubectl("create", "-n", namespace, "-f", "-", "-o", "json", "--dry-run=server", stdin=json.dumps(BASE))
    assert json.loads(run.stdout)["spec"] == ProfileRunSpec.model_validate(BASE["spec"]).to_dict()


@pytest.mark.usefixtures("crd")
@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        ({"capture": {"targets": [{"runner": "decode", "sizes": [8, 8]}]}}, "Duplicate value: 8"),
        ({"capture": {"targets": [{"runner": "decode", "sizes": [0]}]}}, "should be greater than or equal to 1"),
        ({"capture": {"targets": [{"runner": "decode"}, {"runner": "decode"}]}}, "Duplicate value"),
        ({"capture": {"targets": [{"runner": "decode", "variants": [{"axis": "lora", "values": []}]}]}}, "at least 1"),
        ({"engine": {"name": "tensorrt"}}, "Unsupported value"),
        ({"engine": {"nmae": "torch"}}, "unknown field"),
        ({"storage": {"s3": {"bucket": "Traces"}}}, "should match"),
        ({"accelerator": None}, "Required value"),
    ],
    ids=["size-twice", "size-zero", "runner-twice", "no-values", "engine", "misspelt", "bucket", "no-accelerator"],
)
def test_the_schema_refuses_what_needs_no_rule(
    kubectl: Kubectl, namespace: str, patch: dict[str, Any], complaint: str
) -> None:
    assert complaint in _create(kubectl, namespace, merge(BASE, {"spec": patch}), "--dry-run=server")


@pytest.mark.usefixtures("crd")
def test_numbers_and_texts_are_both_amounts(kubectl: Kubectl, namespace: str) -> None:
    resources = {"requests": {"cpu": 2, "memory": "1.5Gi"}, "limits": {"cpu": "2500m"}}
    run = merge(BASE, {"spec": {"pod": {"resources": resources, "shmSize": "1Gi"}}})
    assert not _create(kubectl, namespace, run, "--dry-run=server")
    assert "should match" in _create(kubectl, namespace, merge(run, {"spec": {"pod": {"shmSize": "much"}}}))


@pytest.mark.usefixtures("crd")
def test_the_table_shows_the_columns_in_order(kubectl: Kubectl, namespace: str) -> None:
    assert not _create(kubectl, namespace, merge(BASE, {"spec": {"models": [{"name": "org/model"}]}}))
    progress = {"summary": "32/32", "ranksSummary": "2/2"}
    manifest = {"uri": "s3://b/m.json", "sha256": "0" * 64}
    status = {"phase": "Succeeded", "verdict": "Complete", "attempt": 1, "progress": progress, "manifest": manifest}
    patch = json.dumps({"status": status})
    kubectl("patch", "prun/case", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    head, row = kubectl("get", "prun", "-n", namespace, "-o", "wide").stdout.splitlines()
    assert head.split() == (
        ["NAME", "PHASE", "VERDICT", "CAPTURED", "RANKS", "MODEL", "AGE", "ENGINE", "ATTEMPT", "MANIFEST"]
    )
    assert row.split()[:6] == ["case", "Succeeded", "Complete", "32/32", "2/2", "org/model"]
    assert row.split()[7:] == ["command", "1", "s3://b/m.json"]
