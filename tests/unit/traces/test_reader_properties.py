"""The reader against one that is slow and obviously right: any trace, layout and blocks, cut or damaged anywhere."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapetrace_traces.index import index_stream
from shapetrace_traces.reader import source, walk

MORE = settings(max_examples=60)


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of a few bytes, cut the fast way: what real traces do at megabytes happens in small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_LEAST_BYTES", 1)
        patch.setattr(walk, "_LEAST_BYTES", 4)
        yield


class Pieces:
    """A stream that gives as little as it likes."""

    def __init__(self, text: bytes, lengths: list[int]) -> None:
        self._stream = io.BytesIO(text)
        self._lengths = lengths
        self._reads = 0

    def read(self, count: int) -> bytes:
        self._reads += 1
        return self._stream.read(min(count, self._lengths[self._reads % len(self._lengths)]))


lengths = st.lists(st.integers(1, 400), min_size=1, max_size=4)
odd_text = st.sampled_from(
    ["}, {", '"}],', "\\", '\\"', "ü", "😀", "\u2028", "{", "]", '"ph": "X"', "\x01", "\ud800", "a\nb"]
)
operators = st.sampled_from(["aten::mm", "aten::addmm", "aten::linear", "aten::add", "aiter::gemm_a16w16"])
launches = ["hipLaunchKernel", "hipExtModuleLaunchKernel", "cudaLaunchKernelExC_v11060", "cuLaunchKernel"]
replays = ["hipGraphLaunch", "cudaGraphLaunch_v10000"]
marks = ["hipStreamBeginCapture", "hipStreamEndCapture", "cudaStreamBeginCapture_v10000", "cudaStreamEndCapture_v10000"]
others = ["cudaMemcpyAsync", "hipMemsetAsync", "cudaGraphAddMemcpyNode", "cudaStreamIsCapturing"]
calls_of_runtime = st.sampled_from([*launches, *replays, *marks, *others])
times = st.integers(0, 30) | st.floats(0, 30) | st.sampled_from([1e17, 0.1, 4909733316007.991, 2**53 + 1, 2**64])
dims = st.lists(st.lists(st.integers(0, 9) | st.just(2**65), max_size=3), max_size=4)
names = operators | calls_of_runtime | odd_text | st.just("span") | st.text(max_size=6)
odd = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | odd_text | st.lists(st.integers(), max_size=2)
correlations = st.integers(0, 4)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "Input Dims": dims,
        "correlation": correlations | odd,
        "kernel": operators | odd,
        "list": st.lists(st.fixed_dictionaries({"a": odd}), max_size=3),
        "Call stack": odd_text,
        "deep": st.recursive(
            odd, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(odd_text, inner, max_size=2)
        ),
    },
)


def event(category: Any, name: Any) -> Any:
    fixed = {"ph": st.just("X"), "cat": category, "name": name, "ts": times}
    place = {"pid": st.integers(1, 2), "tid": st.integers(1, 2) | st.just("1"), "args": arguments}
    return st.fixed_dictionaries({**fixed, **place}, optional={"dur": times, "id": odd, "bp": odd_text})


any_events = st.lists(
    event(st.just("cpu_op"), operators | names)
    | event(st.just("user_annotation"), st.just("span") | names)
    | event(st.sampled_from(["cuda_runtime", "cuda_driver"]), calls_of_runtime)
    | event(st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset"]), names)
    | event(st.sampled_from(["python_function", "ac2g", "x" * 65]), names)
    | st.fixed_dictionaries({"ph": st.sampled_from(["M", "i", "s"])}, optional={"name": odd, "cat": odd, "args": odd}),
    max_size=12,
)


@st.composite
def captures(draw: Any) -> list[dict[str, Any]]:
    """What a capture leaves: a span, calls with shapes, a window with launches in and around it."""
    where = {"ph": "X", "pid": 1}
    begin, end = sorted([draw(st.integers(0, 30)), draw(st.integers(0, 30))])
    runtime = draw(st.sampled_from(["hipStream%sCapture", "cudaStream%sCapture_v10000"]))
    found = [
        {**where, "tid": 1, "cat": "user_annotation", "name": "span", "ts": begin, "dur": draw(st.integers(0, 30))},
        {**where, "tid": 1, "cat": "cuda_runtime", "name": runtime % "Begin", "ts": begin},
        {**where, "tid": 1, "cat": "cuda_runtime", "name": runtime % "End", "ts": end},
    ]
    shapes = st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=2), min_size=3, max_size=3)
    for _ in range(draw(st.integers(0, 6))):
        tid, start = draw(st.sampled_from([1, 1, 1, 2])), draw(st.floats(0, 30))
        common = {**where, "tid": tid, "ts": start, "dur": draw(st.sampled_from([0, 0.5, 3.25]))}
        found.append({**common, "cat": "cpu_op", "name": draw(operators), "args": {"Input Dims": draw(shapes)}})
        number = draw(correlations)
        name = draw(calls_of_runtime)
        told = {"kernel": draw(operators | odd_text)} if draw(st.booleans()) else {}
        found.append({**common, "cat": "cuda_runtime", "name": name, "args": {"correlation": number, **told}})
        if draw(st.booleans()):
            found.append({**common, "cat": "cuda_driver", "name": name, "args": {"correlation": number}})
        if draw(st.booleans()):
            found.append({**common, "cat": "kernel", "name": draw(odd_text), "args": {"correlation": number}})
    return found


events = st.tuples(any_events, st.lists(captures(), max_size=3)).flatmap(
    lambda both: st.permutations(both[0] + [item for some in both[1] for item in some])
)
top_level = st.fixed_dictionaries(
    {},
    optional={
        "schemaVersion": st.just(1),
        "trace_id": odd,
        "shapetrace": st.fixed_dictionaries({"tag": st.just("span") | odd}) | odd,
        "deviceProperties": st.lists(st.fixed_dictionaries({"name": odd}), max_size=2),
        "distributedInfo": st.fixed_dictionaries({}, optional={"rank": odd, "backend": odd}) | odd,
        "otherData": odd,
        "traceName": odd_text,
    },
)


@st.composite
def layouts(draw: Any) -> bytes:
    """A trace in one of the layouts that JSON allows."""
    trace = draw(events)
    before, after = draw(top_level), draw(top_level)
    if draw(st.booleans()):
        before["shapetrace"] = {"tag": "span"}
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\n\t", " :\r\n ")]))
    options = {
        "ensure_ascii": draw(st.booleans()),
        "separators": separators,
        "indent": draw(st.sampled_from([None, 1, 2])),
    }

    def dump(value: Any) -> str:
        return json.dumps(value, **options)

    listed = "[" + draw(st.sampled_from(["", "\n  ", " "])) + dump(trace)[1:]
    if draw(st.booleans()):
        text = listed
    else:
        key = draw(st.sampled_from(['"traceEvents"', '"traceEv\\u0065nts"']))
        members = [f"{dump(name)}{separators[1]}{dump(value)}" for name, value in before.items()]
        members.append(f"{key}{separators[1]}{listed}")
        members += [f"{dump(name)}{separators[1]}{dump(value)}" for name, value in after.items()]
        text = "{" + separators[0].join(members) + "}"
    text = draw(st.sampled_from(["", "\n", " "])) + text + draw(st.sampled_from(["", "\n", " \t"]))
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    return mark + text.encode("utf-8", "surrogatepass")


def expected(slow_reader: Any, text: bytes) -> dict[str, Any] | None:
    """What must be answered; None where it must be an error."""
    try:
        return slow_reader.index(text)
    except slow_reader.NotATraceError:
        return None


def check(slow_reader: Any, text: bytes, stream: Any) -> None:
    found, right = index_stream(stream), expected(slow_reader, text)
    if right is None:
        assert found["error"], "an index of what is no trace"
        assert (found["events"], found["operators"], found["launches"]) == (0, {}, None)
    else:
        assert found["error"] is None
        assert slow_reader.comparable(found) == right


@MORE
@given(text=layouts(), lengths=lengths)
def test_in_every_layout_and_any_blocks_it_answers_as_the_slow_reader(slow_reader, text, lengths) -> None:
    check(slow_reader, text, Pieces(text, lengths))


@MORE
@given(text=layouts(), lengths=lengths, place=st.floats(0, 1))
def test_cut_anywhere_it_is_an_error_or_nothing_was_lost(slow_reader, text, lengths, place) -> None:
    cut = text[: int(place * len(text))]
    found = index_stream(Pieces(cut, lengths))
    if cut.rstrip() != text.rstrip():
        assert found["error"]
        assert found["events"] == 0
    else:
        check(slow_reader, text, Pieces(cut, lengths))


@MORE
@given(text=layouts(), lengths=lengths, place=st.floats(0, 1), parts=st.integers(1, 3))
def test_packed_it_answers_the_same_and_cut_it_is_an_error(slow_reader, text, lengths, place, parts) -> None:
    step = len(text) // parts + 1
    packed = b"".join(gzip.compress(text[at : at + step]) for at in range(0, len(text), step))
    check(slow_reader, text, Pieces(packed, lengths))
    ends = {
        sum(len(gzip.compress(text[at : at + step])) for at in range(0, end, step)) for end in range(0, len(text), step)
    }
    cut = int(place * (len(packed) - 1))
    found = index_stream(Pieces(packed[:cut], lengths))
    assert found["error"] or (cut in ends and text[: step * parts].strip())


@MORE
@given(
    text=layouts(),
    lengths=lengths,
    place=st.floats(0, 1),
    new=st.binary(max_size=3)
    | st.sampled_from([b'"', b"{", b"}", b",", b"[", b"]", b"NaN", b"1e999", b"9" * 400, b"\x00"]),
    removed=st.integers(0, 3),
)
def test_damaged_anywhere_it_is_an_error_or_what_the_slow_reader_says(
    slow_reader, text, lengths, place, new, removed
) -> None:
    at = int(place * len(text))
    damaged = text[:at] + new + text[at + removed :]
    check(slow_reader, damaged, Pieces(damaged, lengths))


@given(st.binary(max_size=60))
def test_of_any_bytes_it_says_what_the_slow_reader_says(slow_reader, text) -> None:
    if not text.startswith(b"\x1f\x8b"):
        check(slow_reader, text, io.BytesIO(text))
