"""Which model a run loaded can be told from what the manifest says, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_contract.model import commit_of, identify

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CACHED = f"models--org--large/snapshots/{COMMIT}"


@pytest.mark.parametrize(
    ("model", "identity"),
    [
        ({"name": "org/large", "path": "/cache/of/the/hub"}, ("org/large", "hub", None)),
        ({"path": "/private/place/large-8b"}, ("large-8b", "path", None)),
        ({"path": "/private/place/large-8b/"}, ("large-8b", "path", None)),
        ({"path": "/"}, (None, "path", None)),
        (
            {"pvc": {"claimName": "weights", "path": "team/large"}, "path": "/models/0/team/large"},
            ("large", "pvc", None),
        ),
        ({"pvc": {"claimName": "weights"}, "path": "/models/0"}, ("weights", "pvc", None)),
        ({"path": f"/hub/{CACHED}"}, ("org/large", "path", COMMIT)),
        ({"pvc": {"claimName": "weights", "path": CACHED}}, ("org/large", "pvc", COMMIT)),
        ({}, (None, "path", None)),
    ],
)
def test_a_model_is_called_by_its_name_or_by_the_end_of_its_path(model: dict[str, Any], identity: Any) -> None:
    assert identify(model) == identity


@pytest.mark.parametrize(
    "folder", ["", COMMIT, f"/cache/blobs/{COMMIT}", f"/cache/snapshots/{COMMIT[:-1]}", "snapshots/main"]
)
def test_only_a_snapshots_folder_tells_a_commit(folder: str) -> None:
    assert commit_of(f"/cache/{CACHED}") == COMMIT
    assert commit_of(folder) is None
