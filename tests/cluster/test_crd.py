"""The CRD on a real API server: structural, what the models say, and each of its rules accepts and refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shapetrace_api.crd import NAME, custom_resource_definition
from shapetrace_api.spec import ProfileRunSpec

sys.path.insert(0, str(Path(__file__).parent / "crd"))

from cel_cases import BASE, CASES, Case, merge

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def _schema(crd: dict[str, Any]) -> Any:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _rules(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", [])
        for child in node.values():
            yield from _rules(child)


@pytest.fixture(scope="module")
def crd(cluster: Any) -> dict[str, Any]:
    """The CRD as the API server has it, after ours was applied."""
    definition = custom_resource_definition()
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(definition))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=120s")
    served: dict[str, Any] = json.loads(cluster.kubectl("get", "crd", NAME, "-o", "json").stdout)
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


def _complaints(kubectl: Kubectl, verb: str, runs: list[dict[str, Any]], *options: str) -> dict[str, str]:
    """Name -> what the server says against that object, for those that it does not take. One call for all of them."""
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": runs})
    done = kubectl(verb, "-f", "-", *options, stdin=body, check=False)
    found = {}
    for text in re.split(r"^(?=Error from server|The ProfileRun |error: )", done.stderr, flags=re.MULTILINE):
        if text.strip():
            named = re.search(r'"([^"]+)" is invalid:', text)
            assert named, f"an answer that is about no object: {text}"
            found[named[1]] = text
    assert bool(found) == bool(done.returncode), done.stderr
    return found


def _dry_run(kubectl: Kubectl, run: dict[str, Any]) -> str:
    """What the server says against the object; empty where it takes it. Nothing is stored."""
    arguments = ("create", "-n", "default", "--dry-run=server", "-f", "-")
    done = kubectl(*arguments, stdin=json.dumps(run), check=False)
    return done.stderr if done.returncode else ""


def _named(cases: list[Case], which: str) -> dict[str, tuple[Case, dict[str, Any]]]:
    """Name -> case and object; a case about names has its own."""
    made = {}
    for number, case in enumerate(cases):
        run = merge(merge(BASE, {"metadata": {"name": f"case-{number}"}}), getattr(case, which))
        made[run["metadata"]["name"]] = (case, run)
    assert len(made) == len(cases)
    return made


def _check(kubectl: Kubectl, verb: str, cases: list[Case], *options: str) -> None:
    """Every accepted object is taken, every refused one is refused by its rule and by no other."""
    accepted = [run for _, run in _named(cases, "accepted").values()]
    assert _complaints(kubectl, verb, accepted, *options) == {}
    refused = _named(cases, "refused")
    complaints = _complaints(kubectl, verb, [run for _, run in refused.values()], *options)
    for name, (case, _) in refused.items():
        said = [other.message for other in CASES if other.message in complaints.get(name, "")]
        assert said == [case.message], complaints.get(name, f"{name} was taken: {case}")


@pytest.mark.usefixtures("crd")
def test_every_rule_about_an_object_accepts_and_refuses(kubectl: Kubectl) -> None:
    cases = [case for case in CASES if not case.change]
    assert cases
    _check(kubectl, "create", cases, "-n", "default", "--dry-run=server")


@pytest.mark.usefixtures("crd")
def test_every_rule_about_a_change_accepts_and_refuses(kubectl: Kubectl, namespace: str) -> None:
    cases = [case for case in CASES if case.change]
    before = [merge(BASE, {"metadata": {"name": f"case-{number}"}}) for number in range(len(cases))]
    assert before
    assert _complaints(kubectl, "create", before, "-n", namespace) == {}
    _check(kubectl, "replace", cases, "-n", namespace, "--dry-run=server")


@pytest.mark.usefixtures("crd")
def test_the_server_fills_in_the_same_defaults_as_the_models(kubectl: Kubectl) -> None:
    arguments = ("create", "-n", "default", "--dry-run=server", "-o", "json", "-f", "-")
    run = kubectl(*arguments, stdin=json.dumps(BASE))
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
def test_the_schema_refuses_what_needs_no_rule(kubectl: Kubectl, patch: dict[str, Any], complaint: str) -> None:
    assert complaint in _dry_run(kubectl, merge(BASE, {"spec": patch}))


@pytest.mark.usefixtures("crd")
def test_numbers_and_texts_are_both_amounts(kubectl: Kubectl) -> None:
    resources = {"requests": {"cpu": 2, "memory": "1.5Gi"}, "limits": {"cpu": "2500m"}}
    run = merge(BASE, {"spec": {"pod": {"resources": resources, "shmSize": "1Gi"}}})
    assert not _dry_run(kubectl, run)
    assert "should match" in _dry_run(kubectl, merge(run, {"spec": {"pod": {"shmSize": "much"}}}))


@pytest.mark.usefixtures("crd")
def test_the_table_shows_the_columns_in_order(kubectl: Kubectl, namespace: str) -> None:
    run = merge(BASE, {"spec": {"models": [{"pvc": {"claimName": "weights", "path": "team/large"}}]}})
    assert _complaints(kubectl, "create", [run], "-n", namespace) == {}
    progress = {"summary": "32/32", "ranksSummary": "2/2"}
    manifest = {"uri": "s3://b/m.json", "sha256": "0" * 64}
    status = {"phase": "Succeeded", "verdict": "Complete", "attempt": 1, "progress": progress, "manifest": manifest}
    status |= {"model": "large"}  # as the operator names it, whatever its source
    patch = json.dumps({"status": status})
    kubectl("patch", "prun/case", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    head, row = kubectl("get", "prun", "-n", namespace, "-o", "wide").stdout.splitlines()
    wide = ["ENGINE", "ATTEMPT", "REASON", "MANIFEST"]
    assert head.split() == ["NAME", "PHASE", "VERDICT", "CAPTURED", "RANKS", "MODEL", "AGE", *wide]
    assert row.split()[:6] == ["case", "Succeeded", "Complete", "32/32", "2/2", "large"]
    assert row.split()[7:] == ["command", "1", "s3://b/m.json"], "a run that did not fail has no reason"
