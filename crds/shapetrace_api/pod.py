"""``spec.pod``: the options of a pod that a run can set, picked by hand so that the CRD stays small and safe."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from shapetrace_api.scalars import (
    MAX_INT32,
    DnsName,
    LabelValue,
    LocalReference,
    QualifiedName,
    Quantity,
    qualified_keys,
)
from shapetrace_api.schema import ApiModel, ListAtomic, ListMap, ListSet, Rule, rules

GroupId = Annotated[int, Field(ge=1, le=MAX_INT32)]


class PodSecurityContext(ApiModel):
    """Users and groups of the pod. Root is not among them: pods pass Pod Security 'restricted'."""

    run_as_user: int | None = Field(
        default=None, ge=1, le=MAX_INT32, description="User of all containers; a fixed user of shapetrace where absent."
    )
    run_as_group: int | None = Field(
        default=None, ge=1, le=MAX_INT32, description="Primary group of all containers; the user's number where absent."
    )
    fs_group: int | None = Field(
        default=None,
        ge=1,
        le=MAX_INT32,
        description="Group that owns the pod's volumes; the user's number where absent.",
    )
    supplemental_groups: Annotated[list[GroupId], Field(max_length=16), ListSet()] = Field(
        default=[],
        description="Further groups, such as the host's video and render groups, which own ROCm's devices.",
    )


class TolerationOperator(StrEnum):
    """How a toleration compares."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A taint that the pod tolerates."""

    model_config = rules(
        Rule(
            "self.operator == 'Exists' || has(self.key)",
            "a toleration without a key tolerates every taint: it needs operator: Exists",
        ),
        Rule(
            "self.operator != 'Exists' || !has(self.value)",
            "a toleration with operator: Exists takes no value",
        ),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds goes with effect: NoExecute only",
        ),
    )
    key: QualifiedName | None = Field(default=None, description="Key of the taint; every taint where absent.")
    operator: TolerationOperator = Field(
        default=TolerationOperator.EQUAL, description="Equal compares the value, Exists does not look at it."
    )
    value: LabelValue | None = Field(default=None, description="Value of the taint, with operator Equal.")
    effect: TaintEffect | None = Field(default=None, description="Effect of the taint; every effect where absent.")
    toleration_seconds: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INT32,
        description="How long the pod stays on a node that gets the taint; for ever where absent.",
    )


class SelectorOperator(StrEnum):
    """How a node's label compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class NodeExpression(ApiModel):
    """A condition on one label of a node."""

    model_config = rules(
        Rule(
            "(self.operator in ['In', 'NotIn']) == (self.values.size() > 0)",
            "values goes with the operators In and NotIn, which need at least one, and with no other",
        ),
    )
    key: QualifiedName = Field(description="Key of the label.")
    operator: SelectorOperator = Field(description="In, NotIn, Exists or DoesNotExist.")
    values: Annotated[list[LabelValue], Field(max_length=32), ListAtomic()] = Field(
        default=[], description="Values to compare with, for In and NotIn."
    )


class NodeTerm(ApiModel):
    """Conditions that a node must meet all of."""

    match_expressions: Annotated[list[NodeExpression], Field(min_length=1, max_length=8), ListAtomic()] = Field(
        description="Conditions on the node's labels."
    )


class NodeSelector(ApiModel):
    """Alternatives; a node must meet one of them."""

    node_selector_terms: Annotated[list[NodeTerm], Field(min_length=1, max_length=8), ListAtomic()] = Field(
        description="Alternatives; a node must meet one of them."
    )


class NodeAffinity(ApiModel):
    """Nodes by their labels."""

    required_during_scheduling_ignored_during_execution: NodeSelector = Field(
        description="Conditions that a node must meet when the pod is placed."
    )


class Affinity(ApiModel):
    """Where the pod may be placed, in Kubernetes' own spelling."""

    node_affinity: NodeAffinity = Field(description="Nodes by their labels.")


def _native(field: str) -> Rule:
    return Rule(
        "self.all(key, key in ['cpu', 'memory', 'ephemeral-storage'])",
        f"pod.resources.{field} is about cpu, memory and ephemeral-storage; anything else is in accelerator",
    )


class Resources(ApiModel):
    """Requests and limits of the engine's container, without devices, spool and shared memory, which are added."""

    requests: Annotated[dict[str, Quantity], Field(max_length=3), _native("requests")] = Field(
        default={}, description="What the engine is sure to get, such as 'cpu: 8' and 'memory: 64Gi'."
    )
    limits: Annotated[dict[str, Quantity], Field(max_length=3), _native("limits")] = Field(
        default={}, description="What the engine may use at the most."
    )


class PodOptions(ApiModel):
    """How the run's pods are placed and what they may use."""

    service_account_name: DnsName | None = Field(
        default=None,
        description="ServiceAccount of the pods, for an identity at the object store; no token is mounted.",
    )
    security_context: PodSecurityContext | None = Field(default=None, description="Users and groups of the pods.")
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32), qualified_keys("nodeSelector")] = Field(
        default={}, description="Labels that a node must carry."
    )
    tolerations: Annotated[list[Toleration], Field(max_length=32), ListAtomic()] = Field(
        default=[], description="Taints that the pods tolerate."
    )
    affinity: Affinity | None = Field(default=None, description="Conditions on nodes that nodeSelector cannot express.")
    priority_class_name: DnsName | None = Field(default=None, description="PriorityClass of the capture's pod.")
    scheduler_name: DnsName | None = Field(
        default=None, description="Scheduler of the capture's pod; the cluster's where absent."
    )
    runtime_class_name: DnsName | None = Field(default=None, description="RuntimeClass of the capture's pod.")
    image_pull_secrets: Annotated[list[LocalReference], Field(max_length=8), ListMap(("name",))] = Field(
        default=[], description="Secrets with which images are pulled."
    )
    resources: Resources | None = Field(
        default=None,
        description="Requests and limits of the engine's container; spool and /dev/shm are added to its memory. Where "
        "absent: 500m CPU and 1Gi asked for, 8 CPUs and 8Gi allowed; with an accelerator, for each device, 2 CPUs and "
        "16Gi asked for, 16 CPUs and 128Gi allowed.",
    )
    shm_size: Quantity | None = Field(
        default=None,
        description="Size of /dev/shm, which is memory and added to the engine's request and limit. Where absent: 1Gi, "
        "or 1Gi for each device where that is more.",
    )
    spool_size: Quantity | None = Field(
        default=None,
        description="Size of the spool between engine and collector, which is memory and added to the engine's request "
        "and limit. Where absent: 1Gi, or 512Mi for each rank where that is more. A full spool slows capture, then "
        "loses traces and says so.",
    )
    labels: Annotated[dict[str, LabelValue], Field(max_length=32), qualified_keys("labels")] = Field(
        default={}, description="Labels added to the run's Jobs and pods, such as a queue's name."
    )
    annotations: Annotated[
        dict[str, Annotated[str, StringConstraints(max_length=4096)]],
        Field(max_length=32),
        qualified_keys("annotations"),
    ] = Field(default={}, description="Annotations added to the run's Jobs and pods.")
