"""``tests/gpu/check_gpu.py`` must not die of a typing error the first time that it meets a GPU."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from shapetrace_traces.index import index_trace

GPU_FOLDER = Path(__file__).resolve().parents[1] / "gpu"
NO_GPU_EXIT = 77
RUN_SECONDS = 1300
"""Thirteen processes, one after the other, each of which imports torch."""
pytestmark = pytest.mark.timeout(RUN_SECONDS + 60)


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(GPU_FOLDER))
    return importlib.import_module("facts")


@pytest.fixture
def questions(facts: ModuleType) -> ModuleType:
    return importlib.import_module("questions")


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)


def test_without_a_gpu_it_says_so_and_that_is_no_success(torch: Any, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here: make test-gpu asks the questions themselves")
    ended = run(GPU_FOLDER / "check_gpu.py", str(tmp_path / "new" / "result.json"))
    assert ended.returncode == NO_GPU_EXIT, ended.stderr
    assert ended.stdout.startswith("no GPU: torch ")
    written = json.loads((tmp_path / "new" / "result.json").read_text())
    assert (written["ran"], written["answers"]) == (False, [])
    assert "nothing was checked" in written["reason"]


@pytest.fixture(scope="module")
def faked(
    torch: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here: make test-gpu asks the questions themselves")
    path = tmp_path_factory.mktemp("gpu") / "result.json"
    ended = run(Path(__file__).with_name("faked_gpu.py"), str(path))
    assert path.exists(), ended.stdout + ended.stderr
    return ended, json.loads(path.read_text())


def test_every_experiment_runs_to_its_end_under_the_fakes(
    faked: tuple[subprocess.CompletedProcess[str], dict[str, Any]], questions: ModuleType
) -> None:
    experiments = importlib.import_module("experiments")
    ended, result = faked
    assert result["failed"] == {}, ended.stdout
    assert sorted(result["found"]) == sorted(experiments.EXPERIMENTS)
    for name, variables in experiments.ENVIRONMENT.items():
        assert result["found"][name]["environment"] == variables


def test_what_a_cpu_can_show_is_shown_and_nothing_else_is_claimed(
    faked: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    ended, result = faked
    said = {item["question"]: (item["yes"], item["figures"]) for item in result["answers"]}
    for how, count in (("without stacks", 64), ("with stacks", 32)):
        whole = f"{count} captures, {count} traces, 0 faults"
        assert said[f"captures {how}: one clean trace for each"] == (True, whole)
        for question in (
            "metadata and span carry the tag",
            "all products have as many rows as the label says",
            "the variant's operators are those of the label",
        ):
            assert said[f"captures {how}: {question}"] == (True, f"{count} of {count}")
        begun = said[f"captures {how}: begin and end of the stream capture are in it"]
        assert begun[0] is False, "the fake graph calls no runtime"
        assert said[f"captures {how}: kernels are seen afterwards"] == (False, "50 launched, 0 seen")
    assert said["a replay computes what the model computes"] == (True, "64 of 64")
    settings = [yes for question, (yes, _) in said.items() if question.startswith("kernels are seen after captures, ")]
    assert settings == [False] * 8
    assert said["replay events: node id"][0] is False
    assert said["with the synchronise, windows hold no kernel of the warm-up"][0] is None, "nothing sees kernels here"
    assert {
        f"cost of {step} {how}" for step in ("start", "stop", "save") for how in ("with stacks", "without stacks")
    } <= (said.keys())
    assert (ended.returncode, result["good"], result["ran"]) == (1, False, True)


def test_an_experiment_that_fails_is_named_and_the_others_run(torch: Any, tmp_path: Path) -> None:
    """Without the fakes' graph a CPU fails at the first capture: as a crash on a GPU would."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here: nothing fails as this test needs it")
    driver = tmp_path / "driver.py"
    fakes = Path(__file__).with_name("faked_gpu.py")
    driver.write_text(
        f"import sys; sys.path.insert(0, {str(fakes.parent)!r})\n"
        "import faked_gpu, check_gpu, os, torch\n"
        "torch.cuda.is_available, torch.cuda.get_device_name = (lambda: True), (lambda: 'half a fake')\n"
        "program = (sys.executable, '-W', 'ignore', __file__)\n"
        "sys.exit(check_gpu.main(sys.argv[1:], os.environ, program, device='cpu'))\n"
    )
    result = tmp_path / "result.json"
    ended = run(driver, str(result), "--only", "leak", "--only", "nodes")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    written = json.loads(result.read_text())
    assert sorted(written["failed"]) == ["leak", "nodes"]
    assert all(why.startswith("exit code 1: ") for why in written["failed"].values()), written["failed"]
    assert "leak FAILED: exit code 1: " in ended.stdout


