"""``spec.models``, ``spec.engine``, ``spec.parallelism``, ``spec.accelerator``: what runs, and on what."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from shapetrace_api.scalars import (
    DnsName,
    KeyReference,
    QualifiedName,
    Quantity,
    qualified_keys,
)
from shapetrace_api.schema import ApiModel, ListAtomic, ListMap, Rule, rules

MAX_RANKS = 64
"""One pod on one node; the widest node today shows 64 devices (8 accelerators in 8 partitions each)."""
MAX_ARGUMENT_CHARACTERS = 16_384
"""A whole small script fits into one argument (``python3 -c``)."""

HubName = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$")]
Revision = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/]*$")]
AbsolutePath = Annotated[str, StringConstraints(min_length=2, max_length=1024, pattern=r"^/[^\x00-\x1f]+$")]
VolumeFolder = Annotated[str, StringConstraints(max_length=1024, pattern=r"^([^/.][^/]*(/[^/.][^/]*)*)?$")]
"""No leading slash, and no part that begins with a dot, so that it cannot leave the volume."""
ImageReference = Annotated[
    str, StringConstraints(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/:@]*$")
]
Argument = Annotated[str, StringConstraints(max_length=MAX_ARGUMENT_CHARACTERS)]
VariableName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class ModelRole(StrEnum):
    """What a model is to the engine."""

    TARGET = "target"
    DRAFT = "draft"
    ADAPTER = "adapter"
    TOKENIZER = "tokenizer"


class VolumePath(ApiModel):
    """A folder of a PersistentVolumeClaim."""

    claim_name: DnsName = Field(description="Name of the PersistentVolumeClaim, in the namespace of the run.")
    path: VolumeFolder = Field(
        default="", description="Folder within the volume, without a leading slash; empty means the volume's root."
    )


class Model(ApiModel):
    """A model that the engine loads. Its source is exactly one of name, path and pvc."""

    model_config = rules(
        Rule(
            "[has(self.name), has(self.path), has(self.pvc)].exists_one(given, given)",
            "a model has exactly one source: set one of name, path and pvc",
        ),
        Rule(
            "has(self.name) || !has(self.revision)",
            "revision belongs to a model given by name: leave it out for path and pvc",
        ),
        Rule(
            "has(self.name) || !has(self.tokenSecretRef)",
            "tokenSecretRef belongs to a model given by name: leave it out for path and pvc",
        ),
    )
    role: ModelRole = Field(
        default=ModelRole.TARGET,
        description="What the model is to the engine: the target, a draft for speculative decoding, an adapter (LoRA), "
        "or a tokenizer of its own.",
    )
    name: HubName | None = Field(
        default=None,
        description="Name on the Hugging Face hub, such as 'meta-llama/Llama-3.1-8B'. It is fetched into engine.cache "
        "before the engine starts; with --load-format dummy in engine.args without its weights.",
    )
    path: AbsolutePath | None = Field(default=None, description="Absolute path inside the engine's image.")
    pvc: VolumePath | None = Field(default=None, description="Folder of a PersistentVolumeClaim, mounted read-only.")
    revision: Revision | None = Field(
        default=None, description="Branch, tag or commit on the model hub; the hub's default where absent."
    )
    token_secret_ref: KeyReference | None = Field(
        default=None,
        description="Key of a Secret that holds the hub's access token. The process that fetches the models uses it, "
        "the engine never has it.",
    )


class EngineName(StrEnum):
    """The engines a run can name."""

    SGLANG = "sglang"
    VLLM = "vllm"
    TORCH = "torch"
    COMMAND = "command"


class EnvSource(ApiModel):
    """Where the value of a variable comes from."""

    model_config = rules(
        Rule(
            "has(self.secretKeyRef) != has(self.configMapKeyRef)",
            "valueFrom has exactly one source: set secretKeyRef or configMapKeyRef",
        ),
    )
    secret_key_ref: KeyReference | None = Field(default=None, description="Key of a Secret.")
    config_map_key_ref: KeyReference | None = Field(default=None, description="Key of a ConfigMap.")


class EnvVar(ApiModel):
    """A variable of the engine's environment."""

    model_config = rules(
        Rule("has(self.value) != has(self.valueFrom)", "a variable has exactly one of value and valueFrom"),
        Rule(
            "!self.name.startsWith('SHAPETRACE_')",
            "variables that begin with SHAPETRACE_ are set by shapetrace: use the fields of the spec",
        ),
        Rule(
            "!(self.name in ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN'])",
            "credentials of object storage never reach the engine: set storage.s3.credentialsSecretRef",
        ),
        Rule(
            "self.name != 'PYTHONPATH' || has(self.value)",
            "PYTHONPATH is put behind shapetrace's own path: give it as value, not as valueFrom",
        ),
    )
    name: VariableName = Field(description="Name of the variable.")
    value: Annotated[str, StringConstraints(max_length=4096)] | None = Field(
        default=None, description="Value, taken literally. Secrets belong in valueFrom."
    )
    value_from: EnvSource | None = Field(default=None, description="A Secret or ConfigMap that holds the value.")


