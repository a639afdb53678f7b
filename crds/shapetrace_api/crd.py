"""The CustomResourceDefinition of ProfileRun."""

from __future__ import annotations

from typing import Any

import yaml
from shapetrace_contract import names

from shapetrace_api.schema import RULES, Rule
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.status import ProfileRunStatus
from shapetrace_api.structural import structural

NAME = f"{names.PLURAL}.{names.GROUP}"

_NAME_RULES = (
    # A name becomes part of Job names, which become host names, and of object keys.
    Rule("self.metadata.name.size() <= 63", "metadata.name is longer than 63 characters"),
    Rule(
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name holds something other than lower-case letters, digits and dashes, or begins or ends with a dash",
    ),
)

_COLUMNS = (
    # name, path, type, priority (1: with -o wide only), description
    ("Phase", ".status.phase", "string", 0, "Where the run is."),
    ("Verdict", ".status.verdict", "string", 0, "What the evidence says of its traces."),
    ("Captured", ".status.progress.summary", "string", 0, "Stored of expected traces."),
    ("Ranks", ".status.progress.ranksSummary", "string", 0, "Ranks that are done, of all."),
    ("Model", ".status.model", "string", 0, "The first model."),
    ("Age", ".metadata.creationTimestamp", "date", 0, "Time since creation."),
    ("Engine", ".spec.engine.name", "string", 1, "The engine."),
    ("Attempt", ".status.attempt", "integer", 1, "Number of the current attempt."),
    ("Reason", ".status.reason", "string", 1, "Why this attempt failed, or what it waits for; describe tells more."),
    ("Manifest", ".status.manifest.uri", "string", 1, "Address of the manifest."),
)


def custom_resource_definition() -> dict[str, Any]:
    """The CRD as a plain object, the same for the same models."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
            },
            "versions": [
                {
                    "name": names.API_VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root()},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                }
            ],
        },
    }


def crd_yaml() -> str:
    """The CRD as YAML, the same bytes for the same models."""
    body = yaml.safe_dump(custom_resource_definition(), sort_keys=False, allow_unicode=True, width=110)
    return f"# Made by `make generate` from crds/shapetrace_api. Do not edit.\n---\n{body}"


def _root() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A run of an inference engine that records one trace per captured graph shape and rank.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{names.GROUP}/{names.API_VERSION}."},
            "kind": {"type": "string", "description": f"{names.KIND}."},
            "metadata": {"type": "object"},
            "spec": structural(ProfileRunSpec),
            "status": structural(ProfileRunStatus),
        },
        RULES: [rule.to_schema() for rule in _NAME_RULES],
    }


def _column(name: str, path: str, kind: str, priority: int, description: str) -> dict[str, Any]:
    column = {"name": name, "jsonPath": path, "type": kind, "description": description}
    return {**column, "priority": priority} if priority else column
