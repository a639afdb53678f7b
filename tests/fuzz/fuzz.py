"""Coverage-guided fuzzing: ``python fuzz.py trace|manifest [libFuzzer's options] CORPUS``; `make fuzz` runs both.

trace: the reader's answer is the slow reader's, or an error where there is none. The first byte chooses the length of
the blocks, so that cuts fall everywhere. manifest: what is read is written and read again as the same; what is not is
a ValueError.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["shapetrace_traces"]):
    from shapetrace_traces.index import index_stream
    from shapetrace_traces.manifest import Manifest
    from shapetrace_traces.reader import source, walk

SLOW = Path(__file__).parents[1] / "unit" / "traces" / "slow_reader.py"
X = '"ph": "X", "pid": 1, "tid": 1, "cat": '
CALL = f'{{{X}"cpu_op", "name": "aten::mm", "ts": 1.5, "dur": 2, "args": {{"Input Dims": [[4, 8], [8, 8]]}}}}'
KERNEL = f'{{{X}"kernel", "name": "k", "ts": 3, "dur": 1, "args": {{"correlation": 7}}}}'
SPAN = f'{{{X}"user_annotation", "name": "s", "ts": 1, "dur": 5}}'
WINDOW = ", ".join(
    f'{{{X}"cuda_runtime", "name": "{name}", "ts": {ts}, "args": {{"correlation": 7, "kernel": "k"}}}}'
    for ts, name in enumerate(
        ["hipStreamBeginCapture", "hipLaunchKernel", "hipModuleLaunchKernel", "hipStreamEndCapture", "hipGraphLaunch"]
    )
)
RUN = '{"namespace": "n", "name": "r", "uid": "u", "attempt": 1}'
SEEDS = {
    "trace": [
        f' {{"trace_id": "A", "traceEvents": [{CALL}, {SPAN}, {KERNEL}], "shapetrace": {{"tag": "s"}}}}',
        f"@[{WINDOW},\n  {KERNEL}]",
    ],
    "manifest": [f'{{"v": 1, "run": {RUN}, "verdict": "Complete", "digest": "", "engine": {{"name": "torch"}}}}'],
}


class Pieces:
    """A stream of pieces of one length."""

    def __init__(self, text: bytes, length: int) -> None:
        self._stream, self._length = io.BytesIO(text), length

    def read(self, count: int) -> bytes:
        return self._stream.read(min(count, self._length))


def trace_target() -> Callable[[bytes], None]:
    spec = importlib.util.spec_from_file_location("slow_reader", SLOW)
    assert spec is not None
    assert spec.loader is not None
    slow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(slow)
    source._LEAST_BYTES, walk._LEAST_BYTES = 1, 4

    def check(data: bytes) -> None:
        text = data[1:]
        found = index_stream(Pieces(text, data[0] + 1 if data else 1))
        if text.startswith(b"\x1f\x8b"):
            return
        try:
            right = slow.index(text)
        except slow.NotATraceError:
            assert found["error"], "an index of what is no trace"
            return
        assert found["error"] is None, found["error"]
        assert not found["leftOut"]
        assert slow.comparable(found) == right

    return check


def check_manifest(data: bytes) -> None:
    """The text itself, and a right manifest with odd values in some places: the parser below is not instrumented."""
    check_manifest_text(data)
    choose = atheris.FuzzedDataProvider(data)
    value = json.loads(SEEDS["manifest"][0])
    for _ in range(choose.ConsumeIntInRange(0, 3)):
        place = value
        while isinstance(place, dict) and place:
            key = sorted(place)[choose.ConsumeIntInRange(0, len(place) - 1)]
            if not isinstance(place[key], dict) or choose.ConsumeBool():
                odd = [None, [], {}, "", -1, 2**63, 1e300, "\ud800", choose.ConsumeUnicode(8), choose.ConsumeInt(8)]
                place[key] = odd[choose.ConsumeIntInRange(0, len(odd) - 1)]
                break
            place = place[key]
    check_manifest_text(json.dumps(value).encode())


def check_manifest_text(data: bytes) -> None:
    try:
        manifest = Manifest.from_bytes(data)
    except ValueError:
        return
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def main(arguments: list[str]) -> None:
    name = arguments[1]
    corpus = Path(arguments[-1])
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_text(seed)
    atheris.Setup([arguments[0], *arguments[2:]], trace_target() if name == "trace" else check_manifest)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
