"""Going through a trace once: the events in batches, the values beside them that are wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import simdjson

from shapetrace_traces.reader.errors import UnreadableTraceError, json_fault
from shapetrace_traces.reader.text import Text, cuts

EVENTS = "traceEvents"
_TRIES = 6
"""Guesses where to cut a block before it is cut the slow way."""
_LEAST_BYTES = 8 * 1024
_MOST_BYTES = 2 * 1024**2
"""Between these a block is worth guesses: below, the slow way is as fast; above, one event must be very long."""

OnEvents = Callable[[Iterable[Any], int], None]
"""Takes a batch of events, and the number of the first. Nothing of a batch may be kept but plain numbers and text."""


class Walk:
    """One reading. Of a key that an object holds twice, the first counts."""

    def __init__(self, blocks: Iterator[bytes], on_events: OnEvents, wanted: Collection[str] = ()) -> None:
        self._text = Text(blocks)
        self._on_events = on_events
        self._wanted = wanted
        self._parser = simdjson.Parser()
        self.events = 0
        self.top: dict[str, Any] = {}
        """The wanted values that there are."""
        self.is_lenient = False
        """Whether some text was read that is no strict JSON: raw control characters, bytes that are no UTF-8, NaN."""

    def run(self) -> None:
        """Read to the end. :class:`UnreadableTraceError` for anything that is not one whole trace."""
        text = self._text
        sign = text.peek()
        if sign == b"[":
            text.at += 1
            self._read_events()
        elif sign == b"{":
            text.at += 1
            self._read_object()
        elif not sign:
            raise UnreadableTraceError("not JSON: it is empty")
        else:
            raise UnreadableTraceError("not JSON: a trace begins with { or [")
        if text.peek():
            raise self._broken("more text after the trace")

    def _broken(self, what: str) -> UnreadableTraceError:
        return UnreadableTraceError(f"not JSON: {what} {self._text.where(self._text.at)}, after {self.events} events")

    def _read_object(self) -> None:
        text, seen = self._text, False
        if text.peek() == b"}":
            text.at += 1
        else:
            while True:
                if text.peek() != b'"':
                    raise self._broken("no key")
                key = self._plain(text.take_string())
                if text.peek() != b":":
                    raise self._broken("no colon")
                text.at += 1
                if key != EVENTS:
                    self._read_value(key)
                elif seen:
                    raise UnreadableTraceError(f"{EVENTS} stands twice: which of them counts is not known")
                elif text.peek() != b"[":
                    raise UnreadableTraceError(f"{EVENTS} is no list: not a Chrome trace")
                else:
                    text.at += 1
                    self._read_events()
                    seen = True
                sign = text.peek()
                text.at += 1
                if sign == b"}":
                    break
                if sign != b",":
                    text.at -= 1
                    raise self._broken("neither comma nor }" if sign else "the text ends early")
        if not seen:
            raise UnreadableTraceError(f"no {EVENTS}: not a Chrome trace")

    def _read_value(self, key: Any) -> None:
        self._text.peek()
        value = self._text.take_value()
        if key in self._wanted and key not in self.top:
            self.top[key] = self._plain(value)
            return
        try:
            self._parser.parse(value)
        except (ValueError, RuntimeError):
            self._plain(value)

    def _read_events(self) -> None:
        text = self._text
        if text.peek() == b"]":
            text.at += 1
            return
        is_over, block = False, text.give_back()
        while not is_over:
            if self._take_fast(block):
                block = text.next_block()
                continue
            if block:
                text.take_in(block)
            values, is_over = text.take_values()
            if not values.strip(b" \t\n\r"):
                raise self._broken("an event is missing")
            self._take_slow(values)
            block = b"" if is_over else text.next_block()

    def _take_fast(self, block: bytes) -> bool:
        """Guess where the block can be cut; the strict parser knows whether the guess was right."""
        text = self._text
        if not _LEAST_BYTES <= len(block) <= _MOST_BYTES or len(text.held) - text.at > _MOST_BYTES:
            return False
        rest = memoryview(text.held)[text.at :]
        for cut in islice(cuts(block), _TRIES):
            try:
                batch = self._parser.parse(b"".join((b"[", rest, memoryview(block)[:cut], b"]")))
            except (ValueError, RuntimeError):  # RuntimeError: a number that 64 bits do not hold
                continue
            text.take_in(block, cut + 1)
            self._pass_on(batch)
            return True
        return False

    def _take_slow(self, values: bytes) -> None:
        enclosed = b"[" + values + b"]"
        try:
            batch = self._parser.parse(enclosed)
        except (ValueError, RuntimeError):
            batch = self._plain(enclosed)
        self._pass_on(batch)

    def _pass_on(self, batch: Any) -> None:
        first = self.events
        self.events += len(batch)
        self._on_events(batch, first)

    def _plain(self, value: bytes) -> Any:
        """Parse what the fast parser refuses, or what is kept."""
        try:
            return json.loads(value.decode(), object_pairs_hook=_first, parse_constant=_no_number)
        except (ValueError, RecursionError):
            pass
        try:
            # strict=False: Kineto has written raw control characters (https://github.com/pytorch/pytorch/issues/130622)
            found = json.loads(value.decode("utf-8", "replace"), strict=False, object_pairs_hook=_first)
        except RecursionError:
            raise UnreadableTraceError("the JSON is nested too deep") from None
        except ValueError as error:
            where = f"between the bytes {self._text.offset - len(value)} and {self._text.offset}"
            raise UnreadableTraceError(f"not JSON: {json_fault(error)}, {where}, after {self.events} events") from None
        self.is_lenient = True
        return found


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = dict(reversed(pairs))
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
