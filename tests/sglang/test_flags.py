"""Every flag that the launcher makes is one that each version of SGLang reads, and means what was meant."""

from __future__ import annotations

from conftest import Ran


def test_sglang_reads_the_command_line_as_it_was_meant(sglang: Ran) -> None:
    read = sglang.returned("command_line")
    assert [read[name] for name in ("tp_size", "pp_size", "dp_size")] == [2, 3, 4]
    assert (read["cuda_graph_bs_decode"], read["cuda_graph_bs_prefill"]) == ([1, 8], [64])
    assert (read["model_path"], read["tokenizer_path"]) == ("/models/target", "/models/tokenizer")
    assert read["speculative_draft_model_path"] == "/models/draft"
    assert "/loras/a" in str(read["lora_paths"])
    assert (read["load_format"], read["device"]) == ("dummy", "cpu")
    assert (read["dist_timeout"], read["skip_server_warmup"]) == (1800, True)
    assert (read["host"], read["port"]) == ("127.0.0.1", 30_001)
