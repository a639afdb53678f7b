"""What every store does, in one suite that runs against the folder (here) and against a real S3 server (tests/s3)."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from shapetrace_traces.store import ObjectExists, ObjectMissing, Store

KEY = "traces/rank-00003/Decode__bs_4__lora-nolora.json.gz"
METADATA = {"shapetrace-run": "u-1", "shapetrace-tag": "Decode__bs_4__lora-nolora", "shapetrace-raw-sha256": "ab" * 32}


class StoreBehaviour:
    """Subclasses give ``store``, empty, and ``other``: the store of another attempt in the same place."""

    def test_what_was_put_is_read_back_with_its_hash_and_metadata(self, store: Store) -> None:
        stored = store.put(KEY, b"hello", metadata=METADATA, content_type="application/gzip")
        assert (stored.key, stored.bytes, stored.sha256) == (KEY, 5, hashlib.sha256(b"hello").hexdigest())
        assert store.get(KEY) == b"hello"
        seen = store.head(KEY)
        assert seen is not None
        assert (seen.key, seen.bytes, seen.sha256, dict(seen.metadata)) == (KEY, 5, stored.sha256, METADATA)
        with store.open(KEY) as stream:
            assert stream.read(2) + stream.read() == b"hello"

    def test_a_file_is_stored_like_bytes(self, store: Store, tmp_path) -> None:
        content = bytes(range(256)) * 20_000
        path = tmp_path / "body"
        path.write_bytes(content)
        stored = store.put(KEY, path)
        assert stored.bytes == len(content)
        assert stored.sha256 == hashlib.sha256(content).hexdigest()
        assert hashlib.sha256(store.get(KEY)).hexdigest() == stored.sha256

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        store.put("claims/0.json", b"")
        seen = store.head("claims/0.json")
        assert seen is not None
        assert seen.bytes == 0
        assert seen.sha256 == hashlib.sha256(b"").hexdigest()

    def test_a_second_put_is_refused_and_changes_nothing(self, store: Store) -> None:
        store.put(KEY, b"first", metadata=METADATA)
        for body in (b"second", b"first"):
            with pytest.raises(ObjectExists, match="exists already"):
                store.put(KEY, body, metadata={"shapetrace-run": "another"})
        assert store.get(KEY) == b"first"
        seen = store.head(KEY)
        assert seen is not None
        assert dict(seen.metadata) == METADATA

    def test_of_several_writers_at_once_exactly_one_wins_whole(self, store: Store) -> None:
        bodies = [f"writer {number}".encode() * 1000 for number in range(8)]

        def attempt(number: int) -> int | None:
            try:
                store.put(KEY, bodies[number], metadata={"shapetrace-rank": str(number)})
            except ObjectExists:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(attempt, range(8)) if number is not None]
        assert len(winners) == 1
        assert store.get(KEY) == bodies[winners[0]]
        seen = store.head(KEY)
        assert seen is not None
        assert dict(seen.metadata) == {"shapetrace-rank": str(winners[0])}
        assert seen.sha256 == hashlib.sha256(bodies[winners[0]]).hexdigest()

    def test_what_is_not_there_is_said_so(self, store: Store) -> None:
        assert store.head(KEY) is None
        with pytest.raises(ObjectMissing):
            store.get(KEY)
        with pytest.raises(ObjectMissing), store.open(KEY):
            pass
        store.delete(KEY)

    def test_a_list_holds_all_keys_of_the_prefix_in_order_and_nothing_else(self, store: Store, other: Store) -> None:
        assert list(store.list()) == []
        names = ["parts/00001.json", "parts/00000.json", "traces/rank-00000/b.gz", "traces/rank-00000/a.gz", "p"]
        for name in names:
            store.put(name, name.encode(), metadata=METADATA)
        other.put("parts/00002.json", b"another attempt")
        assert [item.key for item in store.list()] == sorted(names)
        assert [(item.key, item.bytes) for item in store.list("parts/")] == [
            ("parts/00000.json", 16),
            ("parts/00001.json", 16),
        ]
        assert [item.key for item in store.list("parts/00001")] == ["parts/00001.json"]

    def test_deleting_frees_the_key(self, store: Store) -> None:
        store.put(KEY, b"first", metadata=METADATA)
        store.delete(KEY)
        assert store.head(KEY) is None
        store.put(KEY, b"second")
        seen = store.head(KEY)
        assert seen is not None
        assert dict(seen.metadata) == {}
        assert store.get(KEY) == b"second"

    def test_attempts_do_not_see_each_other(self, store: Store, other: Store) -> None:
        store.put(KEY, b"one")
        other.put(KEY, b"two")
        assert (store.get(KEY), other.get(KEY)) == (b"one", b"two")
        assert store.uri(KEY) != other.uri(KEY)
        assert store.uri(KEY).startswith(("s3://", "file:///"))