# ---- the pure parts, with events as Kineto writes them


def event(category: str, name: str, ts: float, **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": 1, "args": arguments}


def capture_trace(rows: int = 8) -> dict[str, Any]:
    return {
        "shapetrace": {"tag": "Check__bs_8__attention-dense"},
        "traceEvents": [
            event("user_annotation", "Check__bs_8__attention-dense", 1),
            event("cuda_runtime", "cudaStreamBeginCapture_v10000", 10, correlation=1),
            event("cpu_op", "aten::mm", 11, **{"Input Dims": [[rows, 256], [256, 256]]}),
            event("cuda_driver", "cuLaunchKernelEx", 12, correlation=2),
            event("cuda_runtime", "cudaLaunchKernelExC", 12, correlation=2),
            event("cuda_runtime", "cudaLaunchKernel", 13, correlation=3),
            event("cuda_runtime", "cudaStreamEndCapture", 20, correlation=4),
            event("cuda_runtime", "cudaGraphInstantiateWithFlags", 21, correlation=5),
            {"ph": "M", "name": "process_name", "args": {}},
        ],
    }


RECORD = {
    "tag": "Check__bs_8__attention-dense",
    "shape": {"size": 8, "variants": {"attention": "dense"}},
}


def test_a_good_window_answers_every_question_with_yes(facts: ModuleType) -> None:
    found = facts.window(capture_trace(), RECORD)
    assert (found["begins"], found["ends"], found["launches"], found["kernels"]) == (1, 1, 2, 0)
    assert (found["rows"], found["products"], found["launchesBeforeCapture"]) == ([8], 1, 0)
    assert not any(facts.wrong_windows([found]).values())


def test_the_index_counts_a_windows_launches_as_the_check_does(facts: ModuleType) -> None:
    found, index = facts.window(capture_trace(), RECORD), index_trace(json.dumps(capture_trace()).encode())
    assert (found["launches"], found["launches"] + found["launchesOutside"]) == (2, 2)
    assert (index["launchesInWindows"], index["launches"]) == (2, 2)
    assert found["reportedTwice"] == 1, "or nothing was asked"


def test_each_fault_of_a_window_is_named(facts: ModuleType) -> None:
    quiet = capture_trace()
    quiet["traceEvents"] = [item for item in quiet["traceEvents"] if item.get("cat") != "cuda_runtime"]
    sparse = {**RECORD, "shape": {"size": 8, "variants": {"attention": "sparse"}}}
    other = {**RECORD, "tag": "Check__bs_4__attention-dense"}
    faults = {
        "begin and end of the stream capture are in it": facts.window(quiet, RECORD),
        "kernels were launched while the stream was captured": facts.window(quiet, RECORD),
        "metadata and span carry the tag": facts.window(capture_trace(), other),
        "all products have as many rows as the label says": facts.window(capture_trace(rows=16), RECORD),
        "the variant's operators are those of the label": facts.window(capture_trace(), sparse),
    }
    for question, found in faults.items():
        assert facts.wrong_windows([found])[question] == [found["tag"]]


def test_a_warm_up_kernel_inside_a_window_is_counted(facts: ModuleType) -> None:
    trace = capture_trace()
    trace["traceEvents"] += [
        event("cuda_runtime", "cudaLaunchKernel", 5, correlation=9),
        event("kernel", "spin_kernel", 6, correlation=8),
        event("kernel", "vectorized_elementwise_kernel", 7, correlation=9),
    ]
    found = facts.window(trace, RECORD)
    assert (found["kernels"], found["launchesBeforeCapture"], found["launches"]) == (2, 1, 2)


def replay_trace(ids: bool = True) -> dict[str, Any]:
    """Two replays of a graph with branches, kernels 1 and 2 created before 3 and 4 and run after them."""
    events = []
    for number, name in enumerate(("first", "second")):
        base = 100 * number
        events.append({**event("user_annotation", name, base), "dur": 90})
        events.append(event("cuda_runtime", "cudaGraphLaunch", base + 1, correlation=7 + number))
        order = [(0, 10), (3, 11), (4, 12), (1, 30), (2, 31), (5, 40)]
        for position, at in order:
            more = {"graph id": 5, "graph node id": 1000 + position} if ids else {"graph id": 0, "graph node id": 0}
            grid = [128 * (position + 1), 1, 1]
            events.append(event("kernel", "add", base + at, correlation=7 + number, grid=grid, **more))
        events.append(event("kernel", "spin_kernel", base + 9, correlation=7 + number, grid=[1, 1, 1]))
    return {"traceEvents": events}


def test_kernels_belong_to_the_replay_that_launched_them(facts: ModuleType) -> None:
    found = facts.replays(replay_trace())
    assert found["first"] == found["second"] == {"graphLaunches": 1, "kernels": 7, "withGraphId": 6, "withNodeId": 6}
    assert facts.replays(replay_trace(ids=False))["first"]["withNodeId"] == 0


def test_node_order_is_told_apart_from_the_order_of_execution(facts: ModuleType) -> None:
    found = facts.node_order(facts.kernels(replay_trace())[:7])
    assert found == {"byNode": [0, 1, 2, 3, 4, 5], "byTime": [0, 3, 4, 1, 2, 5], "isCreationOrder": True}
    assert facts.node_order(facts.kernels(replay_trace(ids=False))[:7])["isCreationOrder"] is None
    assert facts.node_order([])["isCreationOrder"] is None


def test_costs_tell_the_first_window_apart(facts: ModuleType) -> None:
    times = [9.0, 1.0, 3.0]
    records = [{"file": "x", "rawBytes": 10, "timesSeconds": {"start": value}} for value in times]
    found = facts.costs([*records, {"file": None, "timesSeconds": {"start": 99.0}}])
    assert found["windows"] == 3
    assert found["start"] == {"firstSeconds": 9.0, "medianSeconds": 2.0, "maxSeconds": 3.0}


def setting(seen: int) -> dict[str, Any]:
    replays = {"discarded": {"kernels": 0}, "one": {"kernels": 8}, "other": {"kernels": 8}}
    item = {"launched": 50, "seenAfterCaptures": seen, "seenAtTheEnd": 50, "replays": replays, "captures": 2}
    return {**item, "first": "nothing", "captureSeconds": 1.0, "environment": {"TEARDOWN_CUPTI": "0"}}


def test_collection_that_died_after_captures_is_told_for_each_setting(questions: ModuleType) -> None:
    found = {"setting-plain": setting(0), "setting-teardown-off": setting(50)}
    said = {item.question: item for item in questions.answers(found)}
    dead, alive = (said[f"kernels are seen after captures, {name}"] for name in ("plain", "teardown-off"))
    assert (dead.yes, alive.yes) == (False, True)
    assert "50 launched, 0 seen after the captures" in dead.figures
    assert "TEARDOWN_CUPTI=0" in alive.figures
    assert not dead.is_fault, "a finding"


def test_an_experiment_that_found_nothing_leaves_its_requirements_unmet(questions: ModuleType) -> None:
    said = questions.answers({})
    assert {item.question for item in said if item.is_fault} == {
        "captures without stacks: one clean trace for each",
        "captures with stacks: one clean trace for each",
        "with the synchronise, windows hold no kernel of the warm-up",
    }
    assert not any(item.yes for item in said)


@pytest.mark.parametrize(("leaked", "fault"), [([0, 0], False), ([0, 3], True)])
def test_a_leak_with_the_synchronise_is_a_fault_and_without_it_a_finding(
    questions: ModuleType, leaked: list[int], fault: bool
) -> None:
    seen = {"launched": 50, "seen": 50}
    item = {"leakedKernels": leaked, "launchesBeforeCapture": [0, 0], "warmUpKernels": 21, "kernelsAfter": seen}
    said = {answer.question: answer for answer in questions.answers({"leak": item, "leak-unsynchronised": item})}
    assert said["with the synchronise, windows hold no kernel of the warm-up"].is_fault is fault
    assert said["without the synchronise, windows hold no kernel of the warm-up"].is_fault is False
