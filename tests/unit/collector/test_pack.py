from __future__ import annotations

import gzip
import hashlib
import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from shapetrace_collector.pack import pack


@given(st.binary(max_size=3000))
def test_what_is_packed_unpacks_to_the_same(raw: bytes) -> None:
    with pack(io.BytesIO(raw)) as packed:
        body = packed.body
    assert gzip.decompress(body) == raw
    assert (packed.bytes, packed.sha256) == (len(body), hashlib.sha256(body).hexdigest())
    assert (packed.raw_bytes, packed.raw_sha256) == (len(raw), hashlib.sha256(raw).hexdigest())


def test_the_header_has_no_time_and_no_name_so_the_same_trace_makes_the_same_object() -> None:
    with pack(io.BytesIO(b"trace" * 1000)) as first, pack(io.BytesIO(b"trace" * 1000)) as second:
        assert first.body == second.body
        assert first.body[:3] == b"\x1f\x8b\x08"
        assert first.body[3:8] == bytes(5)  # no flags (so no name), no time


def test_a_large_trace_goes_through_a_file_and_leaves_none(writer) -> None:
    raw = writer.incompressible(5_000_000, seed=1)
    with pack(io.BytesIO(raw), memory_bytes=1_000_000) as packed:
        assert isinstance(packed.body, Path)
        assert gzip.decompress(packed.body.read_bytes()) == raw
        path = packed.body
        assert packed.body.stat().st_size == packed.bytes
    assert not path.exists() or not path.is_file()
