"""``spec.capture``: which shapes are captured, on which ranks, and what each trace records."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from shapetrace_api.engine import MAX_RANKS
from shapetrace_api.schema import ApiModel, ListMap, ListSet, Rule, rules

MAX_SIZES = 512
"""SGLang and vLLM capture 52 to 83 sizes by default; every size from 1 to 512 is the widest list seen."""

Size = Annotated[int, Field(ge=1, le=1_048_576)]
RunnerWord = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z][A-Za-z0-9._-]*$")]
Axis = Annotated[
    str,
    StringConstraints(min_length=1, max_length=32),
    # no pattern: the API server would answer with it instead of in words
    Rule(
        "self.matches('^[a-z][a-z0-9]*$')",
        "the axis of a variant has lower-case letters and digits only and begins with a letter: lora, not LoRA",
    ),
    Rule("self != 'epoch'", "the axis epoch is taken: it counts how often an engine captured again"),
]
AxisValue = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]


class Unit(StrEnum):
    """What a size counts."""

    REQUESTS = "bs"
    TOKENS = "tok"


class Variant(ApiModel):
    """One further axis of the engine's graph key, and its values."""

    axis: Axis = Field(description="Name of the axis, such as 'lora' or 'attention': lower-case letters and digits.")
    values: Annotated[list[AxisValue], Field(min_length=1, max_length=32), ListSet()] = Field(
        description="The values to capture, such as 'dense' and 'sparse'."
    )


class Target(ApiModel):
    """What one runner of the engine is to capture."""

    runner: RunnerWord = Field(
        description="Which runner of the engine: 'decode', 'prefill', 'draft', another that its adapter names, "
        "or for command the name that the script's tags are to begin with."
    )
    unit: Unit = Field(default=Unit.REQUESTS, description="What the sizes count: bs (requests) or tok (tokens).")
    sizes: Annotated[list[Size], Field(max_length=MAX_SIZES), ListSet()] = Field(
        default=[],
        description="The sizes to capture; they configure the engine, which may leave some out and says why. The "
        "engine's own choice where empty. SGLang takes them for decode (bs) and prefill (tok), vLLM one list (tok).",
    )
    variants: Annotated[list[Variant], Field(max_length=8), ListMap(("axis",))] = Field(
        default=[],
        description="Further axes. They configure the engine torch. For others they declare what is expected: all that "
        "the engine captures is recorded, and a declared shape that it does not capture is told, with its reason "
        "(capture.strict refuses it).",
    )

    @property
    def declared_shapes(self) -> int:
        """Shapes that sizes and variants declare together; 0 where the sizes are left to the engine."""
        shapes = len(self.sizes)
        for variant in self.variants:
            shapes *= len(variant.values)
        return shapes


class RankChoice(StrEnum):
    """Which ranks are recorded."""

    ALL = "All"
    FIRST = "First"
    LISTED = "Listed"


class Stacks(StrEnum):
    """Which ranks record Python stacks."""

    ALL = "All"
    FIRST = "First"
    NONE = "None"


class Capture(ApiModel):
    """What is captured and what a trace records of it."""

    model_config = rules(
        Rule(
            "(self.ranks == 'Listed') == (has(self.listedRanks) && self.listedRanks.size() > 0)",
            "capture.listedRanks goes with ranks: Listed, and only with it",
        ),
    )
    targets: Annotated[list[Target], Field(max_length=16), ListMap(("runner",))] = Field(
        default=[],
        description="What each runner is to capture. Empty means what the engine captures by its own configuration.",
    )
    ranks: RankChoice = Field(
        default=RankChoice.ALL, description="Which ranks are recorded: All, the First, or those in listedRanks."
    )
    listed_ranks: (
        Annotated[list[Annotated[int, Field(ge=0, lt=MAX_RANKS)]], Field(max_length=MAX_RANKS), ListSet()] | None
    ) = Field(default=None, description="Global ranks that are recorded, with ranks: Listed.")
    stacks: Stacks = Field(
        default=Stacks.FIRST,
        description="Which recorded ranks keep Python stacks: All, the First, or None. Stacks make a trace several "
        "times as large.",
    )
    record_shapes: bool = Field(
        default=True, description="Record the shapes of operands. Without them a size cannot be proven from the trace."
    )
    flops: bool = Field(default=False, description="Record the estimated floating-point operations of each operator.")
    memory: bool = Field(default=False, description="Record allocations.")
    strict: bool = Field(
        default=False,
        description="Fail the run (NotProven) where graphs are off, where a size is not proven or a variant is "
        "neither proven nor distinct, where a declared shape is not captured, or where a trace holds no graph or was "
        "recorded on the CPU though a GPU was asked for. Everything is stored and listed all the same.",
    )

    @property
    def selected_ranks(self) -> str | list[int]:
        """``All``, ``First`` or the list of global ranks, as the capture's settings spell it."""
        if self.ranks is RankChoice.LISTED:
            return sorted(self.listed_ranks or [])
        return self.ranks.value

    def recorded_ranks(self, ranks: int) -> int:
        """How many of ``ranks`` ranks are recorded."""
        if self.ranks is RankChoice.LISTED:
            return len(self.listed_ranks or [])
        return 1 if self.ranks is RankChoice.FIRST else ranks
