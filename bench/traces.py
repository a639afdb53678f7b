"""Large traces, made: the same bytes for the same size, in the layout that Kineto writes, compressed as they are made.

Made of what a real capture with stacks is made of: SGLang's of 32 requests on an MI300X, 61,713 events in
github.com/AMD-AGI/TraceLens, ``tests/traces/sglang_decode/capture_traces``, has 88% Python frames, 6% operators, 2.4%
runtime calls and as many flow arrows, 1.6% instant events, and two kernels: what is captured does not run. The length
of each kind of event is that trace's too.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from isal import igzip

HEAD = """ {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206141652992,
      "computeMajor": 9, "computeMinor": 4
    }
    ],
      "roctracer_version": 4.1,
      "hip_runtime_version": 70253211,
      "with_stack": 1,
      "record_shapes": 1,
      "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1, "pg_count": 1},
      "trace_id": "679F07D69F2441EBBD9B2BEDD07091A6",
      "shapetrace": {"v": 1, "tag": "DecodeCudaGraphRunner__bs_8"},
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
    """
TAIL = '\n  ],"traceName": "/spool/rank-00000/000000.json" }'
_OPERATORS = (
    "aten::mm", "aten::linear", "aten::empty", "aten::view", "aten::as_strided", "aten::slice", "aten::split",
    "aten::copy_", "aten::reshape", "aten::fill_", "aten::resize_", "aiter::rms_norm",
)  # fmt: skip
"""Two of twelve are matrix products, as there."""
_FRAMES = 15
"""Python frames around one operator."""
_OPERATORS_EACH = 500
"""In one capture."""


def _event(kind: str, name: str, ts: float, dur: float, args: str) -> str:
    return (
        f'\n  {{\n    "ph": "X", "cat": "{kind}", "name": "{name}", "pid": 251, "tid": 251,\n'
        f'    "ts": {ts:.3f}, "dur": {dur:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _other(head: str, tail: str, ts: float) -> str:
    return f'\n  {{\n    {head}, "pid": 251, "tid": 251,\n    "ts": {ts:.3f},\n    {tail}\n  }}'


def _operator(number: int, chance: random.Random) -> str:
    rows, width = 8, 512 * chance.randrange(1, 9)
    return (
        f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", "", "", "False"], '
        '"Input type": ["c10::BFloat16", "c10::BFloat16", "", "Scalar"], '
        f'"Input Strides": [[{width}, 1], [1, {width}], [], []], '
        f'"Input Dims": [[{rows}, {width}], [{width}, 4096], [], []], "Ev Idx": {4 * number}'
    )


def _launch(number: int, kernel: str) -> str:
    return (
        f'"External id": {number}, "kernel": "{kernel}", "cid": 211, "correlation": {10 * number + 1}, '
        '"grid": [64, 1, 1], "block": [256, 1, 1], "shared memory": 0'
    )


def _events(chance: random.Random) -> Iterator[str]:
    """Without end, in time: captures of 500 operators each."""
    frames = [f"sglang/srt/layers/module_{n % 37}.py({n}): forward_{n % 61}" for n in range(400)]
    kernels = [
        f"void at::native::vectorized_elementwise_kernel<{n % 4 + 1}, at::native::Functor{n}<c10::BFloat16>, "
        f"std::array<char*, {n % 3 + 1}ul> >(int, at::native::Functor{n}<c10::BFloat16>)"
        for n in range(120)
    ]
    now = 4909733314686.0
    for number in itertools.count():
        if number % _OPERATORS_EACH == 0:
            args = f'"cid": 219, "correlation": {10 * number}'
            yield _event("user_annotation", f"ProfilerStep#{number // _OPERATORS_EACH}", now, 9000, '"External id": 1')
            yield _event("cuda_runtime", "hipStreamBeginCapture", now, 3, args)
        for depth in range(_FRAMES):
            now += 0.7
            args = (
                f'"Python parent id": {chance.randrange(10**5)}, "Python id": {depth}, "Ev Idx": {4 * number + depth}'
            )
            yield _event("python_function", chance.choice(frames), now, 180.5 + depth, args)
        now += 0.9
        yield _event("cpu_op", chance.choice(_OPERATORS), now, 44.877, _operator(number, chance))
        if number % 5 in (1, 3):
            yield _event("cuda_runtime", "hipLaunchKernel", now + 5, 4.657, _launch(number, chance.choice(kernels)))
            flow = f'"ph": "s", "id": {10 * number + 1}'
            yield _other(flow, '"cat": "ac2g", "name": "ac2g"', now + 5)
        if number % 4 == 1:
            sizes = f'"Total Reserved": 152171446272, "Total Allocated": {151811957760 + number}, "Bytes": 262144'
            rest = f'"args": {{\n      {sizes}, "Device Id": 0, "Device Type": 6, "Addr": 139443981778944\n    }}'
            yield _other('"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"', rest, now + 6)
        now += 60
        if number % _OPERATORS_EACH == _OPERATORS_EACH - 1:
            args = f'"cid": 220, "correlation": {10 * number + 2}'
            yield _event("cuda_runtime", "hipStreamEndCapture", now, 5, args)


def write_trace(path: Path, raw_bytes: int) -> int:
    """Write a ``.json.gz`` that unpacks to about ``raw_bytes``; the events in it."""
    events = _events(random.Random(1))
    count, written = 1, len(HEAD)
    with igzip.open(path, "wt", compresslevel=1) as out:
        out.write(HEAD + next(events).lstrip())
        while written < raw_bytes:
            some = [next(events) for _ in range(1000)]
            text = "," + ",".join(some)
            out.write(text)
            written += len(text)
            count += len(some)
        out.write(TAIL)
    return count
