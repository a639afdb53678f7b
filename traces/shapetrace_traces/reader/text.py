"""The part of a trace's text that is held, and where values end in it. Exact whatever the layout is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shapetrace_traces.reader.errors import TooLongTraceError, UnreadableTraceError

MAX_VALUE_BYTES = 8 * 1024**2
"""Of one event or one value beside the events; real ones have a few kB."""
MAX_DEPTH = 900
"""Of brackets in each other; a real trace has fewer than ten."""
_SPACE = re.compile(rb"[ \t\n\r]*")
_AROUND = re.compile(rb'[",{}\[\]]')
_INSIDE = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'["\\]')
_LONGEST_SPACE = 64
_PROBES = 64
"""Places that are looked at to find where a block may be cut."""


class Text:
    """What is held of the text: ``held`` from ``at`` on is still to be read."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._dropped_bytes = 0
        self.held = b""
        self.at = 0

    @property
    def offset(self) -> int:
        """Bytes of the text before ``at``."""
        return self._dropped_bytes + self.at

    def more(self) -> bool:
        """Take in a block and drop what lies before ``at``, which becomes 0; False at the end of the text."""
        block = self.next_block()
        if block:
            self.take_in(block)
        return bool(block)

    def next_block(self) -> bytes:
        """A block that follows what is held and is not taken in yet; empty at the end of the text."""
        return next(self._blocks, b"")

    def give_back(self) -> bytes:
        """What is held from ``at`` on, as a block that is not taken in yet."""
        rest = self.held[self.at :]
        self._dropped_bytes += self.at
        self.held, self.at = b"", 0
        return rest

    def take_in(self, block: bytes, begin: int | None = None) -> None:
        """Hold a block too; with ``begin``, hold nothing but the block from there on."""
        if begin is None:
            self._dropped_bytes += self.at
            self.held, self.at = self.held[self.at :] + block, 0
        else:
            self._dropped_bytes += len(self.held) + begin
            self.held, self.at = block[begin:], 0

    def peek(self) -> bytes:
        """Go to the next byte that is no white space and give it; empty at the end."""
        while True:
            found = _SPACE.match(self.held, self.at)
            assert found is not None  # it matches nothing, too
            self.at = found.end()
            if self.at < len(self.held):
                return self.held[self.at : self.at + 1]
            if not self.more():
                return b""

    def take_string(self) -> bytes:
        """Take the string that begins at ``at``, with its quotes."""
        end = self.at + 1
        while True:
            found = _STRING.search(self.held, end)
            if found is not None and found.group() == b'"':
                taken = self.held[self.at : found.end()]
                self.at = found.end()
                return taken
            if found is not None and found.end() < len(self.held):
                end = found.end() + 1
                continue
            end = self._grow(len(self.held) if found is None else found.start())

    def take_value(self) -> bytes:
        """Take the text up to the comma or bracket that ends the value at ``at``; the end itself stays."""
        nesting, end = Nesting(), self.at
        while True:
            found, end = nesting.find_end(self.held, end)
            if found:
                taken = self.held[self.at : end]
                self.at = end
                return taken
            end = self._grow(end)

    def take_values(self) -> tuple[bytes, bool]:
        """Take whole values of a list with the comma after them, at least one; and whether the list ended instead.

        The slow way: it looks at every bracket and quote, and needs no layout.
        """
        nesting, end, last = Nesting(), self.at, -1
        while True:
            found, end = nesting.find_end(self.held, end)
            if not found and last < 0:
                end = self._grow(end)
                continue
            if found and self.held[end : end + 1] == b",":
                last = end
                end += 1
                continue
            if found and self.held[end : end + 1] == b"}":
                raise UnreadableTraceError(f"not JSON: }} instead of ] {self.where(end)}")
            cut = end if found else last
            taken = self.held[self.at : cut]
            self.at = cut + 1
            return taken, found

    def where(self, place: int) -> str:
        """Where a place of the held text is, for a person."""
        return f"at byte {self._dropped_bytes + place}"

    def _grow(self, end: int) -> int:
        """Take in a block, because the value at ``at`` goes on; where ``end`` is then."""
        if len(self.held) - self.at > MAX_VALUE_BYTES:
            raise TooLongTraceError(f"a value {self.where(self.at)} has more than {MAX_VALUE_BYTES} bytes")
        scanned = end - self.at
        if not self.more():
            raise UnreadableTraceError(f"not JSON: the text ends early, {self.where(len(self.held))}")
        return scanned


def cuts(block: bytes) -> Iterator[int]:
    """Where a block may be cut in a list of objects, the last place first: commas between } and {.

    Only guesses: each may lie inside an event or a string, or behind the list. What lies before it, from the beginning
    of an event on, is JSON between brackets if and only if the guess is right: JSON, read from left to right, has one
    meaning only.
    """
    place = len(block)
    for _ in range(_PROBES):
        place = block.rfind(b"{", 0, place)
        if place <= 0:
            return
        first = max(0, place - _LONGEST_SPACE)
        before = block[first:place].rstrip(b" \t\n\r")
        if before.endswith(b",") and before[:-1].rstrip(b" \t\n\r").endswith(b"}"):
            yield first + len(before) - 1


class Nesting:
    """How deep in brackets a place of the text is, and whether it is in a string; it goes on in the next block."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = False

    def find_end(self, text: bytes, at: int) -> tuple[bool, int]:
        """The comma or bracket that ends the value, or False and where to go on when there is more text."""
        while True:
            if self._is_string:
                found = _STRING.search(text, at)
                if found is None:
                    return False, len(text)
                if found.group() == b'"':
                    self._is_string, at = False, found.end()
                elif found.end() == len(text):
                    return False, found.start()  # what is escaped comes with the next block
                else:
                    at = found.end() + 1
                continue
            found = (_INSIDE if self._depth else _AROUND).search(text, at)
            if found is None:
                return False, len(text)
            sign, at = found.group(), found.end()
            if sign == b'"':
                self._is_string = True
            elif sign in b"[{":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise UnreadableTraceError("the JSON is nested too deep")
            elif self._depth == 0:
                return True, found.start()
            else:
                self._depth -= 1
