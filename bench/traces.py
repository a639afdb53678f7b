"""Large traces, made: the same bytes for the same size, in the layout that Kineto writes, compressed as they are made.

Per operator one launch, one kernel, and the Python frames around them: eight of ten events are frames. Real captures
with stacks have nine of ten and no kernels; frames are read faster than the rest.
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
_OPERATORS = ("aten::mm", "aten::linear", "aten::addmm", "aten::add", "aten::copy_", "aten::view", "aten::rms_norm")
_FRAMES = 12
"""Python frames around one operator, or one more."""


def _event(kind: str, name: str, pid: int, tid: int, ts: float, dur: float, args: str) -> str:
    return (
        f'\n  {{\n    "ph": "X",\n    "cat": "{kind}",\n    "name": "{name}",\n    "pid": {pid},\n    "tid": {tid},\n'
        f'    "ts": {ts:.3f},\n    "dur": {dur:.3f}\n    ,\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _events(chance: random.Random) -> Iterator[str]:
    """Without end, in time: captures of 500 operators each."""
    frames = [f"sglang/srt/layers/module_{n % 37}.py({n}): forward_{n % 61}" for n in range(400)]
    kernels = [
        f"void at::native::vectorized_elementwise_kernel<{n % 4 + 1}, at::native::Functor{n}<c10::BFloat16>, "
        f"std::array<char*, {n % 3 + 1}ul> >(int, at::native::Functor{n}<c10::BFloat16>, std::array<char*, 2ul>)"
        for n in range(120)
    ]
    now = 4909733314686.0
    for number in itertools.count():
        if number % 500 == 0:
            args = f'"cid": 219, "correlation": {10 * number}'
            yield _event("user_annotation", f"ProfilerStep#{number // 500}", 251, 251, now, 9000, '"External id": 1')
            yield _event("cuda_runtime", "hipStreamBeginCapture", 251, 251, now, 3, args)
        for depth in range(_FRAMES + (number % 2)):
            now += 0.7
            parent = chance.randrange(10**5)
            args = f'"Python parent id": {parent}, "Python id": {parent + depth}, "Ev Idx": {4 * number + depth}'
            yield _event("python_function", chance.choice(frames), 251, 251, now, 180.5 + depth, args)
        rows, width = 8, 512 * chance.randrange(1, 9)
        now += 0.9
        dims = (
            f'"External id": {number},"Record function id": 0, "Concrete Inputs": ["", ""], '
            f'"Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[{width}, 1], [1, {width}]], '
            f'"Input Dims": [[{rows}, {width}], [{width}, 4096]], "Ev Idx": {4 * number}'
        )
        yield _event("cpu_op", chance.choice(_OPERATORS), 251, 251, now, 44.877, dims)
        kernel = chance.choice(kernels)
        args = (
            f'"External id": {number}, "kernel": "{kernel}", "cid": 107, "correlation": {10 * number + 1}, '
            '"grid": [64, 1, 1], "block": [256, 1, 1], "shared memory": 0'
        )
        yield _event("cuda_runtime", "hipLaunchKernel", 251, 251, now + 5, 4.657, args)
        args = f'"device": 0, "stream": 3, "correlation": {10 * number + 1}, "kind": "Dispatch Kernel"'
        yield _event("kernel", kernel, 0, 3, now + 30, 6.649, args)
        now += 60
        if number % 500 == 499:
            args = f'"cid": 220, "correlation": {10 * number + 2}'
            yield _event("cuda_runtime", "hipStreamEndCapture", 251, 251, now, 5, args)


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
