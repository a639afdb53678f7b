"""What the installation decides for all runs: images, and sizes where a run does not give them."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True)
class Defaults:
    """Settings of the operator that end up in pods."""

    image: str
    """Our image: preflight, inject, collector, finish."""
    engine_image: str
    """Image of the engine torch where a run names none."""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    spool_bytes: int = 1 * GIB
    """Room for raw traces between capture and upload: a trace of a large model is 100 to 300 MiB raw."""
    shm_bytes: int = 1 * GIB
    """Shared memory for NCCL, RCCL and the loaders of engines; Kubernetes' own 64 MiB stop tensor parallel engines."""
