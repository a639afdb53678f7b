"""Volumes of the capture pod, and where containers see them."""

from __future__ import annotations

from shapetrace_api.spec import ProfileRunSpec
from shapetrace_api.storage import S3
from shapetrace_contract import names

from shapetrace_operator.build.defaults import GIB, MIB, Defaults
from shapetrace_operator.build.resources import mebibytes, shm_bytes, size_bytes, spool_bytes
from shapetrace_operator.objects import Object

CACHE_MOUNT = "/cache"
HOME_MOUNT = "/home/shapetrace"
CA_FOLDER = "/etc/shapetrace/ca"
CA_FILE = "ca.crt"
MODELS_FOLDER = "/models"

PAYLOAD_BYTES = 64 * MIB
"""The payload is a few hundred kB of Python; the bound only stops an accident."""
OWN_TMP_BYTES = 256 * MIB
ENGINE_TMP_BYTES = 20 * GIB
ENGINE_HOME_BYTES = 5 * GIB
CACHE_BYTES = 100 * GIB
"""Kernels and downloaded weights. The pod is evicted beyond it, as any pod that fills its node's disk would be."""


def _memory(name: str, count_bytes: int) -> Object:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": mebibytes(count_bytes)}}


def _disk(name: str, count_bytes: int) -> Object:
    return {"name": name, "emptyDir": {"sizeLimit": mebibytes(count_bytes)}}


def own_tmp() -> Object:
    """Scratch space of our own containers: their root file system is read-only."""
    return _disk("own-tmp", OWN_TMP_BYTES)


def capture_volumes(spec: ProfileRunSpec, defaults: Defaults) -> list[Object]:
    """All volumes of the capture pod."""
    volumes = [
        _memory("spool", spool_bytes(spec, defaults)),
        _memory("shm", shm_bytes(spec, defaults)),
        _disk("payload", PAYLOAD_BYTES),
        own_tmp(),
        _disk("tmp", ENGINE_TMP_BYTES),
        _disk("home", ENGINE_HOME_BYTES),
        _cache(spec),
    ]
    volumes += [
        {"name": f"model-{index}", "persistentVolumeClaim": {"claimName": model.pvc.claim_name, "readOnly": True}}
        for index, model in enumerate(spec.models)
        if model.pvc is not None
    ]
    return volumes + ca_volumes(spec.storage.s3)


def _cache(spec: ProfileRunSpec) -> Object:
    cache = spec.engine.cache
    if cache is not None and cache.pvc is not None:
        return {"name": "cache", "persistentVolumeClaim": {"claimName": cache.pvc.claim_name}}
    asked = cache.empty_dir.size_limit if cache is not None and cache.empty_dir is not None else None
    return _disk("cache", size_bytes(asked, CACHE_BYTES))


def engine_mounts(spec: ProfileRunSpec) -> list[Object]:
    """What the engine sees. Its payload is read-only: nothing that runs there may change what records it."""
    mounts: list[Object] = [
        {"name": "spool", "mountPath": names.SPOOL_MOUNT},
        {"name": "payload", "mountPath": names.PAYLOAD_MOUNT, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the pod's own, not this machine's
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "home", "mountPath": HOME_MOUNT},
        {"name": "cache", "mountPath": CACHE_MOUNT},
    ]
    return mounts + [
        {"name": f"model-{index}", "mountPath": f"{MODELS_FOLDER}/{index}", "readOnly": True}
        for index, model in enumerate(spec.models)
        if model.pvc is not None
    ]


def own_tmp_mount() -> Object:
    """Scratch space of our own containers."""
    return {"name": "own-tmp", "mountPath": "/tmp"}  # noqa: S108


def ca_volumes(s3: S3) -> list[Object]:
    """The certificates to trust, if the run names some."""
    bundle = s3.ca_bundle
    if bundle is None:
        return []
    reference = bundle.config_map_key_ref or bundle.secret_key_ref
    if reference is None:
        return []
    items = [{"key": reference.key, "path": CA_FILE}]
    if bundle.config_map_key_ref is not None:
        return [{"name": "ca", "configMap": {"name": reference.name, "items": items}}]
    return [{"name": "ca", "secret": {"secretName": reference.name, "items": items}}]


def ca_mounts(s3: S3) -> list[Object]:
    """Where our containers see the certificates."""
    return [{"name": "ca", "mountPath": CA_FOLDER, "readOnly": True}] if ca_volumes(s3) else []
