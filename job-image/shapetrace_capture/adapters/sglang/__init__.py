"""SGLang, from 0.5.14 on: :mod:`adapter` is what is hooked and what each hook does, :mod:`facts` how its objects are
read. The only place that knows SGLang."""

from __future__ import annotations

from shapetrace_capture.adapters.sglang.adapter import register

__all__ = ["register"]
