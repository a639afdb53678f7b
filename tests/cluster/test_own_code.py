"""A user's own script in an image that knows nothing of us; and labels that lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cluster import Cluster, Operator
from runs import condition, manifest_of, profile_run

Apply = Callable[[dict[str, Any]], str]
Finish = Callable[..., dict[str, Any]]

SCRIPT = """
import torch, shapetrace_capture
weight = torch.randn(64, 64)
for size in (1, 2, 4, 8):
    for activation in ("relu", "gelu"):
        rows = torch.randn({rows}, 64)
        with shapetrace_capture.shape(size=size, unit="bs", runner="MyRunner", activation=activation):
            hidden = torch.mm(rows, weight)
            getattr(torch.nn.functional, activation)(hidden)
"""


def command_run(name: str, storage: dict[str, Any], image: str, rows: str) -> dict[str, Any]:
    """The script under `engine: command`, in Debian's Python and torch."""
    return profile_run(
        name,
        storage,
        spec={
            "engine": {"name": "command", "image": image, "args": ["python3", "-c", SCRIPT.replace("{rows}", rows)]},
            "capture": {"targets": None},
        },
    )


def test_a_users_script_in_a_stock_image_yields_its_tagged_traces(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(command_run("own", storage, cluster.image("shapetrace-engine"), "size"))
    run = wait_finished("own")
    assert (run["status"]["phase"], run["status"]["verdict"]) == ("Succeeded", "Complete"), run["status"]
    found = manifest_of(store, bucket, run)
    assert sorted(trace["tag"] for trace in found["traces"]) == sorted(
        f"MyRunner__bs_{size}__activation-{activation}" for size in (1, 2, 4, 8) for activation in ("relu", "gelu")
    )
    assert {trace["support"]["size"] for trace in found["traces"]} == {"proven"}
    assert {trace["support"]["variants"]["activation"] for trace in found["traces"]} == {"distinct"}


def test_swapped_sizes_are_mislabelled_and_it_is_said_what_each_holds(
    cluster: Cluster,
    operator: Operator,
    namespace: str,
    storage: dict[str, Any],
    store: Any,
    bucket: str,
    apply_run: Apply,
    wait_finished: Finish,
) -> None:
    apply_run(command_run("liar", storage, cluster.image("shapetrace-engine"), "{2: 4, 4: 2}.get(size, size)"))
    run = wait_finished("liar")
    assert (run["status"]["phase"], run["status"]["verdict"]) == ("Failed", "Mislabelled"), run["status"]
    message = condition(run, "Succeeded")["message"]
    assert "MyRunner__bs_2" in message or "MyRunner__bs_4" in message, message
    found = manifest_of(store, bucket, run)
    assert len(found["traces"]) == 8, "all that was delivered is kept and listed"
    said = json.dumps(found["reasons"]) + json.dumps([trace["evidence"] for trace in found["traces"]])
    assert "holds size 4" in said
    assert "holds size 2" in said
