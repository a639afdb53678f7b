"""Two ranks compute what one rank computes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
import os, sys, torch
import torch.distributed as dist
from shapetrace_engine.configuration import Configuration
from shapetrace_engine.decoder import Decoder
from shapetrace_engine.parallel import Placement
rank, tensor, out = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
if tensor > 1:
    dist.init_process_group("gloo", init_method=f"file://{out}/rendezvous", rank=rank, world_size=tensor)
sizes = dict(sizes=(3,), layers=3, hidden=64, heads=4, vocabulary=128, context=16, topk=4)
made = Configuration(**sizes, rank=rank, tensor=tensor)
with torch.inference_mode():
    model = Decoder(made, Placement(rank, tensor, torch.device("cpu"), torch.float32, seed=5))
    found = {}
    for lora in ("lora", "nolora"):
        for attention in ("dense", "sparse"):
            found[f"{lora} {attention}"] = model(*model.inputs(3), variants={"lora": lora, "attention": attention})
torch.save(found, f"{out}/{tensor}-{rank}.pt")
if tensor > 1:
    dist.destroy_process_group()
"""


def test_two_ranks_give_the_logits_of_one(torch: Any, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path)],
            env={**environment, "RANK": str(rank), "WORLD_SIZE": str(tensor)},
        )
        for tensor, rank in ((1, 0), (2, 0), (2, 1))
    ]
    assert [process.wait(240) for process in started] == [0, 0, 0]
    one, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    for name, logits in one.items():
        assert logits.shape == (3, 128)
        torch.testing.assert_close(first[name], logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(second[name], logits, rtol=1e-4, atol=1e-4)
    for left, right in itertools.combinations(one.values(), 2):
        assert not torch.allclose(left, right, rtol=1e-3, atol=1e-3), "the variants compute different things"
