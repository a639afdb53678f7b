"""A whole vLLM on a CPU, with a tiny model of random weights, that finds our plugin by its entry point."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vllm
from shapetrace_contract import names, spool

SECONDS = 540
"""Three processes import vLLM, half a minute each on an idle core, and two cores may have other work."""
pytestmark = pytest.mark.timeout(SECONDS + 60)

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,  # 64 wide: vLLM's attention for CPUs has no kernel for 16
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "vocab_size": 128,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SCRIPT = """
import sys
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    engine = LLM(sys.argv[1], load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=64,
                 max_num_seqs=4, max_num_batched_tokens=64)
    asked = SamplingParams(max_tokens=3, detokenize=False, ignore_eos=True)
    (answer,) = engine.generate([{"prompt_token_ids": [1, 2, 3]}], asked)
    print("TOKENS", len(answer.outputs[0].token_ids))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The spool that it left, and what it printed."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    (folder / "script.py").write_text(SCRIPT)
    environment = {
        **os.environ,
        names.ENV_SPOOL: str(folder / "spool"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_CI_ENV": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
    }
    command = [sys.executable, str(folder / "script.py"), str(folder / "model")]
    # a session of its own: vLLM's processes outlive a parent that is killed
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, output[-4000:]
    return folder / "spool", output


def json_of(path: Path) -> dict[str, Any]:
    value = spool.read_json(path)
    assert value is not None, path
    return value


def test_the_engine_answers_as_without_us(run: tuple[Path, str]) -> None:
    assert "TOKENS 3" in run[1]
    assert "shapetrace: " not in run[1]  # a fault of ours would be told there


def test_its_rank_has_a_record_with_all_hooks_applied(run: tuple[Path, str]) -> None:
    record = json_of(spool.rank_folder(run[0], 0) / spool.RANK)
    assert (record["rank"], record["tp"], record["pp"], record["dp"], record["ep"]) == (0, 0, 0, 0, 0)
    engine = record["engine"]
    assert (engine["name"], engine["version"]) == ("vllm", vllm.__version__)
    told = engine["configuration"]
    assert told["model_config.max_model_len"] > 0
    assert told["compilation_config.cudagraph_mode"] == "NONE", "resolved: a CPU captures none"
    assert not [value for value in told.values() if "/" in str(value)]
    assert set(record["hooks"].values()) == {"applied"}
    assert set(record["required"]) == {
        "vllm.v1.worker.worker_base.WorkerWrapperBase.init_device",
        "vllm.v1.worker.cpu_worker.CPUWorker.compile_or_warm_up_model",
        "vllm.v1.worker.gpu_model_runner.GPUModelRunner.capture_model",
        "vllm.v1.worker.gpu_model_runner.GPUModelRunner._warmup_and_capture",
    }


def test_it_is_done_without_graphs_and_says_why(run: tuple[Path, str]) -> None:
    done = json_of(spool.rank_folder(run[0], 0) / spool.DONE)
    assert (done["ok"], done["reason"], done["records"]) == (True, "Done", 0)
    assert done["eager"] == "the CPU platform of vLLM captures no graphs"
    assert done["captureBegin"] == {"all": 0, "tagged": 0, "untagged": [], "measured": 0}


def test_every_process_of_it_has_a_record(run: tuple[Path, str]) -> None:
    records = [json_of(path) for path in run[0].glob("process-*.json")]
    ranks = sorted(str(record["rank"]) for record in records)
    # the worker's, the engine core's and the front end's; with an empty cache vLLM looks at the model in one more
    assert ranks[:3] == ["0", "None", "None"]
    assert set(ranks[3:]) <= {"None"}
    assert not any(record["errors"] for record in records)
    assert {record["engine"]["version"] for record in records} == {vllm.__version__}
