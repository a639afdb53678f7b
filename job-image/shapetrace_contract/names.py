"""Names of the API group, labels, containers, mounts, ports and environment variables (docs/contract.md, Names)."""

from __future__ import annotations

GROUP = "shapetrace.dev"
API_VERSION = "v1alpha1"
KIND = "ProfileRun"
PLURAL = "profileruns"
SHORT_NAME = "prun"
FIELD_MANAGER = "shapetrace"

LABEL_RUN = f"{GROUP}/run"
"""Value: the ProfileRun's uid. On every Job and Pod of ours."""
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_ROLE = f"{GROUP}/role"
ANNOTATION_RUN_NAME = f"{GROUP}/run-name"
ROLE_CAPTURE = "capture"
ROLE_FINISH = "finish"

CONTAINER_PREFLIGHT = "preflight"
CONTAINER_INJECT = "inject"
CONTAINER_COLLECTOR = "collector"
CONTAINER_ENGINE = "engine"
CONTAINER_FINISH = "finish"

PROGRESS_PORT = 8090
PROGRESS_PATH = "/progress"
PROBE_PORT = 8081

SPOOL_MOUNT = "/spool"
PAYLOAD_MOUNT = "/opt/shapetrace"
IMAGE_PAYLOAD = "/opt/shapetrace-payload"
"""Where our image holds the payload; ``inject`` copies it to :data:`PAYLOAD_MOUNT`."""
TERMINATION_MESSAGE_PATH = "/dev/termination-log"

# Metadata that stored objects carry; all have run and attempt, traces have the rest too.
METADATA_RUN = "shapetrace-run"
"""Value: the ProfileRun's uid."""
METADATA_ATTEMPT = "shapetrace-attempt"
METADATA_RANK = "shapetrace-rank"
METADATA_TAG = "shapetrace-tag"
METADATA_RAW_SHA256 = "shapetrace-raw-sha256"
METADATA_SHA256 = "shapetrace-sha256"
"""Of what is stored; a store of ours adds it itself, for not every server hands a checksum back on HEAD."""

# Environment of the containers. Values marked JSON are objects with "v"; their readers are in settings.py.
ENV_SPOOL = "SHAPETRACE_SPOOL"
"""The spool folder. Its presence wakes the capture package; without it the payload is inert."""
ENV_RUN = "SHAPETRACE_RUN"
"""JSON: which run and attempt this is."""
ENV_STORE = "SHAPETRACE_STORE"
"""JSON: where objects go, without any secret. Only in containers of ours."""
ENV_CAPTURE = "SHAPETRACE_CAPTURE"
"""JSON: what the hook records."""
ENV_ENGINE = "SHAPETRACE_ENGINE"
"""JSON: what the launcher starts."""
ENV_IMAGE = "SHAPETRACE_IMAGE"
"""JSON: the engine's image as it ran. Only in the finish."""
ENV_LIMITS = "SHAPETRACE_LIMITS"
"""JSON: time limits in seconds."""
ENV_POD_NAME = "SHAPETRACE_POD_NAME"
ENV_POD_UID = "SHAPETRACE_POD_UID"
ENV_NODE_NAME = "SHAPETRACE_NODE_NAME"
ENV_POD_INDEX = "SHAPETRACE_POD_INDEX"
"""Completion index of an Indexed Job; 0 or unset without one."""
ENV_TERMINATION_LOG = "SHAPETRACE_TERMINATION_LOG"
"""Where the termination message goes; unset outside Kubernetes means :data:`TERMINATION_MESSAGE_PATH` if it exists."""
