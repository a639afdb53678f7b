"""The finish Job: no device, reads the parts, judges, writes the manifest. Idempotent, so it may be made again."""

from __future__ import annotations

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_contract import names
from shapetrace_contract.reasons import Reason, exit_code

from shapetrace_operator.build import environment, metadata, resources, volumes
from shapetrace_operator.build.capture import own_container, pull_secrets, tolerations
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.build.names import ANNOTATION_FINISH, ANNOTATION_RETRIES, finish_job_name
from shapetrace_operator.build.security import pod_security
from shapetrace_operator.objects import Object

DEADLINE_MARGIN_SECONDS = 120
"""Above uploadTimeoutSeconds: start of the pod, and the reading of all parts."""
BACKOFF_LIMIT = 3
"""With the patience of each try (shapetrace_finish.patience) this outlasts the restart of a store."""
GRACE_SECONDS = 5
"""A finish that is stopped loses nothing: the next one does the same."""


def finish_job(
    run: Object,
    spec: ProfileRunSpec,
    attempt: int,
    number: int,
    retries: int,
    defaults: Defaults,
    image_id: str = "",
) -> Object:
    """Finish ``number`` (from 1) of an attempt. ``image_id`` is what the kubelet made of the engine's image."""
    labels = metadata.labels(run, spec, attempt, names.ROLE_FINISH)
    marks = {ANNOTATION_FINISH: str(number), ANNOTATION_RETRIES: str(retries)}
    # trying these again changes nothing
    hopeless = sorted(exit_code(reason) for reason in (Reason.NOTHING_TO_FINISH, Reason.BAD_CONFIGURATION))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": finish_job_name(run["metadata"]["name"], run["metadata"]["uid"], attempt, number),
            "namespace": run["metadata"]["namespace"],
            "labels": labels,
            "annotations": {**metadata.job_annotations(run, spec), **marks},
            "ownerReferences": [metadata.owner_reference(run)],
        },
        "spec": {
            "backoffLimit": BACKOFF_LIMIT,
            "activeDeadlineSeconds": spec.upload_timeout_seconds + DEADLINE_MARGIN_SECONDS,
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": hopeless}}]
            },
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {**metadata.NO_MESH, **metadata.job_annotations(run, spec)},
                },
                "spec": _pod(run, spec, attempt, defaults, image_id),
            },
        },
    }


def _pod(run: Object, spec: ProfileRunSpec, attempt: int, defaults: Defaults, image_id: str) -> Object:
    """Not bound to the capture's nodes, scheduler or priority: the finish runs wherever there is room."""
    s3 = spec.storage.s3
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod_security(spec.pod),
        "tolerations": tolerations(spec),
        "volumes": [volumes.own_tmp(), *volumes.ca_volumes(s3)],
        "containers": [
            {
                **own_container(names.CONTAINER_FINISH, "shapetrace_finish", defaults),
                "resources": resources.FINISH,
                "env": [
                    environment.run_setting(run, attempt),
                    environment.store_setting(spec),
                    environment.engine_setting(spec),
                    environment.image_setting(spec, defaults.engine_image, image_id),
                    environment.capture_setting(spec),
                    environment.limits_setting(spec),
                    *environment.pod_identity(),
                    *environment.own_home(),
                    *environment.credentials(spec),
                ],
                "volumeMounts": [volumes.own_tmp_mount(), *volumes.ca_mounts(s3)],
            }
        ],
    }
    if secrets := pull_secrets(spec, defaults):
        pod["imagePullSecrets"] = secrets
    if spec.pod.service_account_name:
        pod["serviceAccountName"] = spec.pod.service_account_name
    return pod
