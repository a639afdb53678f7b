"""Every object that is asked for has an outcome, however many there are."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest
from shapetrace_cli.download import Downloader, Wanted


class NoneSuchError(Exception):
    """The store has no such object."""


@pytest.mark.parametrize("parallel", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 16, 17, 40])
def test_each_object_is_fetched_once(count: int, parallel: int, tmp_path: Path) -> None:
    bodies = {f"traces/rank-00000/R__bs_{size}.json.gz": str(size).encode() for size in range(1, count + 1)}
    wanted = [Wanted(key, hashlib.sha256(body).hexdigest(), len(body)) for key, body in bodies.items()]
    downloader = Downloader(
        tmp_path,
        lambda key: io.BytesIO(bodies[key]),
        missing=NoneSuchError,
        fault=NoneSuchError,
        transient=NoneSuchError,
        parallel=parallel,
    )
    assert sorted(outcome.wanted.key for outcome in downloader.run(wanted)) == sorted(bodies)
    assert {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*.gz")} == bodies
