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
    "upstream_breakable",
)
"""What depends on the version of SGLang. The rest depends on ours."""
