"""The chart: installs, upgrades, is removed; renders exactly the rights that the operator declares."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from cluster import ROOT, Cluster
from runs import profile_run
from shapetrace_operator import rbac
from waiting import wait_until

CHART = str(ROOT / "charts/shapetrace")


def test_it_serves_a_run_keeps_the_crd_and_leaves_nothing_else(
    cluster: Cluster,
    namespace: str,
    storage: dict[str, Any],
    apply_run: Callable[[dict[str, Any]], str],
    wait_finished: Callable[..., dict[str, Any]],
) -> None:
    repository, tag = cluster.image("shapetrace").rsplit(":", 1)
    engine, engine_tag = cluster.image("shapetrace-engine").rsplit(":", 1)
    values = [
        "--set",
        f"image.repository={repository},image.tag={tag},engineImage.repository={engine},engineImage.tag={engine_tag}",
        "--set",
        f"namespaces={{{namespace}}}",
        "--set",
        "crd.install=false",
    ]
    cluster.helm("install", "st", CHART, "-n", namespace, *values, "--wait", "--timeout", "300s")
    apply_run(profile_run("charted", storage, sizes=(1,)))
    run = wait_finished("charted")
    assert run["status"]["phase"] == "Succeeded", run["status"]
    cluster.helm(
        "upgrade",
        "st",
        CHART,
        "-n",
        namespace,
        *values,
        "--set",
        "podAnnotations.changed=yes",
        "--wait",
        "--timeout",
        "300s",
    )
    cluster.helm("uninstall", "st", "-n", namespace, "--wait")
    kinds = "deployments,serviceaccounts,roles,rolebindings"
    wait_until(
        "nothing of the release is left",
        lambda: not cluster.list(kinds, namespace, "app.kubernetes.io/instance=st"),
        120,
        lambda: cluster.kubectl("get", kinds, "-n", namespace).stdout,
    )
    assert cluster.get("profilerun", "charted", namespace), "the run outlives the release"


@pytest.mark.parametrize("namespaces", ["", "a"])
def test_the_rendered_rights_are_the_declared_ones(cluster: Cluster, namespaces: str) -> None:
    rendered = cluster.helm(
        "template",
        "st",
        CHART,
        "-s",
        "templates/rbac.yaml",
        *(["--set", f"namespaces={{{namespaces}}}"] if namespaces else []),
    )
    objects = list(yaml.safe_load_all(rendered))
    role = next(item for item in objects if item["kind"] == ("Role" if namespaces else "ClusterRole"))

    def flat(rules: Any) -> set[tuple[str, str, str]]:
        return {
            (group, resource, verb)
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    assert flat(role["rules"]) == flat(rbac.policy_rules())


def test_the_whole_chart_is_accepted_by_the_api_server_and_its_crd_is_kept(cluster: Cluster, namespace: str) -> None:
    rendered = cluster.helm("template", "st", CHART, "-n", namespace)
    cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=rendered)
    crd = next(item for item in yaml.safe_load_all(rendered) if item["kind"] == "CustomResourceDefinition")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert json.dumps(crd["spec"]) == json.dumps(
        yaml.safe_load((ROOT / "crds/shapetrace.dev_profileruns.yaml").read_text())["spec"]
    )
    cluster.helm("lint", CHART, "--strict")


@pytest.mark.parametrize(
    ("value", "said"),
    [("image.repo=mine", "repo"), ("namespaces=one", "namespaces"), ("logLevel=loud", "logLevel")],
)
def test_a_mistyped_value_is_refused(cluster: Cluster, value: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        cluster.helm("template", "st", CHART, "--set", value)
