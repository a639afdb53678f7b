"""Which packages compute in this process, and where the tracer's libraries were loaded from. Never a path."""

from __future__ import annotations

import functools
import re
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    *("aiter", "amd-aiter", "apache-tvm-ffi", "deep-gemm", "flash-attn", "flash-attn-4", "flashinfer-python"),
    *("nvidia-cutlass-dsl", "pytorch-triton", "pytorch-triton-rocm", "quack-kernels", "sgl-deep-gemm", "sgl-flash-mla"),
    *("sgl-kernel", "sglang", "sglang-kernel", "tilelang", "torchao", "transformers", "triton", "vllm", "xformers"),
)
"""As they are distributed: those that make, choose or hold kernels of the engines."""
_VERSION = re.compile(r"[A-Za-z0-9.+!_-]{1,64}")
_TRACER = re.compile(r"lib(?:roctracer|roctx|rocprof|cupti)[A-Za-z0-9._+-]{0,100}")
_DELETED = " (deleted)"
"""What the kernel adds to a file that was replaced since."""
MAX_TRACERS = 16
MAX_MAPS_BYTES = 64 * 1024 * 1024
"""The kernel allows 65,530 maps of a process by default."""


@functools.cache
def packages() -> dict[str, str]:
    """Package -> version, of those on the list that are installed. Looked for once: it takes some milliseconds."""
    found = {}
    for name in PACKAGES:
        try:
            version = metadata.version(name)
        except Exception:  # noqa: S112 - not there, or not to be read
            continue
        if isinstance(version, str) and _VERSION.fullmatch(version):
            found[name] = version
    return found


def tracers(torch: Any, maps: Path = Path("/proc/self/maps")) -> dict[str, str]:
    """Loaded library of a GPU tracer -> ``torch``, ``package`` or ``system``: whose folder it is from.

    A wheel's own copy may lose events where the system's does not, and the one in use is not told by any version.
    """
    found: dict[str, set[str]] = {}
    try:
        own = Path(str(torch.__file__)).parent.joinpath("lib").resolve().as_posix()
    except (AttributeError, OSError):
        own = None
    try:
        with maps.open("rb") as stream:
            lines = stream.read(MAX_MAPS_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        folder, _, name = line.partition("/")[2].removesuffix(_DELETED).rpartition("/")
        if _TRACER.fullmatch(name):
            found.setdefault(name, set()).add(_owner(f"/{folder}", own))
    return {name: ", ".join(sorted(owners)) for name, owners in sorted(found.items())[:MAX_TRACERS]}


def _owner(folder: str, torchs: str | None) -> str:
    if folder == torchs:
        return "torch"
    return "package" if re.search(r"/(?:site|dist)-packages/", folder) else "system"
