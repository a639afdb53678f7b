"""Real traces of small models, honest and with labels swapped: nothing honest is condemned, nothing false is proven.

Each model runs under the product's session and profiler; its traces go through the product's index and judge. Where a
swap is not found the reason is that the events do not show it, and then no swapped label may be ``proven``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from launched import folder, lines
from shapetrace_capture.ranks import RankId
from shapetrace_capture.session import Session
from shapetrace_contract.settings import CaptureSettings
from shapetrace_contract.tag import Runner, Shape
from shapetrace_traces.index import index_trace
from shapetrace_traces.judge import Verdicts, judge

HIDDEN = 8
Step = Callable[[Any, Any, int], Any]
"""``step(torch, rows, size)``; ``rows`` is the input, ``[rows, HIDDEN]``."""


def weight(torch: Any, inputs: int, outputs: int) -> Any:
    return torch.ones(inputs, outputs)


def layers(torch: Any, rows: Any, count: int = 3) -> Any:
    for _ in range(count):
        rows = torch.mm(rows, weight(torch, HIDDEN, HIDDEN))
    return rows


def plain(torch: Any, rows: Any, size: int) -> Any:
    return layers(torch, rows)


def with_bias(torch: Any, rows: Any, size: int) -> Any:
    """``linear`` with a bias on flattened input: it calls ``addmm``, the bias first, as wide as one of the sizes."""
    for _ in range(3):
        rows = torch.nn.functional.linear(rows, weight(torch, HIDDEN, HIDDEN), torch.ones(HIDDEN))
    return rows


def addmm_only(torch: Any, rows: Any, size: int) -> Any:
    for _ in range(3):
        rows = torch.addmm(torch.ones(HIDDEN), rows, weight(torch, HIDDEN, HIDDEN))
    return rows


def routed(torch: Any, rows: Any, size: int, experts: int = 8) -> Any:
    """A router with a bias for each expert, each token to one expert: how many rows an expert has is data."""
    rows = layers(torch, rows, 1)
    logits = torch.addmm(torch.arange(float(experts)), rows, torch.eye(HIDDEN, experts))
    chosen = (torch.arange(rows.shape[0]) * 5 + int(logits.shape[1] > 0)) % experts
    out = torch.zeros_like(rows)
    for expert in range(experts):
        own = (chosen == expert).nonzero().flatten()
        if len(own):
            out[own] = torch.mm(rows[own], weight(torch, HIDDEN, HIDDEN))
    return out


def experts_of_constant_capacity(torch: Any, rows: Any, size: int) -> Any:
    """Experts that always compute 8 rows, with weights of the same form as the rest."""
    rows = torch.addmm(torch.ones(HIDDEN), rows, weight(torch, HIDDEN, HIDDEN))
    for _ in range(8):
        torch.addmm(torch.ones(HIDDEN), torch.ones(8, HIDDEN), weight(torch, HIDDEN, HIDDEN))
    return rows


def gathered(torch: Any, rows: Any, size: int, replicas: int = 2) -> Any:
    """Attention over own rows, the rest over those of all data replicas."""
    rows = layers(torch, rows, 2)
    whole = layers(torch, rows.repeat(replicas, 1), 2)
    return whole[: rows.shape[0]]


def sharded(torch: Any, rows: Any, size: int) -> Any:
    """Sequence parallel parts see half the rows."""
    half = layers(torch, rows[: rows.shape[0] // 2], 2)
    return layers(torch, half.repeat(2, 1), 2)


def sharded_up(torch: Any, rows: Any, size: int) -> Any:
    """A part with half the rows rounded up: one row for sizes 1 and 2."""
    rows = layers(torch, rows, 2)
    torch.mm(rows[: -(-rows.shape[0] // 2)], weight(torch, HIDDEN, 4))
    return rows


def sharded_throughout(torch: Any, rows: Any, size: int) -> Any:
    return layers(torch, rows[: rows.shape[0] // 2])


def head_on_last_token(torch: Any, rows: Any, size: int) -> Any:
    """A prompt's tokens, and the output head on the last of them only, its weights as wide as a size."""
    rows = layers(torch, rows)
    return torch.mm(rows[-1:], weight(torch, HIDDEN, 16))


def head_on_last_token_of_each(torch: Any, rows: Any, size: int) -> Any:
    """Four tokens a request, and the head on one of each."""
    rows = layers(torch, rows)
    return torch.mm(rows[::4], weight(torch, HIDDEN, 16))


