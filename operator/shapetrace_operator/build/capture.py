"""The capture Job of an attempt: created once, never applied again (a template is immutable, and queues change it)."""

from __future__ import annotations

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_contract import names
from shapetrace_contract.reasons import EXIT_CODES
from shapetrace_contract.serving import SERVING

from shapetrace_operator.build import environment, metadata, resources, volumes
from shapetrace_operator.build.defaults import Defaults
from shapetrace_operator.build.names import ANNOTATION_RETRIES, capture_job_name
from shapetrace_operator.build.security import container_security, pod_security
from shapetrace_operator.objects import Object

NODE_LOSS_SECONDS = 120
"""How long a pod stays bound to a node that does not answer: a node turns NotReady after an API server has been away
for 40 s, and comes back by itself."""
BACKSTOP_SECONDS = 900
"""The Job's own deadline lies this far behind the operator's clocks: it only acts where no operator does."""


def capture_job(run: Object, spec: ProfileRunSpec, attempt: int, retries: int, defaults: Defaults) -> Object:
    """The Job of attempt ``attempt``; ``retries`` failed attempts before it count against spec.retries."""
    labels = metadata.labels(run, spec, attempt, names.ROLE_CAPTURE)
    deadline_seconds = (
        spec.pending_timeout_seconds
        + spec.active_deadline_seconds
        + spec.upload_timeout_seconds
        + spec.disruption_grace_seconds
        + BACKSTOP_SECONDS
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": capture_job_name(run["metadata"]["name"], run["metadata"]["uid"], attempt),
            "namespace": run["metadata"]["namespace"],
            "labels": labels,
            "annotations": {**metadata.job_annotations(run, spec), ANNOTATION_RETRIES: str(retries)},
            "ownerReferences": [metadata.owner_reference(run)],
        },
        "spec": {
            # one pod for one attempt: a second one would write the same keys
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": deadline_seconds,
            # classifies only; never Ignore, which starts a replacement pod even with backoffLimit 0
            "podFailurePolicy": {"rules": [_fail_on_our_codes()]},
            "template": {
                "metadata": {"labels": labels, "annotations": metadata.pod_annotations(run, spec)},
                "spec": _pod(run, spec, attempt, defaults),
            },
        },
    }


def _fail_on_our_codes() -> Object:
    codes = sorted(code for code in EXIT_CODES if code != 0)
    return {"action": "FailJob", "onExitCodes": {"operator": "In", "values": codes}}


def _pod(run: Object, spec: ProfileRunSpec, attempt: int, defaults: Defaults) -> Object:
    options = spec.pod
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.disruption_grace_seconds,
        "securityContext": pod_security(options),
        "tolerations": tolerations(spec),
        "volumes": volumes.capture_volumes(spec, defaults),
        "initContainers": [
            _preflight(run, spec, attempt, defaults),
            _inject(defaults),
            _collector(run, spec, attempt, defaults),
        ],
        "containers": [_engine(run, spec, attempt, defaults)],
    }
    if secrets := pull_secrets(spec, defaults):
        pod["imagePullSecrets"] = secrets
    optional = {
        "serviceAccountName": options.service_account_name,
        "nodeSelector": options.node_selector or None,
        "affinity": options.affinity.to_dict() if options.affinity else None,
        "priorityClassName": options.priority_class_name,
        "schedulerName": options.scheduler_name,
        "runtimeClassName": options.runtime_class_name,
    }
    return {**pod, **{name: value for name, value in optional.items() if value is not None}}


def tolerations(spec: ProfileRunSpec) -> list[Object]:
    """The run's tolerations; those for a node that does not answer are never shorter than :data:`NODE_LOSS_SECONDS`."""
    ours: list[Object] = [
        {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute"}
        for taint in ("not-ready", "unreachable")
    ]
    theirs = [toleration.to_dict() for toleration in spec.pod.tolerations]
    named = {toleration.get("key") for toleration in theirs}
    bound = {"tolerationSeconds": NODE_LOSS_SECONDS}
    return theirs + [{**toleration, **bound} for toleration in ours if toleration["key"] not in named]


def pull_secrets(spec: ProfileRunSpec, defaults: Defaults) -> list[Object]:
    """Secrets to pull images with: the run's, then the installation's."""
    found = [secret.name for secret in spec.pod.image_pull_secrets]
    return [{"name": name} for name in dict.fromkeys([*found, *defaults.image_pull_secrets])]


def own_container(name: str, module: str, defaults: Defaults) -> Object:
    """A container that runs a module of ours."""
    return {
        "name": name,
        "image": defaults.image,
        "imagePullPolicy": defaults.image_pull_policy,
        "command": ["python3", "-m", module],
        "securityContext": container_security(),
        "terminationMessagePolicy": "File",
    }


def _preflight(run: Object, spec: ProfileRunSpec, attempt: int, defaults: Defaults) -> Object:
    s3 = spec.storage.s3
    return {
        **own_container(names.CONTAINER_PREFLIGHT, "shapetrace_collector.preflight", defaults),
        "resources": resources.PREFLIGHT,
        "env": [
            environment.run_setting(run, attempt),
            environment.store_setting(spec),
            *environment.pod_identity(),
            *environment.own_home(),
            *environment.credentials(spec),
        ],
        "volumeMounts": [volumes.own_tmp_mount(), *volumes.ca_mounts(s3)],
    }


def _inject(defaults: Defaults) -> Object:
    return {
        "name": names.CONTAINER_INJECT,
        "image": defaults.image,
        "imagePullPolicy": defaults.image_pull_policy,
        "command": ["cp", "-r", f"{names.IMAGE_PAYLOAD}/.", f"{names.PAYLOAD_MOUNT}/"],
        "securityContext": container_security(),
        "resources": resources.INJECT,
        "volumeMounts": [{"name": "payload", "mountPath": names.PAYLOAD_MOUNT}],
    }


def _collector(run: Object, spec: ProfileRunSpec, attempt: int, defaults: Defaults) -> Object:
    """A native sidecar: started before the engine, restarted by the kubelet, ended after it.

    Without a startup probe: the engine takes seconds to load, and the spool keeps what comes before that.
    """
    s3 = spec.storage.s3
    return {
        **own_container(names.CONTAINER_COLLECTOR, "shapetrace_collector", defaults),
        "restartPolicy": "Always",
        "resources": resources.COLLECTOR,
        "env": [
            environment.literal(names.ENV_SPOOL, names.SPOOL_MOUNT),
            environment.run_setting(run, attempt),
            environment.store_setting(spec),
            environment.engine_setting(spec),
            environment.limits_setting(spec),
            *environment.pod_identity(),
            *environment.own_home(),
            *environment.credentials(spec),
        ],
        "ports": [{"name": "progress", "containerPort": names.PROGRESS_PORT, "protocol": "TCP"}],
        "volumeMounts": [
            {"name": "spool", "mountPath": names.SPOOL_MOUNT},
            volumes.own_tmp_mount(),
            *volumes.ca_mounts(s3),
        ],
    }


def _engine(run: Object, spec: ProfileRunSpec, attempt: int, defaults: Defaults) -> Object:
    default_image = spec.engine.image is None
    # serving engines write files where they are started, and the folders of stock images belong to root
    folder = {"workingDir": volumes.HOME_MOUNT} if spec.engine.name.value in SERVING else {}
    return {
        "name": names.CONTAINER_ENGINE,
        "image": spec.engine.image or defaults.engine_image,
        "imagePullPolicy": defaults.image_pull_policy,
        "command": ["python3", "-m", "shapetrace_launcher"],
        **folder,
        # stock images write into their own folders; ours does not
        "securityContext": container_security(read_only=default_image),
        "terminationMessagePolicy": "File",
        "resources": resources.engine_resources(spec, defaults),
        "env": environment.engine_environment(run, spec, attempt),
        "volumeMounts": volumes.engine_mounts(spec),
    }
