"""Reading the arguments that a person gives a serving engine, as its own ``argparse`` will read them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

SHORTEST_ABBREVIATION = 4
"""``--tp`` is how most people write ``--tp-size``: argparse takes every unambiguous beginning."""
LETTER = 2
"""The length of ``-n``: argparse reads ``-n2`` as ``-n 2``, and takes ``-t`` for ``-tp``."""


@dataclass(frozen=True)
class Argument:
    """One option as it was written."""

    name: str
    """Spelled with dashes, without its value and without the path of ``--option.key``."""
    key: str
    """``a.b`` of ``--option.a.b``; empty without one."""
    value: str
    """What follows, if it is no option itself; empty otherwise."""
    position: int


def options(args: Sequence[str]) -> Iterator[Argument]:
    """The options among ``args``, in order."""
    for position, text in enumerate(args):
        if not text.startswith("-") or _is_number(text) or text == "-":
            continue
        head, equals, value = text.partition("=")
        name, _, key = head.partition(".")
        following = args[position + 1] if position + 1 < len(args) else ""
        if not equals and (not following.startswith("-") or _is_number(following)):
            value = following
        # vLLM takes underscores for dashes
        yield Argument(name.replace("_", "-"), key, value, position)


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def means(option: Argument, *flags: str, others: Sequence[str] = ()) -> bool:
    """Whether ``option`` is one of ``flags``, abbreviated or not.

    ``others`` are whole flags of the engine that are no abbreviation although one of ``flags`` begins like them.
    """
    if option.name in flags:
        return True
    if option.name in others:
        return False
    if not option.name.startswith("--"):
        return any(
            (len(flag) == LETTER and option.name.startswith(flag))
            or (not flag.startswith("--") and flag.startswith(option.name))
            for flag in flags
        )
    return len(option.name) >= SHORTEST_ABBREVIATION and any(flag.startswith(option.name) for flag in flags)


def given(args: Sequence[str], *flags: str, others: Sequence[str] = ()) -> Argument | None:
    """The last option that :func:`means` one of ``flags``; None where there is none."""
    found = None
    for option in options(args):
        if means(option, *flags, others=others):
            found = option
    return found


@dataclass(frozen=True)
class Refused:
    """An option that shapetrace cannot work with, and what to do instead."""

    flags: tuple[str, ...]
    why: str
    when: Callable[[Argument, Sequence[str]], bool] = lambda option, args: True


def refused(args: Sequence[str], table: Sequence[Refused]) -> Iterator[str]:
    """A sentence for each option of ``table`` that is given, each naming the option as it was written."""
    known = [flag for entry in table for flag in entry.flags]
    for entry in table:
        others = [flag for flag in known if flag not in entry.flags]
        option = given(args, *entry.flags, others=others)
        if option is not None and entry.when(option, args):
            path = f".{option.key}" if option.key else ""
            yield f"engine.args: {option.name}{path}: {entry.why}"