class EmptyDir(ApiModel):
    """A folder on the node's disk that lives as long as the pod."""

    size_limit: Quantity | None = Field(
        default=None, description="The pod is evicted when the folder grows beyond this."
    )


class Claim(ApiModel):
    """A PersistentVolumeClaim."""

    claim_name: DnsName = Field(description="Name of the PersistentVolumeClaim, in the namespace of the run.")


class Cache(ApiModel):
    """Where the engine keeps downloads and compiled kernels."""

    model_config = rules(
        Rule("has(self.emptyDir) != has(self.pvc)", "engine.cache is exactly one of emptyDir and pvc"),
    )
    empty_dir: EmptyDir | None = Field(default=None, description="A folder on the node's disk, gone with the pod.")
    pvc: Claim | None = Field(
        default=None,
        description="A PersistentVolumeClaim, mounted read-write: later runs find what earlier ones compiled.",
    )


class Engine(ApiModel):
    """The inference engine whose graph captures are recorded."""

    model_config = rules(
        Rule(
            "self.name == 'torch' || has(self.image)",
            "engine.image is needed: only the engine torch has an image of its own",
        ),
        Rule(
            "self.name != 'command' || self.args.size() > 0",
            "the engine command runs engine.args: give the program and its arguments",
        ),
    )
    name: EngineName = Field(
        description="Which engine: sglang, vllm, torch (a small tensor-parallel decoder that comes with shapetrace, or "
        "a module of yours) or command (any program that marks its captures through shapetrace_capture)."
    )
    image: ImageReference | None = Field(
        default=None,
        description="Container image of the engine, as its vendor makes it: SGLang 0.5.14 or later, vLLM 0.26 or "
        "later; for command any with Python 3.10 or later. It needs nothing of shapetrace, which is injected. Optional "
        "for torch only.",
    )
    args: Annotated[list[Argument], Field(max_length=128), ListAtomic()] = Field(
        default=[],
        description="Arguments added to the engine's command line, after those made from this spec; for command the "
        "whole command line. What is given here takes the place of what shapetrace would add (docs/engines.md). They "
        "are visible to everybody who may read the pod: no secrets.",
    )
    env: Annotated[list[EnvVar], Field(max_length=64), ListMap(("name",))] = Field(
        default=[], description="Variables added to the engine's environment."
    )
    cache: Cache | None = Field(
        default=None,
        description="Where the engine keeps downloads and compiled kernels; a folder on the node where absent.",
    )


class Parallelism(ApiModel):
    """How the model is spread over devices. The number of ranks is tensor x pipeline x dataReplicas."""

    model_config = rules(
        Rule(
            f"self.tensor * self.pipeline * self.dataReplicas <= {MAX_RANKS}",
            f"tensor x pipeline x dataReplicas is more than {MAX_RANKS}, the ranks that one pod can hold",
        ),
    )
    tensor: int = Field(default=1, ge=1, le=MAX_RANKS, description="Ranks that share each layer.")
    pipeline: int = Field(default=1, ge=1, le=MAX_RANKS, description="Stages that share the layers out in turn.")
    data_replicas: int = Field(
        default=1, ge=1, le=MAX_RANKS, description="Copies of the whole model, each with ranks of its own."
    )

    @property
    def ranks(self) -> int:
        """Global ranks of the run."""
        return self.tensor * self.pipeline * self.data_replicas


class Vendor(StrEnum):
    """Who makes the devices."""

    AMD = "amd"
    NVIDIA = "nvidia"
    NONE = "none"


DEVICE_RESOURCES = {Vendor.AMD: "amd.com/gpu", Vendor.NVIDIA: "nvidia.com/gpu"}
"""The names under which the vendors' device plugins offer whole devices."""

_EXTENDED = Rule(
    "self.all(key, key.contains('/') && !key.contains('kubernetes.io/'))",
    "accelerator.extraResources holds extended resources, of the form domain/name; the rest is in pod.resources",
)


class Accelerator(ApiModel):
    """The devices that the engine runs on; each rank gets one."""

    model_config = rules(
        Rule(
            "self.vendor != 'none' || !has(self.resourceName)",
            "accelerator.resourceName needs a vendor: set vendor amd or nvidia, or leave resourceName out",
        ),
        Rule(
            "!has(self.resourceName) || self.resourceName.contains('/')",
            "accelerator.resourceName is an extended resource of the form domain/name, such as nvidia.com/mig-1g.10gb",
        ),
    )
    vendor: Vendor = Field(
        description="Whose devices: amd (ROCm), nvidia (CUDA), or none: the CPU, which every trace then says."
    )
    resource_name: QualifiedName | None = Field(
        default=None, description="Extended resource of one device; amd.com/gpu or nvidia.com/gpu where absent."
    )
    extra_resources: Annotated[
        dict[str, Quantity], Field(max_length=8), qualified_keys("extraResources"), _EXTENDED
    ] = Field(
        default={},
        description="Further extended resources of the engine's container, such as 'rdma/hca: 1'.",
    )

    @property
    def device_resource(self) -> str | None:
        """The extended resource of one device; None where the run uses no accelerator."""
        return self.resource_name or DEVICE_RESOURCES.get(self.vendor)
