"""Labels swapped on purpose, from outside: a Python of its own gives the engine's captures each other's shapes."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TINY = ["--layers", "2", "--hidden", "64", "--heads", "4", "--vocabulary", "256", "--context", "64", "--topk", "8"]
VARIANTS = [{"axis": "lora", "values": ["lora", "nolora"]}, {"axis": "attention", "values": ["dense", "sparse"]}]

LIAR = """
from shapetrace_contract.tag import Shape
from shapetrace_capture.session import Session

honest = Session.capture
SWAPPED = {swapped!r}

def lying(self, shape, **more):
    here = dict(shape.variants, size=shape.size)
    for one, other in SWAPPED, SWAPPED[::-1]:
        if here == one:
            variants = {{axis: value for axis, value in other.items() if axis != "size"}}
            shape = Shape(shape.runner, shape.unit, other["size"], variants)
            break
    return honest(self, shape, **more)

Session.capture = lying
"""


def lying_python(folder: Path, swapped: list[dict[str, Any]]) -> Path:
    """A Python with the packages of this one in which two captures get each other's label."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "liar.py").write_text(LIAR.format(swapped=swapped))
    # the payload is on PYTHONPATH only where the engine runs
    start = "import importlib.util; importlib.util.find_spec('shapetrace_capture') and __import__('liar')"
    (packages / "liar.pth").write_text(f"{sysconfig.get_path('purelib')}\n{start}\n")
    return folder / "bin/python"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        pytest.param(
            {"size": 2, "lora": "lora", "attention": "dense"},
            {"size": 2, "lora": "lora", "attention": "sparse"},
            "DecodeGraphRunner__bs_2__attention-dense__lora-lora holds attention sparse",
            id="attention",
        ),
        pytest.param(
            {"size": 1, "lora": "lora", "attention": "dense"},
            {"size": 1, "lora": "nolora", "attention": "dense"},
            "DecodeGraphRunner__bs_1__attention-dense__lora-lora holds lora nolora",
            id="lora",
        ),
        pytest.param(
            {"size": 1, "lora": "nolora", "attention": "dense"},
            {"size": 4, "lora": "nolora", "attention": "dense"},
            "DecodeGraphRunner__bs_1__attention-dense__lora-nolora holds size 4",
            id="size",
        ),
    ],
)
def test_a_swap_is_mislabelled_and_it_is_said_what_the_trace_holds(
    run_local: Callable[..., Any], tmp_path: Path, one: dict[str, Any], other: dict[str, Any], said: str
) -> None:
    spec = {
        "engine": {"name": "torch", "args": TINY},
        "capture": {"targets": [{"runner": "decode", "sizes": [1, 2, 4], "variants": VARIANTS}]},
        "accelerator": {"vendor": "none"},
        "storage": {"s3": {"bucket": "not-used"}},
    }
    python = lying_python(tmp_path / "python", [one, other])
    code, out, err = run_local(spec, "--python", str(python)).end()
    found = json.loads((tmp_path / "out/manifest.json").read_text())
    assert found["verdict"] == "Mislabelled", err
    assert code != 0
    assert any(said in reason for reason in found["reasons"]), found["reasons"]
    assert len(found["traces"]) == 12, "all that was captured is kept and listed"
    assert "Mislabelled" in out + err


MODEL = """
import torch

class Model:
    def __init__(self, made):
        self.weight = torch.ones(16, 16)
        self.rows = torch.ones(max(made.sizes), 16)

    def inputs(self, size):
        return (self.rows[:size],)

    def forward(self, rows, *, variants):
        logits = torch.mm(torch.mm(rows, self.weight), self.weight)
        if variants["sampling"] == "greedy":
            return torch.argmax(logits, dim=-1)
        return torch.multinomial(torch.softmax(logits, dim=-1), 1)
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("axis", "verdict", "word"),
    [
        pytest.param("sampling", "Mislabelled", "contradicted", id="greedy, which other sizes show"),
        pytest.param("stream", "Complete", "unproven", id="stream, which no event shows"),
    ],
)
def test_a_swap_on_an_axis_of_a_model_of_one_s_own_is_found_where_events_show_it_and_never_proven(
    run_local: Callable[..., Any], tmp_path: Path, axis: str, verdict: str, word: str
) -> None:
    one = {"size": 2, "sampling": "greedy", "stream": "0"}
    other = {**one, axis: {"sampling": "random", "stream": "1"}[axis]}
    spec = {
        "engine": {"name": "torch", "args": ["--model", "model_that_is_swapped:Model"]},
        "capture": {
            "targets": [
                {
                    "runner": "decode",
                    "sizes": [1, 2, 4],
                    "variants": [
                        {"axis": "sampling", "values": ["greedy", "random"]},
                        {"axis": "stream", "values": ["0", "1"]},
                    ],
                }
            ]
        },
        "accelerator": {"vendor": "none"},
        "storage": {"s3": {"bucket": "not-used"}},
    }
    python = lying_python(tmp_path / "python", [one, other])
    next((tmp_path / "python").glob("lib/python*/site-packages")).joinpath("model_that_is_swapped.py").write_text(MODEL)
    _, _, err = run_local(spec, "--python", str(python)).end()
    found = json.loads((tmp_path / "out/manifest.json").read_text())
    assert found["verdict"] == verdict, err
    assert len(found["traces"]) == 12
    swapped = [
        trace
        for trace in found["traces"]
        if trace["shape"]["size"] == 2 and {**trace["shape"]["variants"], "size": 2} in (one, other)
    ]
    assert [trace["support"]["variants"][axis] for trace in swapped] == [word, word]
    assert all(trace["support"]["variants"][axis] != "proven" for trace in found["traces"])
    assert {trace["support"]["size"] for trace in found["traces"]} == {"proven"}
