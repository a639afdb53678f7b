"""Which scenarios are run on which version: the newest runs all."""

from __future__ import annotations

ON_EVERY_VERSION = (
    "no_axis",
    "attention",
    "lora",
    "both",
    "two_streams",
    "greedy",
    "adaptive",
    "breakable",
    "prefill_breakable",
    "prefill_piecewise",
    "ranks",
    "recapture",
    "renamed_method",
    "hook_raises",
    "untagged_site",
    "graphs_off",
    "command_line",
    "upstream_no_axis",
    "upstream_attention",
    "upstream_streams",
    "upstream_greedy",
    "upstream_draft",
    "upstream_breakable",
)
"""What depends on the version of SGLang. The rest depends on ours."""

_ADAPTER = "adapters.sglang.adapter"
OUR_FAULTS = (
    *(
        f"{_ADAPTER}:{name}"
        for name in (
            "resolve",
            "rank_of",
            "configuration_of",
            "keys_of",
            "axes_of",
            "unit_of",
            "runner_of",
            "words_for",
            "unplanned_shapes",
            "variables_of",
            "class_names",
            "witnesses",
            "engine_state",
            "rows_of",
            "Adapter._states",
            "Adapter._start",
            "Adapter._plan",
            "Adapter._shape",
            "Adapter._name",
            "Adapter._tell_unmatched",
        )
    ),
    *(
        f"session:Session.{name}"
        for name in (
            "of_process",
            "__init__",
            "start",
            "plan",
            "capture",
            "begin",
            "options",
            "end",
            "done",
        )
    ),
    *(
        f"warmups:Warmups.{name}"
        for name in ("__init__", "forward", "after_warmup", "_open", "_before_forward", "_before_hook", "end")
    ),
    *(f"capture:Capture.{name}" for name in ("__init__", "__enter__", "watch", "stop", "__exit__", "_witnesses")),
    *(f"window:Window.{name}" for name in ("__init__", "open", "close", "save", "free")),
    "graphs:GraphCounter.install",
    "device:is_capturing",
    "process:Process.engine_json",
    "process:told_configuration",
)
"""Functions of ours, ``module:name`` below ``shapetrace_capture``, that are made to raise while SGLang captures."""
