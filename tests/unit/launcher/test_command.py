"""From settings to command lines."""

from __future__ import annotations

from typing import Any

import pytest
from shapetrace_contract.settings import CaptureSettings, EngineSettings
from shapetrace_launcher.command import build, environment_of
from shapetrace_launcher.engines import Command, Context, EngineConfigurationError

CONTEXT = Context(python="python3", master_port=29_500, cores=5)
TARGET = {
    "runner": "decode",
    "unit": "bs",
    "sizes": [1, 2, 4, 8],
    "variants": [{"axis": "lora", "values": ["lora", "nolora"]}, {"axis": "attention", "values": ["dense", "sparse"]}],
}


def torch_commands(capture: CaptureSettings, **parallelism: int) -> list[Command]:
    return build(EngineSettings(name="torch", args=["--layers", "2"], parallelism=parallelism), capture, CONTEXT)


def test_the_torch_engine_gets_the_targets_as_flags_and_its_args_verbatim() -> None:
    (command,) = torch_commands(CaptureSettings(targets=[TARGET]))
    assert command.argv == (
        "python3", "-m", "shapetrace_engine", "--sizes", "1,2,4,8", "--unit", "bs",
        "--axis", "lora=lora,nolora", "--axis", "attention=dense,sparse", "--layers", "2",
    )  # fmt: skip


def test_each_tensor_parallel_rank_is_a_process_that_knows_its_place() -> None:
    commands = torch_commands(CaptureSettings(), tensor=3)
    assert [command.ranks for command in commands] == [(0,), (1,), (2,)]
    for rank, command in enumerate(commands):
        environment = command.environment
        assert (environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]) == (
            str(rank),
            str(rank),
            "3",
        )
        assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("127.0.0.1", "29500")
        assert environment["OMP_NUM_THREADS"] == "1", "5 cores among 3 ranks"


@pytest.mark.parametrize(
    ("targets", "parallelism", "field"),
    [
        ([TARGET, TARGET], {}, "capture.targets"),
        ([{**TARGET, "runner": "prefill"}], {}, "capture.targets[0].runner"),
        ([], {"pipeline": 2}, "parallelism.pipeline"),
        ([], {"dataReplicas": 2}, "parallelism.dataReplicas"),
        ([], {"nodes": 2}, "parallelism.nodes"),
    ],
)
def test_what_the_torch_engine_cannot_do_is_refused_by_field(
    targets: list[dict[str, Any]], parallelism: dict[str, int], field: str
) -> None:
    with pytest.raises(EngineConfigurationError) as refusal:
        torch_commands(CaptureSettings(targets=targets), **parallelism)
    assert str(refusal.value).startswith(field)


def test_a_command_is_the_users_own_for_all_ranks() -> None:
    engine = EngineSettings(name="command", args=["python3", "my script.py"], parallelism={"tensor": 2})
    assert build(engine, CaptureSettings(), CONTEXT) == [Command(("python3", "my script.py"), (0, 1))]


def test_a_command_without_a_command_line_is_refused() -> None:
    with pytest.raises(EngineConfigurationError, match=r"engine\.args"):
        build(EngineSettings(name="command"), CaptureSettings(), CONTEXT)


def test_the_pods_environment_goes_over_defaults_and_the_ranks_own_over_both() -> None:
    command = Command(("x",), (0,), {"RANK": "0"})
    base = {"HOME": "/work-space", "USE_LIBUV": "1", "RANK": "7", "XDG_CACHE_HOME": "", "PATH": "/bin"}
    made = environment_of(command, base)
    assert made["HOME"] == "/work-space"
    assert made["XDG_CACHE_HOME"] == "/work-space/.cache"
    assert made["USE_LIBUV"] == "1"
    assert made["UCX_HANDLE_ERRORS"] == "none"
    assert made["RANK"] == "0"
    assert made["USER"]