def padded(torch: Any, rows: Any, size: int, multiple: int = 8) -> Any:
    count = -(-rows.shape[0] // multiple) * multiple
    return layers(torch, torch.ones(count, HIDDEN))[: rows.shape[0]]


@dataclass(frozen=True)
class Case:
    """A model, and what its events can show."""

    name: str
    step: Step
    sizes: tuple[int, ...] = (2, 4, 8, 16)
    width: int | None = None
    unit: str = "bs"
    rows: Callable[[int], int] = field(default=lambda size: size)
    honest: str = "proven"
    """Of every trace, if nothing is swapped."""
    hidden: tuple[tuple[int, int], ...] = ()
    """Pairs whose swap the events do not show, because equal rows were run or something else explains them."""
    watched: bool = False
    """Whether the rows at the forward call are recorded."""
    slips_unseen: bool = False
    """Labels that slipped by the very factor by which all parts are sharded: only the rows at the forward call tell
    them from right labels of a model without shards."""

    def runner(self) -> Runner:
        return Runner("Model", width=self.width)

    def shape(self, size: int) -> Shape:
        return Shape(self.runner(), self.unit, size)


CASES = [
    Case("plain", plain),
    Case("two sizes", plain, sizes=(2, 8)),
    Case("speculative width 4", plain, width=4, rows=lambda size: 4 * size),
    Case("speculative width 4, two sizes", plain, sizes=(2, 4), width=4, rows=lambda size: 4 * size),
    Case("width that no name tells", plain, rows=lambda size: 4 * size, honest="consistent"),
    Case("last token of four", head_on_last_token_of_each, width=4, rows=lambda size: 4 * size),
    Case(
        "last token of four, as many as a size", head_on_last_token_of_each, sizes=(4, 8, 16, 32), width=4,
        rows=lambda size: 4 * size, honest="consistent",
    ),
    Case("linear with a bias", with_bias),
    Case("addmm only, bias as wide as a size", addmm_only, sizes=(4, 8)),
    Case("router, experts = a size", routed),
    Case("router, experts = the larger of two sizes", routed, sizes=(4, 8)),
    Case("router, experts = the smaller of two sizes", routed, sizes=(8, 16), honest="consistent"),
    Case("router, experts = the smaller of two sizes, the call seen", routed, sizes=(8, 16), watched=True),
    Case("experts of constant capacity = a size", experts_of_constant_capacity),
    Case("experts of constant capacity, two sizes", experts_of_constant_capacity, sizes=(4, 8)),
    Case("gathered over replicas", gathered, honest="consistent"),
    Case("gathered over replicas, the call seen", gathered, watched=True),
    Case("gathered over replicas, rows coincide", gathered, sizes=(2, 4), honest="consistent"),
    Case("gathered over replicas, rows coincide, the call seen", gathered, sizes=(2, 4), watched=True),
    Case("sequence sharded parts", sharded, honest="consistent"),
    Case("sequence sharded parts, the call seen", sharded, watched=True),
    Case("sequence sharded throughout", sharded_throughout, honest="consistent", slips_unseen=True),
    Case("sequence sharded throughout, the call seen", sharded_throughout, watched=True),
    Case("head on the last token", head_on_last_token, sizes=(16, 32, 64), unit="tok"),
    Case("sharded parts, rounded up", sharded_up, sizes=(1, 2, 3, 6)),
    Case("one size", plain, sizes=(8,), honest="consistent"),
    Case(
        "padded to 8", padded, sizes=(1, 2, 8, 16, 32), honest="consistent",
        hidden=((1, 2), (1, 8), (2, 8)),
    ),
]  # fmt: skip


class Recorder:
    """Records a case's sizes once and judges them under any labels."""

    def __init__(self, torch: Any, root: Path, case: Case) -> None:
        self._case = case
        session = Session(root, RankId(0), CaptureSettings(stacks="None", roomWaitSeconds=0))
        session.start({"test": "applied"})
        for size in case.sizes:
            rows = torch.ones(case.rows(size), HIDDEN)
            with session.capture(case.shape(size)) as capture:
                step = capture.watch(case.step, lambda _, rows, __: rows.shape[0]) if case.watched else case.step
                step(torch, rows, size)
        session.done()
        self._by_size = {
            record["shape"]["size"]: (record, index_trace((folder(root) / record["file"]).read_bytes()))
            for record in lines(folder(root) / "captures.jsonl")
        }

    def judged(self, content: Mapping[int, int]) -> dict[int, tuple[str, str]]:
        """Label -> (support, what it holds); ``content`` maps a label to the size that really ran under it."""
        entries = []
        for label, size in content.items():
            record, index = self._by_size[size]
            tag = self._case.shape(label).tag
            # whoever mixed up the labels wrote them everywhere
            relabelled = {**index, "metadata": {**index["metadata"], "tag": tag}, "spans": [tag]}
            entries.append({"key": tag, "tag": tag, "index": relabelled, "witnesses": record["witnesses"]})
        found: Verdicts = judge([{"rank": 0, "traces": entries}])
        return {item.trace.size: (item.size, " ".join(item.holds)) for item in found.traces.values()}


@pytest.fixture(scope="module")
def record(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Recorder]:
    made: dict[str, Recorder] = {}

    def recorded(case: Case) -> Recorder:
        if case.name not in made:
            made[case.name] = Recorder(torch, tmp_path_factory.mktemp("case"), case)
        return made[case.name]

    return recorded


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_honest_family_is_never_condemned(record: Callable[[Case], Recorder], case: Case) -> None:
    honest = dict(zip(case.sizes, case.sizes, strict=True))
    assert {word for word, _ in record(case).judged(honest).values()} == {case.honest}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_swap_that_events_show_is_found_and_no_other_label_is_condemned(
    record: Callable[[Case], Recorder], case: Case
) -> None:
    for one, other in itertools.combinations(case.sizes, 2):
        content = {**dict(zip(case.sizes, case.sizes, strict=True)), one: other, other: one}
        found = record(case).judged(content)
        condemned = {label: said for label, (word, said) in found.items() if word == "contradicted"}
        if (one, other) in case.hidden:
            assert condemned == {}, (one, other, condemned)
            assert all(word != "proven" for word, _ in found.values()), (one, other, found)
            continue
        assert condemned.keys() == {one, other}, (one, other, found)
        assert condemned[one].startswith(f"size {other} (")
        padding = case.step is padded and one < 8  # which of those with as many rows it is, nothing tells
        assert condemned[other].startswith("size at most 8 (" if padding else f"size {one} (")


@pytest.mark.parametrize("case", [case for case in CASES if len(case.sizes) > 2], ids=lambda case: case.name)
def test_no_order_of_labels_but_the_right_one_proves_a_label_that_is_wrong(
    record: Callable[[Case], Recorder], case: Case
) -> None:
    for order in itertools.permutations(case.sizes):
        content = dict(zip(case.sizes, order, strict=True))
        for label, (word, _) in record(case).judged(content).items():
            assert word != "proven" or content[label] == label, (content, label)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("case", [case for case in CASES if len(case.sizes) > 2], ids=lambda case: case.name)
def test_labels_that_all_slipped_are_not_proven(record: Callable[[Case], Recorder], case: Case, places: int) -> None:
    """Each trace under the label of a smaller size, as a cursor that is one or two off writes them."""
    content = dict(zip(case.sizes, case.sizes[places:], strict=False))  # the smallest sizes lost their traces
    words = {word for word, _ in record(case).judged(content).values()}
    assert "contradicted" not in words, "no label of the family would be right"
    assert ("proven" in words) is (case.slips_unseen and places == 1)


# ---- variants


def sampled(torch: Any, rows: Any, variants: Mapping[str, str]) -> Any:
    """Greedy takes the largest, the other draws; a stream changes nothing that events show, nor does ``kernel``."""
    logits = layers(torch, rows)
    if variants.get("sampling") == "greedy":
        return torch.argmax(logits, dim=-1)
    return torch.multinomial(torch.softmax(logits, dim=-1), 1)


SIZES = (2, 4, 8)
AXES = {"sampling": ("greedy", "random"), "stream": ("0", "1"), "lora": ("lora", "nolora")}
"""``lora`` as where its kernels bypass the dispatcher: no operator differs."""


class Variants:
    """Every size with every combination of the axes, recorded once, judged under any labels."""

    def __init__(self, torch: Any, root: Path) -> None:
        session = Session(root, RankId(0), CaptureSettings(stacks="None", roomWaitSeconds=0))
        session.start({"test": "applied"})
        self.shapes = [
            Shape(Runner("Model"), "bs", size, dict(zip(AXES, values, strict=True)))
            for size in reversed(SIZES)
            for values in itertools.product(*AXES.values())
        ]
        for shape in self.shapes:
            for _ in range(2):
                sampled(torch, torch.ones(shape.size, HIDDEN), shape.variants)
            with session.capture(shape, state=lambda lora=shape.variants["lora"]: {"lora": lora}) as capture:
                step = capture.watch(sampled, lambda _, rows, __: rows.shape[0])
                step(torch, torch.ones(shape.size, HIDDEN), shape.variants)
        session.done()
        self._by_tag = {
            record["tag"]: (record, index_trace((folder(root) / record["file"]).read_bytes()))
            for record in lines(folder(root) / "captures.jsonl")
        }

    def judged(self, content: Mapping[str, str], *, state: bool = True, default: str = "") -> dict[str, Any]:
        """Tag -> verdict; ``content`` says what really ran where it is not the label, ``state`` whether the record has
        the engine's own words. A value that is the ``default`` is left out of the labels."""
        entries = []
        for shape in self.shapes:
            record, index = self._by_tag[content.get(shape.tag, shape.tag)]
            variants = {axis: value for axis, value in shape.variants.items() if value != default}
            tag = Shape(shape.runner, shape.unit, shape.size, variants).tag
            relabelled = {**index, "metadata": {**index["metadata"], "tag": tag}, "spans": [tag]}
            witnesses = record["witnesses"] if state else {**record["witnesses"], "engine": None}
            entries.append({"key": tag, "tag": tag, "index": relabelled, "witnesses": witnesses})
        found = judge([{"rank": 0, "traces": entries}], engine="command")
        return {item.trace.tag: item for item in found.traces.values()}


@pytest.fixture(scope="module")
def variants(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Variants:
    return Variants(torch, tmp_path_factory.mktemp("variants"))


def exchanged(variants: Variants, axis: str, sizes: tuple[int, ...]) -> dict[str, str]:
    """Both values of ``axis`` under each other's label, at these sizes."""
    content = {}
    for shape in variants.shapes:
        if shape.size in sizes:
            other = next(value for value in AXES[axis] if value != shape.variants[axis])
            content[shape.tag] = Shape(shape.runner, shape.unit, shape.size, {**shape.variants, axis: other}).tag
    return content


def test_honest_variants_are_told_as_far_as_events_tell(variants: Variants) -> None:
    found = variants.judged({})
    assert {item.size for item in found.values()} == {"proven"}
    for item in found.values():
        assert item.variants == {"sampling": "distinct", "stream": "unproven", "lora": "unproven"}, item.evidence


def test_a_swap_of_sampling_at_one_size_is_found(variants: Variants) -> None:
    found = variants.judged(exchanged(variants, "sampling", (4,)))
    wrong = {item.trace.size for item in found.values() if item.variants["sampling"] == "contradicted"}
    assert wrong == {4}
    assert all("sampling" in " ".join(item.holds) for item in found.values() if item.trace.size == 4)


def test_a_swap_with_a_default_that_labels_leave_out_is_found(variants: Variants) -> None:
    honest = variants.judged({}, default="random")
    assert {word for item in honest.values() for axis, word in item.variants.items() if axis == "sampling"} == {
        "distinct"
    }
    found = variants.judged(exchanged(variants, "sampling", (4,)), default="random")
    wrong = {tag for tag, item in found.items() if item.variants.get("sampling") == "contradicted"}
    assert wrong == {tag for tag, item in found.items() if item.trace.size == 4}
    held = {tag: item.holds[0].partition(" (")[0] for tag, item in found.items() if tag in wrong}
    assert set(held.values()) == {"sampling greedy", "no sampling"}
    assert all(("sampling-greedy" in tag) is (text == "no sampling") for tag, text in held.items())


@pytest.mark.parametrize("axis", sorted(AXES))
@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 8), SIZES])
@pytest.mark.parametrize("state", [False, True])
def test_no_swapped_value_is_ever_proven(variants: Variants, axis: str, sizes: tuple[int, ...], state: bool) -> None:
    found = variants.judged(exchanged(variants, axis, sizes), state=state)
    for item in found.values():
        assert item.variants[axis] != "proven"
        if axis == "stream":
            assert item.variants[axis] == "unproven", "nothing in the events can tell it"
        if axis == "lora":
            moved = item.trace.size in sizes
            assert item.variants[axis] == ("contradicted" if state and moved else "unproven")


def test_an_engine_s_own_words_speak_against_a_label_and_never_for_it(variants: Variants) -> None:
    swapped = variants.judged(exchanged(variants, "lora", (4,)))
    for item in swapped.values():
        if item.trace.size == 4:
            assert item.variants["lora"] == "contradicted"
            assert "the engine's state at the capture" in " ".join(item.holds)
    assert {item.variants["lora"] for item in variants.judged({}).values()} == {"unproven"}


def test_sizes_that_changed_places_between_streams_are_found(variants: Variants) -> None:
    """The events tell no stream from another, and yet they show that a size is under the wrong one."""
    base = {"sampling": "greedy", "lora": "lora"}
    one = next(s for s in variants.shapes if s.size == 2 and s.variants == {**base, "stream": "0"})
    other = next(s for s in variants.shapes if s.size == 8 and s.variants == {**base, "stream": "1"})
    found = variants.judged({one.tag: other.tag, other.tag: one.tag})
    assert {tag for tag, item in found.items() if item.size == "contradicted"} == {one.tag, other.tag}
