"""Labels, annotations and owners of a run's children."""

from __future__ import annotations

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_contract import names

from shapetrace_operator.objects import Object

QUEUE_PREFIX = "kueue.x-k8s.io/"
"""Queue labels go to the capture Job only: a finish that waited for quota would keep a run from its end."""

UNDISTURBED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""A capture cannot be moved: autoscalers leave its node alone."""
NO_MESH = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}
"""A mesh's sidecar would keep a Job from ending."""


def owner_reference(run: Object) -> Object:
    """The run controls the child. Deleting the run never waits for it, and needs no right on finalizers."""
    return {
        "apiVersion": f"{names.GROUP}/{names.API_VERSION}",
        "kind": names.KIND,
        "name": run["metadata"]["name"],
        "uid": run["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def labels(run: Object, spec: ProfileRunSpec, attempt: int, role: str) -> dict[str, str]:
    """Labels of a Job and of its pods."""
    theirs = {
        name: value
        for name, value in spec.pod.labels.items()
        if role == names.ROLE_CAPTURE or not name.startswith(QUEUE_PREFIX)
    }
    ours = {
        names.LABEL_RUN: run["metadata"]["uid"],
        names.LABEL_ATTEMPT: str(attempt),
        names.LABEL_ROLE: role,
        "app.kubernetes.io/managed-by": "shapetrace",
    }
    return {**theirs, **ours}


def job_annotations(run: Object, spec: ProfileRunSpec) -> dict[str, str]:
    """Annotations of a Job."""
    return {**spec.pod.annotations, names.ANNOTATION_RUN_NAME: run["metadata"]["name"]}


def pod_annotations(run: Object, spec: ProfileRunSpec) -> dict[str, str]:
    """Annotations of a pod; a run may say otherwise about autoscalers and meshes."""
    return {**UNDISTURBED, **NO_MESH, **job_annotations(run, spec)}
