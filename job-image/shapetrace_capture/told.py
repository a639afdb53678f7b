"""The environment variables that a record tells: those on a list, because any other may be nobody's business."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_VARIABLES = 100
MAX_CHARACTERS = 200
_TOLD = re.compile(
    r"(?:SGLANG|VLLM|HIP|HSA|ROCR|AMD|CUDA|NCCL|RCCL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|AITER|KINETO|OMP|MKL)_[A-Z0-9_]+"
    r"|TEARDOWN_CUPTI|DISABLE_CUPTI_LAZY_REINIT|GPU_MAX_HW_QUEUES"
)
"""What engines, devices and profilers are steered by."""
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|HOST|ADDR|URL|URI|DIR|PATH|ROOT|FOLDER|FILE|CACHE")
"""Parts of names whose values are secrets, addresses or places."""
_PLAIN = re.compile(r"[A-Za-z0-9._,:;=+ -]*")
"""No slash, no @: neither a place nor an address."""


def told(environment: Mapping[str, str]) -> dict[str, str]:
    """Name -> value, sorted, of the variables that may be told."""
    found = {
        name: value
        for name, value in sorted(environment.items())
        if _TOLD.fullmatch(name)
        and not _SECRET.search(name)
        and len(value) <= MAX_CHARACTERS
        and _PLAIN.fullmatch(value)
    }
    return dict(list(found.items())[:MAX_VARIABLES])
