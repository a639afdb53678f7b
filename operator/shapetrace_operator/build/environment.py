"""Environment of the containers: our settings as JSON, credentials by reference, folders that can be written."""

from __future__ import annotations

from typing import Any

from shapetrace_api.engine import Vendor
from shapetrace_api.spec import ProfileRunSpec
from shapetrace_contract import names
from shapetrace_contract.settings import CaptureSettings, EngineSettings, ImageSettings, Limits, RunId, StoreSettings

from shapetrace_operator.build.volumes import CA_FILE, CA_FOLDER, CACHE_MOUNT, HOME_MOUNT, MODELS_FOLDER
from shapetrace_operator.objects import Object

USER_NAME = "shapetrace"
"""The fixed user has no entry in /etc/passwd: ``getpass.getuser()`` and caches fail without USER and HOME."""
DEVICES = {Vendor.AMD: "rocm", Vendor.NVIDIA: "cuda", Vendor.NONE: "cpu"}
OURS = "SHAPETRACE_"
CACHES = {
    "XDG_CACHE_HOME": "xdg",
    "HF_HOME": "huggingface",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "nv",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TILELANG_CACHE_DIR": "tilelang",
    "SGLANG_CACHE_DIR": "sglang",
    "SGLANG_DG_CACHE_DIR": "deep_gemm",  # older SGLang does not derive it from SGLANG_CACHE_DIR
    "VLLM_CACHE_ROOT": "vllm",
}
"""Variable -> folder of the cache volume: weights, and kernels that are compiled when they are first used. By default
all of this goes below a home that is not the run's user's, or is gone with the pod."""


def literal(name: str, value: str) -> Object:
    """A variable with exactly this value: Kubernetes would read ``$(NAME)`` as a reference, and ``$$`` as ``$``."""
    return {"name": name, "value": value.replace("$", "$$")}


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def pod_identity() -> list[Object]:
    """Who the pod is, from the kubelet."""
    return [
        _field(names.ENV_POD_NAME, "metadata.name"),
        _field(names.ENV_POD_UID, "metadata.uid"),
        _field(names.ENV_NODE_NAME, "spec.nodeName"),
        literal(names.ENV_POD_INDEX, "0"),
    ]


def run_setting(run: Object, attempt: int) -> Object:
    """Which run and attempt this is."""
    metadata = run["metadata"]
    setting = RunId(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"], attempt=attempt)
    return literal(RunId.ENV, setting.to_env())


def store_setting(spec: ProfileRunSpec) -> Object:
    """Where objects go; holds no secret."""
    s3 = spec.storage.s3
    setting = StoreSettings(
        kind="s3",
        bucket=s3.bucket,
        prefix=s3.prefix,
        endpoint=s3.endpoint or "",
        region=s3.region or "",
        pathStyle=s3.path_style,
        caBundle=f"{CA_FOLDER}/{CA_FILE}" if s3.ca_bundle else "",
        sse=s3.sse.algorithm.value if s3.sse else "",
        sseKmsKeyId=(s3.sse.kms_key_id or "") if s3.sse else "",
    )
    return literal(StoreSettings.ENV, setting.to_env())


def engine_setting(spec: ProfileRunSpec) -> Object:
    """What the launcher starts."""
    setting = EngineSettings(
        name=spec.engine.name.value,
        args=list(spec.engine.args),
        models=[_model(index, model.to_dict()) for index, model in enumerate(spec.models)],
        parallelism=spec.parallelism.to_dict(),
        device=DEVICES[spec.accelerator.vendor],
    )
    return literal(EngineSettings.ENV, setting.to_env())


def image_setting(spec: ProfileRunSpec, image: str, image_id: str) -> Object:
    """For the finish: the image that the engine ran in."""
    return literal(ImageSettings.ENV, ImageSettings(reference=spec.engine.image or image, id=image_id).to_env())


def _model(index: int, model: dict[str, Any]) -> dict[str, Any]:
    """A model for launcher and finish: where it is in a claim has become a path, references to Secrets stay behind."""
    claim = model.get("pvc")
    model.pop("tokenSecretRef", None)
    if claim is not None:
        model["path"] = "/".join(part for part in (f"{MODELS_FOLDER}/{index}", claim.get("path")) if part)
    return model


def capture_setting(spec: ProfileRunSpec) -> Object:
    """What the hook records."""
    capture = spec.capture
    setting = CaptureSettings(
        ranks=capture.selected_ranks,
        stacks=capture.stacks.value,
        recordShapes=capture.record_shapes,
        flops=capture.flops,
        memory=capture.memory,
        strict=capture.strict,
        targets=[target.to_dict() for target in capture.targets],
    )
    return literal(CaptureSettings.ENV, setting.to_env())


def limits_setting(spec: ProfileRunSpec) -> Object:
    """Time limits of the attempt."""
    setting = Limits(
        uploadTimeoutSeconds=spec.upload_timeout_seconds,
        disruptionGraceSeconds=spec.disruption_grace_seconds,
        activeDeadlineSeconds=spec.active_deadline_seconds,
    )
    return literal(Limits.ENV, setting.to_env())


def own_home() -> list[Object]:
    """Home of our containers: the scratch volume."""
    return [literal("HOME", "/tmp"), literal("USER", USER_NAME), literal("LOGNAME", USER_NAME)]  # noqa: S108


def credentials(spec: ProfileRunSpec) -> list[Object]:
    """Access to the bucket from the run's Secret; nothing where the pod has an identity of its own."""
    reference = spec.storage.s3.credentials_secret_ref
    if reference is None:
        return []

    def key(name: str, optional: bool) -> Object:
        selector: Object = {"name": reference.name, "key": name}
        if optional:
            selector["optional"] = True
        return {"name": name, "valueFrom": {"secretKeyRef": selector}}

    return [key("AWS_ACCESS_KEY_ID", False), key("AWS_SECRET_ACCESS_KEY", False), key("AWS_SESSION_TOKEN", True)]


def engine_environment(run: Object, spec: ProfileRunSpec, attempt: int) -> list[Object]:
    """The engine's environment: the user's first, so that a later one of ours holds where both name a variable."""
    asked = [variable.to_dict() for variable in spec.engine.env if not variable.name.startswith(OURS)]
    theirs = {variable["name"]: variable for variable in asked}
    python_path = str(theirs.pop("PYTHONPATH", {}).get("value") or "")
    preset = {
        "HOME": HOME_MOUNT,
        "USER": USER_NAME,
        "LOGNAME": USER_NAME,
        **{name: f"{CACHE_MOUNT}/{folder}" for name, folder in CACHES.items()},
        # Debian's torch is built without libuv, and UCX's signal handler hides the cause of a crash
        "USE_LIBUV": "0",
        "UCX_HANDLE_ERRORS": "none",
        "PYTHONUNBUFFERED": "1",
    }
    tokens = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": model.token_secret_ref.to_dict()}}
        for model in spec.models
        if model.token_secret_ref is not None
    ][:1]
    return [
        *(literal(name, value) for name, value in preset.items() if name not in theirs),
        *(token for token in tokens if "HF_TOKEN" not in theirs),
        *(literal(name, item["value"]) if "value" in item else item for name, item in theirs.items()),
        literal("PYTHONPATH", ":".join(part for part in (names.PAYLOAD_MOUNT, python_path) if part)),
        literal(names.ENV_SPOOL, names.SPOOL_MOUNT),
        run_setting(run, attempt),
        capture_setting(spec),
        engine_setting(spec),
        limits_setting(spec),
        *pod_identity(),
    ]
