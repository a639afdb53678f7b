"""vLLM 0.26 and newer, model runners V1 and V2.

V1 captures in ``GPUModelRunner._warmup_and_capture``, which takes a profiler: it is on for the capture, not for the
warm-ups. V2 captures in ``CudaGraphManager.capture``, one manager for the model and one for each part of a speculator;
it asks a factory for each forward and says whether it is a warm-up. Both capture a few shapes beforehand to measure
memory, and throw those graphs away: that pass is not recorded.
"""

from shapetrace_capture.adapters.vllm.adapter import register

__all__ = ["register"]
