"""The rights that the operator uses, as data: the chart is checked against it, so that it never asks for more."""

from __future__ import annotations

from shapetrace_contract import names

RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (names.GROUP, names.PLURAL, ("get", "list", "watch", "delete")),  # delete: ttlSecondsAfterFinished
    (names.GROUP, f"{names.PLURAL}/status", ("patch",)),
    ("batch", "jobs", ("list", "watch", "create", "delete")),
    ("", "pods", ("list", "watch")),
    ("", "events", ("list",)),
)
"""(API group, resource, verbs). No Secrets, no namespaces, no CRDs, nothing else; the CRD is awaited by discovery."""


def policy_rules() -> list[dict[str, list[str]]]:
    """As the ``rules`` of a Role or ClusterRole."""
    return [{"apiGroups": [group], "resources": [resource], "verbs": list(verbs)} for group, resource, verbs in RULES]
