"""What a record tells of environment and configuration: what is on a list; the rest may be nobody's business."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

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


MAX_FIELDS = 300
MAX_ITEMS = 1024
"""Of a list: engines capture some hundreds of sizes."""
_FIELD = re.compile(
    r".*cuda_?graph.*|.*(?:backend|dtype|_size|_sizes|_mode|_runner)|(?:enable|disable|use|max|num|moe|speculative)_.*"
    r"|.*lora.*|quantization|load_format|enforce_eager|mode|level|device|compile_sizes|chunked_prefill.*|context_length"
    r"|(?:mem_fraction|gpu_memory).*|page_size|bs|random_seed|seed|schedule_policy|splitting_ops|custom_ops"
)
"""What decides how an engine computes and captures, by the words of SGLang's and vLLM's configurations."""
_UNTOLD = re.compile(r".*(?:path|dir|file|url|uri|host|addr|port|key|secret|password|credential|user|_name|_id)s?")
_NESTED = re.compile(r"cuda_graph_config|decode|prefill")
MAX_DEPTH = 3
_UNKNOWN = object()


def told_configuration(holders: Mapping[str, Any]) -> dict[str, Any]:
    """``prefix + field`` -> value, sorted, of configurations by prefix: numbers, words and lists of these.

    A configuration is a mapping or an object with attributes; SGLang's for graphs holds one for each of its phases.
    """
    found: dict[str, Any] = {}
    for prefix, holder in holders.items():
        fields = holder if isinstance(holder, Mapping) else getattr(holder, "__dict__", {})
        for name, value in list(fields.items()):
            if _NESTED.fullmatch(name) and prefix.count(".") < MAX_DEPTH:
                found.update(told_configuration({f"{prefix}{name}.": value}))
            if _FIELD.fullmatch(name) and not _UNTOLD.fullmatch(name):
                plain = _told_value(value)
                if plain is not _UNKNOWN:
                    found[prefix + name] = plain
    return dict(sorted(found.items())[:MAX_FIELDS])


def _told_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _UNKNOWN
    if type(value).__name__ == "dtype":  # torch's, which may not be imported for its name
        return str(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_CHARACTERS and _PLAIN.fullmatch(value) else _UNKNOWN
    if isinstance(value, list | tuple) and len(value) <= MAX_ITEMS:
        plain = [_told_value(item) for item in value if isinstance(item, int | float | str)]
        return plain if len(plain) == len(value) and _UNKNOWN not in plain else _UNKNOWN
    return _UNKNOWN


MAX_KEY_FIELDS = 32


def plain_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an engine's key, verbatim: numbers and nothing as they are, all else as text."""
    return {str(name)[:MAX_CHARACTERS]: _plain(value) for name, value in list(fields.items())[:MAX_KEY_FIELDS]}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.name
    is_plain = value is None or type(value) in (bool, int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)[:MAX_CHARACTERS]
