"""``python3 -m shapetrace_engine``: one rank of the torch engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shapetrace_capture.session import Session
from shapetrace_contract.reasons import Reason, exit_code

from shapetrace_engine.configuration import Configuration, ConfigurationError, parse

EAGER = "--eager was given"
HOOK = "shapetrace_engine"
"""The target that ``rank.json`` names."""


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Exit code: 0, or 44 for arguments that cannot be used; other failures raise."""
    try:
        made = parse(arguments, environment)
        run(made, environment)
    except ConfigurationError as error:
        print(f"shapetrace_engine: {error}", file=sys.stderr, flush=True)
        return exit_code(Reason.BAD_CONFIGURATION)
    return 0


def run(made: Configuration, environment: Mapping[str, str]) -> None:
    """Build the model, capture every shape, say that the graph work is done."""
    import torch
    import torch.distributed as dist

    from shapetrace_engine.decoder import Decoder
    from shapetrace_engine.models import load
    from shapetrace_engine.parallel import Placement
    from shapetrace_engine.runner import DecodeGraphRunner

    device = _device(torch, environment)
    if made.tensor > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        with torch.inference_mode():
            place = Placement(made.rank, made.tensor, device, dtype, made.seed)
            model = load(made) if made.model else Decoder(made, place)
            session = Session.from_environment(environment)
            if session is not None:
                session.start({HOOK: "applied"})
            runner = DecodeGraphRunner(model, made, session, device)
            _capture(runner, session, made)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _capture(runner: Any, session: Session | None, made: Configuration) -> None:
    try:
        if made.eager:
            runner.run_eager(EAGER)
        else:
            runner.capture()
    except Exception as error:
        if session is not None:
            session.done(ok=False, reason=f"{type(error).__name__}: {error}")
        raise
    if session is not None:
        session.done(eager=EAGER if made.eager else None)


def _device(torch: Any, environment: Mapping[str, str]) -> Any:
    """The accelerator of this local rank, or the CPU where torch sees none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local = int(environment.get("LOCAL_RANK") or 0)
    if local >= torch.cuda.device_count():
        raise ConfigurationError(f"local rank {local} has no device: torch sees {torch.cuda.device_count()}")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
