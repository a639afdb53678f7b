"""For every rule of the CRD one object that the API server accepts and one that it refuses with the rule's message.

Objects are :data:`BASE` with a JSON merge patch (RFC 7386). A case with ``change`` is about updates: the patches
are applied to :data:`BASE` as it exists in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Patch = Mapping[str, Any]

BASE: dict[str, Any] = {
    "apiVersion": "shapetrace.dev/v1alpha1",
    "kind": "ProfileRun",
    "metadata": {"name": "case"},
    "spec": {
        "suspend": True,  # an operator that watches the same cluster starts nothing
        "engine": {"name": "command", "image": "example.com/engine:1", "args": ["python3", "engine.py"]},
        "accelerator": {"vendor": "none"},
        "storage": {"s3": {"bucket": "traces"}},
    },
}


@dataclass(frozen=True)
class Case:
    """``message`` names the rule."""

    message: str
    accepted: Patch
    refused: Patch
    change: bool = False


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, None removes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _spec(**fields: Any) -> Patch:
    return {"spec": fields}


def _model(**fields: Any) -> Patch:
    return _spec(models=[fields])


def _env(**fields: Any) -> Patch:
    return _spec(engine={"env": [fields]})


def _s3(**fields: Any) -> Patch:
    return _spec(storage={"s3": fields})


def _pod(**fields: Any) -> Patch:
    return _spec(pod=fields)


def _tolerate(**fields: Any) -> Patch:
    return _pod(tolerations=[fields])


def _nodes(**fields: Any) -> Patch:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [fields]}]}
    return _pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


def _torch(**fields: Any) -> Patch:
    return _spec(engine={"name": "torch", "image": None, "args": None}, **fields)


def _target(**fields: Any) -> dict[str, Any]:
    return {"targets": [{"runner": "decode", **fields}]}


def _unchanged(field: str, change: Any) -> Case:
    """The field cannot be changed; that it stays while ``suspend`` changes is accepted."""
    message = f"spec.{field} cannot be changed: delete the run and apply it again, or give it another name"
    return Case(message, _spec(suspend=False, ttlSecondsAfterFinished=60), _spec(**{field: change}), change=True)


_REFERENCE = {"name": "object", "key": "key"}
_PVC = {"claimName": "weights"}

_IMMUTABLE = [
    _unchanged("models", [{"name": "other/model"}]),
    _unchanged("engine", {"args": ["python3", "other.py"]}),
    _unchanged("parallelism", {"tensor": 2}),
    _unchanged("capture", {"flops": True}),
    _unchanged("accelerator", {"extraResources": {"rdma/hca": 1}}),
    _unchanged("storage", {"s3": {"region": "eu-west-1"}}),
    _unchanged("pod", {"labels": {"team": "kernels"}}),
    _unchanged("retries", 1),
    _unchanged("pendingTimeoutSeconds", 60),
    _unchanged("activeDeadlineSeconds", 60),
    _unchanged("uploadTimeoutSeconds", 60),
    _unchanged("disruptionGraceSeconds", 61),
]

_NAMES = [
    Case(
        "metadata.name is longer than 63 characters",
        {"metadata": {"name": "n" * 63}},
        {"metadata": {"name": "n" * 64}},
    ),
    Case(
        "metadata.name holds something other than lower-case letters, digits and dashes, or begins or ends with a dash",
        {"metadata": {"name": "0-run-1"}},
        {"metadata": {"name": "run.1"}},
    ),
]

_MODELS = [
    Case(
        "models holds a role twice: only adapter may be given more than once",
        _spec(models=[{"name": "a/b"}, {"role": "adapter", "name": "a/c"}, {"role": "adapter", "name": "a/d"}]),
        _spec(models=[{"name": "a/b"}, {"role": "target", "path": "/weights"}]),
    ),
    Case("a model has exactly one source: set one of name, path and pvc", _model(pvc=_PVC), _model(name="a", pvc=_PVC)),
    Case(
        "revision belongs to a model given by name: leave it out for path and pvc",
        _model(name="a/b", revision="main"),
        _model(path="/weights", revision="main"),
    ),
    Case(
        "tokenSecretRef belongs to a model given by name: leave it out for path and pvc",
        _model(name="a/b", tokenSecretRef=_REFERENCE),
        _model(path="/weights", tokenSecretRef=_REFERENCE),
    ),
]

_ENGINES = [
    Case(
        "engine.image is needed: only the engine torch has an image of its own",
        _torch(capture=_target(sizes=[1])),
        _spec(engine={"image": None}),
    ),
    Case(
        "the engine command runs engine.args: give the program and its arguments",
        _spec(engine={"name": "vllm", "args": None}),
        _spec(engine={"args": []}),
    ),
    Case(
        "the engine torch is tensor parallel only: leave pipeline and dataReplicas at 1",
        _torch(capture=_target(sizes=[1]), parallelism={"tensor": 8}),
        _torch(capture=_target(sizes=[1]), parallelism={"dataReplicas": 2}),
    ),
    Case(
        "the engine torch captures what it is told: give exactly one entry of capture.targets, with sizes",
        _torch(capture=_target(sizes=[1, 2], variants=[{"axis": "lora", "values": ["lora", "nolora"]}])),
        _torch(capture=_target(unit="bs")),
    ),
    Case(
        "a variable has exactly one of value and valueFrom",
        _env(name="DEBUG", value=""),
        _env(name="DEBUG"),
    ),
    Case(
        "valueFrom has exactly one source: set secretKeyRef or configMapKeyRef",
        _env(name="DEBUG", valueFrom={"configMapKeyRef": _REFERENCE}),
        _env(name="DEBUG", valueFrom={"configMapKeyRef": _REFERENCE, "secretKeyRef": _REFERENCE}),
    ),
    Case(
        "variables that begin with SHAPETRACE_ are set by shapetrace: use the fields of the spec",
        _env(name="MY_SHAPETRACE_", value="1"),
        _env(name="SHAPETRACE_SPOOL", value="/elsewhere"),
    ),
    Case(
        "credentials of object storage never reach the engine: set storage.s3.credentialsSecretRef",
        _env(name="AWS_REGION", value="eu-west-1"),
        _env(name="AWS_SECRET_ACCESS_KEY", valueFrom={"secretKeyRef": _REFERENCE}),
    ),
    Case(
        "PYTHONPATH is put behind shapetrace's own path: give it as value, not as valueFrom",
        _env(name="PYTHONPATH", value="/opt/mine"),
        _env(name="PYTHONPATH", valueFrom={"configMapKeyRef": _REFERENCE}),
    ),
    Case(
        "engine.cache is exactly one of emptyDir and pvc",
        _spec(engine={"cache": {"emptyDir": {"sizeLimit": "1Gi"}}}),
        _spec(engine={"cache": {"emptyDir": {}, "pvc": _PVC}}),
    ),
    Case(
        "tensor x pipeline x dataReplicas is more than 64, the ranks that one pod can hold",
        _spec(parallelism={"tensor": 8, "pipeline": 4, "dataReplicas": 2}),
        _spec(parallelism={"tensor": 8, "pipeline": 4, "dataReplicas": 3}),
    ),
]

_CAPTURE = [
    Case(
        "capture.listedRanks goes with ranks: Listed, and only with it",
        _spec(capture={"ranks": "Listed", "listedRanks": [0]}),
        _spec(capture={"listedRanks": [0]}),
    ),
    Case(
        "capture.listedRanks names a rank that does not exist: ranks count from 0 to the last one of "
        "tensor x pipeline x dataReplicas",
        _spec(capture={"ranks": "Listed", "listedRanks": [1, 3]}, parallelism={"tensor": 2, "pipeline": 2}),
        _spec(capture={"ranks": "Listed", "listedRanks": [1, 4]}, parallelism={"tensor": 2, "pipeline": 2}),
    ),
    Case(
        "the axis of a variant has lower-case letters and digits only and begins with a letter: lora, not LoRA",
        _spec(capture=_target(variants=[{"axis": "lora2", "values": ["a"]}])),
        _spec(capture=_target(variants=[{"axis": "LoRA", "values": ["a"]}])),
    ),
    Case(
        "the axis epoch is taken: it counts how often an engine captured again",
        _spec(capture=_target(variants=[{"axis": "epochs", "values": ["a"]}])),
        _spec(capture=_target(variants=[{"axis": "epoch", "values": ["a"]}])),
    ),
]

_ACCELERATORS = [
    Case(
        "accelerator.resourceName needs a vendor: set vendor amd or nvidia, or leave resourceName out",
        _spec(accelerator={"vendor": "nvidia", "resourceName": "nvidia.com/mig-1g.10gb"}),
        _spec(accelerator={"resourceName": "nvidia.com/gpu"}),
    ),
    Case(
        "accelerator.resourceName is an extended resource of the form domain/name, such as nvidia.com/mig-1g.10gb",
        _spec(accelerator={"vendor": "amd", "resourceName": "amd.com/cpx_nps4"}),
        _spec(accelerator={"vendor": "amd", "resourceName": "gpu"}),
    ),
    Case(
        "extraResources has a key that is not of the form [prefix/]name, or begins with shapetrace.dev/, "
        "which is reserved",
        _spec(accelerator={"extraResources": {"rdma/hca": 1}}),
        _spec(accelerator={"extraResources": {"rdma//hca": 1}}),
    ),
    Case(
        "accelerator.extraResources holds extended resources, of the form domain/name; the rest is in pod.resources",
        _spec(accelerator={"extraResources": {"amd.com/gpu": "2"}}),
        _spec(accelerator={"extraResources": {"memory": "2Gi"}}),
    ),
]

_STORAGE = [
    Case(
        "storage.s3.bucket holds two dots in a row, which no bucket's name does",
        _s3(bucket="a.b.c"),
        _s3(bucket="a..b"),
    ),
    Case("storage.s3.prefix may not hold a part '.' or '..'", _s3(prefix="a/..b/c"), _s3(prefix="a/../b")),
    Case(
        "storage.s3.endpoint is not a URL: write it as https://host or https://host:port",
        _s3(endpoint="http://10.0.0.1:8333"),
        _s3(endpoint="10.0.0.1:8333"),
    ),
    Case(
        "storage.s3.endpoint may hold neither user and password nor a query: use credentialsSecretRef",
        _s3(endpoint="https://store.example.com"),
        _s3(endpoint="https://user:word@store.example.com"),
    ),
    Case(
        "caBundle has exactly one source: set configMapKeyRef or secretKeyRef",
        _s3(caBundle={"configMapKeyRef": _REFERENCE}),
        _s3(caBundle={}),
    ),
    Case(
        "sse.kmsKeyId goes with algorithm: aws:kms only",
        _s3(sse={"algorithm": "aws:kms", "kmsKeyId": "alias/traces"}),
        _s3(sse={"algorithm": "AES256", "kmsKeyId": "alias/traces"}),
    ),
]

_PODS = [
    *(
        Case(
            f"{field} has a key that is not of the form [prefix/]name, or begins with shapetrace.dev/, "
            "which is reserved",
            _pod(**{field: {"kueue.x-k8s.io/queue-name": "team", "plain": ""}}),
            _pod(**{field: {key: "x"}}),
        )
        for field, key in (("nodeSelector", "a b"), ("labels", "shapetrace.dev/run"), ("annotations", "/name"))
    ),
    Case(
        "a toleration without a key tolerates every taint: it needs operator: Exists",
        _tolerate(operator="Exists"),
        _tolerate(value="x"),
    ),
    Case(
        "a toleration with operator: Exists takes no value",
        _tolerate(key="amd.com/gpu", value="present"),
        _tolerate(key="amd.com/gpu", operator="Exists", value="present"),
    ),
    Case(
        "tolerationSeconds goes with effect: NoExecute only",
        _tolerate(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", tolerationSeconds=120),
        _tolerate(key="node.kubernetes.io/unreachable", operator="Exists", tolerationSeconds=120),
    ),
    Case(
        "values goes with the operators In and NotIn, which need at least one, and with no other",
        _nodes(key="gpu", operator="In", values=["mi300x", "mi355x"]),
        _nodes(key="gpu", operator="In"),
    ),
    *(
        Case(
            f"pod.resources.{field} is about cpu, memory and ephemeral-storage; anything else is in accelerator",
            _pod(resources={field: {"cpu": 2, "memory": "16Gi"}}),
            _pod(resources={field: {"amd.com/gpu": 2}}),
        )
        for field in ("requests", "limits")
    ),
]

CASES = [*_IMMUTABLE, *_NAMES, *_MODELS, *_ENGINES, *_CAPTURE, *_ACCELERATORS, *_STORAGE, *_PODS]
