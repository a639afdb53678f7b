"""ProfileRuns for tests, small enough for two cores."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

SMALL_ENGINE = ["--layers", "2", "--hidden", "64", "--heads", "4", "--vocabulary", "128"]
"""One capture takes a few milliseconds; importing torch takes the time."""
VARIANTS = [{"axis": "lora", "values": ["lora", "nolora"]}, {"axis": "attention", "values": ["dense", "sparse"]}]


def profile_run(
    name: str,
    storage: Mapping[str, Any],
    *,
    sizes: Sequence[int] = (1, 2),
    tensor: int = 1,
    variants: Sequence[Mapping[str, Any]] = (),
    args: Sequence[str] = SMALL_ENGINE,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A run of the torch engine; ``spec`` is merged over it, member by member (None removes)."""
    run = {
        "apiVersion": "shapetrace.dev/v1alpha1",
        "kind": "ProfileRun",
        "metadata": {"name": name},
        "spec": {
            "engine": {"name": "torch", "args": list(args)},
            "parallelism": {"tensor": tensor},
            "capture": {
                "targets": [{"runner": "decode", "unit": "bs", "sizes": list(sizes), "variants": list(variants)}]
            },
            "accelerator": {"vendor": "none"},
            "storage": {"s3": dict(storage)},
            "uploadTimeoutSeconds": 300,
            "disruptionGraceSeconds": 20,
        },
    }
    return merge(run, {"spec": spec or {}})


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """JSON merge patch (RFC 7386)."""
    result = copy.deepcopy(dict(base))
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merge(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def condition(run: Mapping[str, Any] | None, kind: str) -> dict[str, Any]:
    """A condition of a run by its type; empty where it is not there."""
    conditions = ((run or {}).get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == kind), {})


def finished(run: Mapping[str, Any] | None) -> bool:
    """Whether the run has ended, either way."""
    return condition(run, "Finished").get("status") == "True"


def manifest_of(store: Any, bucket: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest that a run's status names, read from the bucket."""
    key = run["status"]["manifest"]["uri"].removeprefix(f"s3://{bucket}/")
    found: dict[str, Any] = json.loads(store.admin_client().get_object(Bucket=bucket, Key=key)["Body"].read())
    return found
