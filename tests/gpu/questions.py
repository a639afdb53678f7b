"""From what the experiments found to answers: one line a question. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import facts

Found = Mapping[str, Mapping[str, Any]]
"""Experiment -> what it found; one that failed is not in it."""


@dataclass(frozen=True)
class Answer:
    """``yes`` None: it could not be told. ``required``: anything but yes is a fault; otherwise it is a finding."""

    question: str
    yes: bool | None
    figures: str
    required: bool = False

    @property
    def line(self) -> str:
        """For a person."""
        word = {True: "yes", False: "NO" if self.required else "no", None: "not known"}[self.yes]
        return f"{self.question}: {word} ({self.figures})"

    @property
    def is_fault(self) -> bool:
        """Whether the script has to say that something is wrong."""
        return self.required and self.yes is not True

    def to_json(self) -> dict[str, Any]:
        """One entry of the result file."""
        return {"question": self.question, "yes": self.yes, "figures": self.figures, "required": self.required}


def answers(found: Found) -> list[Answer]:
    """All questions, in the order of the report."""
    return [
        *_windows(found.get("captures"), "without stacks", minimum=60),
        *_windows(found.get("script"), "with stacks", minimum=1),
        *_replays(found.get("captures")),
        *_leaks(found),
        *_nodes(found.get("nodes")),
        *(_setting(name, item) for name, item in sorted(found.items()) if name.startswith("setting-")),
        *_costs(found),
    ]


def _windows(item: Mapping[str, Any] | None, how: str, minimum: int) -> Iterable[Answer]:
    if item is None:
        yield Answer(f"captures {how}: one clean trace for each", None, "the experiment failed", required=True)
        return
    windows, captures, faults = item["windows"], item["captures"], item["faults"]
    whole = captures == len(windows) >= minimum and not faults
    figures = f"{captures} captures, {len(windows)} traces, {len(faults)} faults{_first(faults)}"
    yield Answer(f"captures {how}: one clean trace for each", whole, figures, required=True)
    graphs = sorted(set(item["graphs"]))
    yield Answer(f"captures {how}: one graph in each window", graphs == [1], f"graphs {graphs}", required=True)
    for question, wrong in facts.wrong_windows(windows).items():
        figures = f"{len(windows) - len(wrong)} of {len(windows)}{_first(wrong)}"
        yield Answer(f"captures {how}: {question}", bool(windows) and not wrong, figures, required=True)
    seen = item["kernelsAfter"]
    yield Answer(
        f"captures {how}: kernels are seen afterwards",
        seen["seen"] == seen["launched"],
        f"{seen['launched']} launched, {seen['seen']} seen",
    )


def _first(names: Sequence[str]) -> str:
    return f", first {names[0]}" if names else ""


def _replays(item: Mapping[str, Any] | None) -> Iterable[Answer]:
    if item is None:
        return
    wrong, replays = item["wrongResults"], item["replays"]
    count = len(item["windows"])
    figures = f"{count - len(wrong)} of {count}{_first(wrong)}"
    yield Answer("a replay computes what the model computes", not wrong, figures, required=True)
    launches = {window["tag"]: window["launches"] for window in item["windows"]}
    different = [tag for tag, number in launches.items() if replays.get(tag, {}).get("kernels") != number]
    ran = sum(entry["kernels"] for tag, entry in replays.items() if tag in launches)
    figures = f"{ran} kernels of {sum(launches.values())} launches{_first(different)}"
    yield Answer("a replay runs as many kernels as its window saw launched", not different, figures)
    discarded, again = replays.get("discarded"), replays.get("again")
    if discarded and again:
        figures = f"{discarded['kernels']} kernels, the same graph again {again['kernels']}"
        yield Answer("the first replay of a session is whole", discarded["kernels"] == again["kernels"], figures)
    end = item["kernelsAtTheEnd"]
    figures = f"{end['launched']} launched, {end['seen']} seen"
    yield Answer("kernels are seen after the replays", end["launched"] == end["seen"], figures)


def _leaks(found: Found) -> Iterable[Answer]:
    for name, how, required in (("leak", "with", True), ("leak-unsynchronised", "without", False)):
        item = found.get(name)
        question = f"{how} the synchronise, windows hold no kernel of the warm-up"
        if item is None:
            yield Answer(question, None, "the experiment failed", required=required)
            continue
        leaked, before = item["leakedKernels"], item["launchesBeforeCapture"]
        windows = sum(1 for count in leaked if count)
        figures = (
            f"{sum(leaked)} kernels in {windows} of {len(leaked)} windows, {item['warmUpKernels']} each ran before"
        )
        figures += f"; {sum(before)} launches before the stream capture"
        seen = item["kernelsAfter"]
        figures += f"; afterwards {seen['launched']} launched, {seen['seen']} seen"
        # a tracer that sees no kernel at all has seen no leak either
        yes = None if not windows and not seen["seen"] else bool(leaked) and not windows
        yield Answer(question, yes, figures, required=required)


def _nodes(item: Mapping[str, Any] | None) -> Iterable[Answer]:
    names = ("graph id", "node id", "the order of node ids is that of creation")
    if item is None:
        yield from (Answer(f"replay events: {name}", None, "the experiment failed") for name in names)
        return
    replays = item["replays"].values()
    ran = sum(entry["kernels"] for entry in replays)
    for name, key in zip(names, ("withGraphId", "withNodeId"), strict=False):
        count = sum(entry[key] for entry in replays)
        yield Answer(f"replay events: {name}", 0 < ran == count, f"on {count} of {ran} kernels")
    first, second = item.get("first") or {}, item.get("second") or {}
    same = first.get("byNode") is not None and first.get("byNode") == second.get("byNode")
    figures = f"by node id {first.get('byNode')}, by time {first.get('byTime')}, again {second.get('byNode')}"
    yield Answer(f"replay events: {names[2]}", first.get("isCreationOrder") if same else None, figures)


def _setting(name: str, item: Mapping[str, Any]) -> Answer:
    launched = item["launched"]
    replays = [entry for tag, entry in item["replays"].items() if tag not in ("discarded", "again")]
    seen = [entry["kernels"] for entry in replays]
    yes = item["seenAfterCaptures"] == item["seenAtTheEnd"] == launched and len(seen) == item["captures"] and all(seen)
    variables = ", ".join(f"{key}={value}" for key, value in sorted(item.get("environment", {}).items()))
    figures = (
        f"{variables or 'no variables'}, {item['first']} first, {item['captures']} captures in "
        f"{item['captureSeconds']} s; {launched} launched, {item['seenAfterCaptures']} seen after the captures, "
        f"{sum(seen)} kernels in {len(seen)} replays, {item['seenAtTheEnd']} seen at the end"
    )
    return Answer(f"kernels are seen after captures, {name.removeprefix('setting-')}", yes, figures)


def _costs(found: Found) -> Iterable[Answer]:
    for name, how in (("captures", "without stacks"), ("script", "with stacks")):
        costs = (found.get(name) or {}).get("costs") or {}
        for step in ("start", "stop", "save"):
            item = costs.get(step)
            if item is not None:
                figures = ", ".join(f"{key.removesuffix('Seconds')} {value} s" for key, value in item.items())
                yield Answer(f"cost of {step} {how}", True, f"{figures}; {costs['windows']} windows")
