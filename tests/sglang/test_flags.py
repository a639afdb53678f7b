"""Every flag that the launcher makes is one that each version of SGLang reads, and means what was meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shapetrace_contract.settings import CaptureSettings, EngineSettings
from shapetrace_launcher.command import build
from shapetrace_launcher.engines import Context

HERE = Path(__file__).parent
ENVIRONMENT = os.environ.get("SHAPETRACE_TEST_SGLANG", "")
VERSIONS = sorted(path.name for path in Path(ENVIRONMENT, "versions").iterdir()) if ENVIRONMENT else []
READ = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
read = vars(parser.parse_args(sys.argv[1:]))
simple = (str, int, list, type(None))
print(json.dumps({key: value for key, value in read.items() if isinstance(value, simple)}, default=str))
"""
MODELS = [
    {"role": "target", "path": "/models/target"},
    {"role": "draft", "path": "/models/draft"},
    {"role": "adapter", "path": "/loras/a"},
    {"role": "tokenizer", "path": "/models/tokenizer"},
]
IMPORT_SECONDS = 600
"""Ten seconds on a machine at rest; minutes when others use it."""


def test_there_are_versions_to_read_with() -> None:
    if not VERSIONS:
        pytest.skip("SGLang is not here: make test-sglang has an environment of its own")
    assert len(VERSIONS) >= 4


@pytest.mark.parametrize("version", VERSIONS)
def test_sglang_reads_the_command_line_as_it_was_meant(version: str) -> None:
    parallelism = {"tensor": 2, "pipeline": 3, "dataReplicas": 4}
    args = ["--speculative-algorithm", "EAGLE", "--load-format", "dummy"]
    targets: list[dict[str, Any]] = [
        {"runner": "decode", "unit": "bs", "sizes": [8, 1]},
        {"runner": "prefill", "unit": "tok", "sizes": [64]},
    ]
    (command,) = build(
        EngineSettings("sglang", args, MODELS, parallelism, "cpu"),
        CaptureSettings(targets=targets),
        Context("python3", 30_001, 4, "sglang", version, deadline_seconds=1800),
    )
    path = [str(HERE), os.environ.get("PYTHONPATH", ""), str(Path(ENVIRONMENT, "versions", version))]
    done = subprocess.run(
        [sys.executable, "-c", READ, *command.argv[3:]],
        env={**os.environ, "PYTHONPATH": ":".join(path), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=IMPORT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    read = json.loads(done.stdout.splitlines()[-1])
    assert [read[name] for name in ("tp_size", "pp_size", "dp_size")] == [2, 3, 4]
    assert (read["cuda_graph_bs_decode"], read["cuda_graph_bs_prefill"]) == ([1, 8], [64])
    assert (read["model_path"], read["tokenizer_path"]) == ("/models/target", "/models/tokenizer")
    assert read["speculative_draft_model_path"] == "/models/draft"
    assert "/loras/a" in str(read["lora_paths"])
    assert (read["load_format"], read["device"]) == ("dummy", "cpu")
    assert (read["dist_timeout"], read["skip_server_warmup"]) == (1800, True)
    assert (read["host"], read["port"]) == ("127.0.0.1", 30_001)
