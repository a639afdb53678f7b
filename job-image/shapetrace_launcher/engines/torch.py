"""``engine: torch``: one process of ``shapetrace_engine`` per tensor parallel rank. Pure."""

from __future__ import annotations

from shapetrace_contract.settings import CaptureSettings, EngineSettings

from shapetrace_launcher.engines import Command, Context, EngineConfigurationError

RUNNERS = ("", "decode", "DecodeGraphRunner")
"""What ``capture.targets[].runner`` may say: the engine has one runner."""


def commands(engine: EngineSettings, capture: CaptureSettings, context: Context) -> list[Command]:
    """``python3 -m shapetrace_engine`` for each rank, in order."""
    tensor = _tensor(engine)
    argv = (context.python, "-m", "shapetrace_engine", *_target_flags(capture), *engine.args)
    return [Command(argv, (rank,), _environment(rank, tensor, context)) for rank in range(tensor)]


def _tensor(engine: EngineSettings) -> int:
    for axis in ("pipeline", "dataReplicas", "attentionData", "expert", "nodes"):
        if int(engine.parallelism.get(axis, 1)) != 1:
            raise EngineConfigurationError(
                f"parallelism.{axis} is {engine.parallelism[axis]}: engine torch knows tensor parallelism only"
            )
    return max(1, int(engine.parallelism.get("tensor", 1)))


def _target_flags(capture: CaptureSettings) -> list[str]:
    if not capture.targets:
        return []
    if len(capture.targets) > 1:
        raise EngineConfigurationError("capture.targets: engine torch has one runner, so one target")
    target = capture.targets[0]
    if str(target.get("runner") or "") not in RUNNERS:
        raise EngineConfigurationError(f"capture.targets[0].runner {target['runner']!r}: engine torch has decode only")
    flags = []
    if target.get("sizes"):
        flags += ["--sizes", ",".join(str(size) for size in target["sizes"])]
    if target.get("unit"):
        flags += ["--unit", str(target["unit"])]
    for item in target.get("variants") or []:
        flags += ["--axis", f"{item['axis']}={','.join(map(str, item['values']))}"]
    return flags


def _environment(rank: int, tensor: int, context: Context) -> dict[str, str]:
    threads = str(max(1, context.cores // tensor))
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(tensor),
        "LOCAL_WORLD_SIZE": str(tensor),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(context.master_port),
        "GLOO_SOCKET_IFNAME": "lo",  # all ranks are in this pod, whose own name need not resolve
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }
