"""What our plugin records of SGLang's real loops and backends: counts exact, every label what its events show."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from conftest import Ran, versions
from support import reading

SIZES = range(8, 0, -1)
AXES = {
    "no_axis": [{}],
    "attention": [{"attention": "dense"}, {"attention": "sparse"}],
    "lora": [{"lora": "lora"}, {"lora": "nolora"}],
    "both": [{"attention": a, "lora": b} for b in ("lora", "nolora") for a in ("dense", "sparse")],
}


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def check(folder: Path, expected: list[str], number: int = 0, *, steps: int = 1) -> list[reading.Trace]:
    """The traces are those of ``expected`` tags, planned before, in this order, and each is what it says it is:
    ``steps`` forwards of the model in one graph."""
    found = reading.traces(folder, number)
    assert [trace.tag for trace in found] == expected
    assert reading.planned(folder, number) == expected
    done = reading.load(reading.rank(folder, number) / "done.json")
    assert (done["ok"], done["reason"], done["eager"], done["records"]) == (True, "Done", None, len(expected))
    assert done["captureBegin"]["tagged"] == done["captureBegin"]["all"]
    assert not reading.processes(folder)[0]["errors"]
    for trace in found:
        _, unit, size, variants = reading.said(trace.tag)
        rows = size * reading.width(trace.tag) if unit == "bs" else size
        assert (trace.rows, trace.forwards) == (rows, steps), trace.tag
        assert trace.variants == variants, trace.tag
        assert (trace.record["dirty"], trace.record["error"]) == ([], None), trace.tag
        seen = trace.record["witnesses"]
        assert (seen["rows"], seen["forwards"], seen["graph"]) == (rows, 1, True), trace.tag
        assert seen["key"]["size"] == reading.said(trace.tag)[2]
        fields = {str(value) for name, value in seen["key"].items() if name != "size" and value is not None}
        told = {unquote(value.replace("~", "%")) for value in reading.said(trace.tag)[3].values()}
        assert fields == told, "each field is told, and no other"
        assert trace.tag in trace.spans
        assert "aten::frac" not in trace.operators, "the engine's hook after a warm-up belongs into no trace"
    return found


def tags(runner: str, sizes: object, variants: list[dict[str, str]], unit: str = "bs") -> list[str]:
    return [
        "__".join([runner, f"{unit}_{size}", *(f"{axis}-{value}" for axis, value in sorted(each.items()))])
        for size in sizes  # type: ignore[attr-defined]
        for each in variants
    ]


@pytest.mark.parametrize("scenario", ["no_axis", "lora", "attention", "both"])
def test_each_size_and_variant_is_one_trace_with_its_own_label(sglang: Ran, scenario: str) -> None:
    variants = AXES[scenario]
    if release(sglang.version) < (0, 5, 18):  # before it keys have no attention
        variants = {"lora": AXES["lora"], "both": AXES["lora"]}.get(scenario, [{}])
    found = check(sglang.folder(scenario), tags("DecodeCudaGraphRunner", SIZES, variants))
    for trace in found:
        assert trace.record["witnesses"]["engine"] == reading.said(trace.tag)[3], "SGLang's own state says the same"
        assert trace.record["witnesses"]["keyKnown"] is True
        assert trace.record["witnesses"]["streamCapture"] is True
        assert f"capture_{reading.said(trace.tag)[2]}_FULL" in trace.spans


def test_each_stream_of_pdmux_is_captured(sglang: Ran) -> None:
    expected = [tag for stream in "01" for tag in tags("DecodeCudaGraphRunner", SIZES, [{"stream": stream}])]
    check(sglang.folder("two_streams"), expected)


def test_the_eagle_draft_captures_twice_at_a_size(sglang: Ran) -> None:
    twice: list[dict[str, str]] = [{}, {"greedy": "greedy"}]
    variants = twice if release(sglang.version) >= (0, 5, 22) else [{}]
    found = check(sglang.folder("greedy"), tags("EAGLEDraftCudaGraphRunner-draft0-w2", SIZES, variants))
    for trace in found:
        state = trace.record["witnesses"]["engine"]
        assert state.get("greedy", "") == reading.said(trace.tag)[3].get("greedy", "")
        assert len(variants) == 1 or state == {"greedy": reading.said(trace.tag)[3].get("greedy", "")}
        assert trace.record["witnesses"]["topk"] == 2


def test_the_step_configurations_of_adaptive_speculation_are_told_apart(sglang: Ran) -> None:
    expected = []
    for steps in (1, 3):
        expected += tags(f"DecodeCudaGraphRunner-step{steps}-w{steps + 1}", (4, 2, 1), [{}])
        expected += tags(f"EAGLEDraftCudaGraphRunner-draft0-step{steps}-w2", (4, 2, 1), [{}])
    found = check(sglang.folder("adaptive"), expected)
    assert {trace.record["witnesses"]["steps"] for trace in found} == {1, 3}


def test_the_draft_extend_of_eagle_is_a_draft_of_its_width(newest: Ran) -> None:
    check(newest.folder("draft_extend"), tags("EAGLEDraftExtendCudaGraphRunner-draft0-w4", (4, 2, 1), [{}]))


def test_each_layer_of_a_multi_layer_draft_is_a_runner_of_its_own_step(newest: Ran) -> None:
    found = check(
        newest.folder("multi_layer"),
        [
            tag
            for step in (2, 1, 0)
            for tag in tags(f"MultiLayerEagleDraftExtendCudaGraphRunner-draft{step}-step{step}-w4", (4, 2, 1), [{}])
        ],
    )
    for trace in found:
        seen = trace.record["witnesses"]
        assert (seen["topk"], seen["steps"], seen["draftTokens"]) == (1, 3, 4)


def test_all_layers_in_one_graph_are_one_trace_named_by_the_first(newest: Ran) -> None:
    expected = tags("MultiLayerEagleDraftExtendCudaGraphRunner-draft0-step0-w4", (4, 2, 1), [{}])
    for trace in check(newest.folder("multi_layer_in_one_graph"), expected, steps=3):
        assert trace.record["witnesses"]["graphs"] == 1


def test_all_steps_of_a_frozen_kv_draft_are_one_trace(newest: Ran) -> None:
    expected = tags("FrozenKVMTPCudaGraphRunner-draft0-w2", (4, 2, 1), [{}])
    for trace in check(newest.folder("frozen_kv"), expected, steps=3):
        assert (trace.record["witnesses"]["graphs"], trace.record["witnesses"]["topk"]) == (1, 2)


def test_draft_and_verify_of_a_linear_uno_are_variants_of_lora(newest: Ran) -> None:
    found = check(newest.folder("uno"), tags("UnoDecodeCudaGraphRunner-w3", (4, 2, 1), AXES["lora"]))
    assert newest.returned("uno") == [4, 2, 1], "its own capture prepared the adapter for each draft"
    for trace in found:
        assert trace.record["witnesses"]["engine"] == reading.said(trace.tag)[3]


def test_target_and_draft_of_a_uno_tree_are_told_apart(newest: Ran) -> None:
    expected = [f"UnoDecodeCudaGraphRunner{name}" for name in ("-w6", "-draft0-w3")]
    check(newest.folder("uno_tree"), [tag for name in expected for tag in tags(name, (4, 2, 1), [{}])])
    assert newest.returned("uno_tree") == [4, 2, 1], "its own capture prepared the adapter for each draft"


def test_a_breakable_decode_is_one_trace_of_several_graphs(sglang: Ran) -> None:
    for trace in check(sglang.folder("breakable"), tags("DecodeCudaGraphRunner", SIZES, [{}])):
        assert trace.record["witnesses"]["graphs"] == 2
        assert f"capture_{reading.said(trace.tag)[2]}_PIECEWISE" in trace.spans


def test_prefill_counts_tokens_and_its_prefix_is_an_axis(sglang: Ran) -> None:
    variants: list[dict[str, str]] = [{}]
    if release(sglang.version) >= (0, 5, 18):
        variants += [{"prefix": "chunked_prefix~3a2"}, {"prefix": "chunked_prefix~3a4"}]
    check(sglang.folder("prefill_breakable"), tags("PrefillCudaGraphRunner", (64, 32, 16), variants, "tok"))


def test_a_piecewise_prefill_is_one_trace_of_all_its_pieces(sglang: Ran) -> None:
    found = check(sglang.folder("prefill_piecewise"), tags("PrefillCudaGraphRunner", (64, 32, 16), [{}], "tok"))
    for trace in found:
        assert trace.record["witnesses"]["graphs"] == 3
        assert trace.record["witnesses"]["keyKnown"] is None, "it keeps no table"
        assert f"capture_{reading.said(trace.tag)[2]}_PIECEWISE" in trace.spans


def test_stages_and_replicas_have_folders_of_their_own(sglang: Ran) -> None:
    folder = sglang.folder("ranks")
    seen = []
    for number in range(8):
        check(folder, tags("DecodeCudaGraphRunner", (2, 1), [{}]), number)
        record = reading.load(reading.rank(folder, number) / "rank.json")
        seen.append((record["rank"], record["dp"], record["pp"], record["tp"]))
    assert seen == [(4 * dp + 2 * pp + tp, dp, pp, tp) for dp in (0, 1) for pp in (0, 1) for tp in (0, 1)]
    assert len(reading.processes(folder)) == 8


def test_what_is_captured_again_is_a_further_epoch(sglang: Ran) -> None:
    first = tags("DecodeCudaGraphRunner", (4, 2, 1), [{}])
    again = [f"{tag}__epoch-2" for tag in first]
    check(sglang.folder("recapture"), [*first, *again, *(f"{tag}__epoch-3" for tag in first[1:])])


def test_every_hook_is_applied_and_named_with_the_engines_version(sglang: Ran) -> None:
    record = reading.load(reading.rank(sglang.folder("no_axis")) / "rank.json")
    assert (record["engine"]["name"], record["engine"]["version"]) == ("sglang", sglang.version)
    assert record["engine"]["configuration"]["disable_cuda_graph"] is False
    assert set(record["hooks"].values()) == {"applied"}
    assert len(record["required"]) == 7
    assert set(record["required"]) < set(record["hooks"])


def test_the_engine_does_what_it_did_without_us(sglang: Ran) -> None:
    assert sglang.returned("no_axis") == {"hooks": 16, "graphs": 8}, "its own hook ran after each of two warm-ups"


# ---- what depends on ours, and not on the version


def test_drafts_are_told_apart_by_their_index_and_only_then_by_an_ordinal(newest: Ran) -> None:
    names = ["-draft0", "-draft1", "-draft2", "-draft2-n2"]
    expected = [tag for name in names for tag in tags(f"DecodeCudaGraphRunner{name}", (2, 1), [{}])]
    check(newest.folder("several_drafts"), expected)


def test_a_verify_whose_keys_count_tokens_says_so(newest: Ran) -> None:
    check(newest.folder("ragged"), tags("DecodeCudaGraphRunner-w4", (16, 8, 4), [{}], "tok"))


def test_attention_groups_are_ranks_of_one_world(newest: Ran) -> None:
    folder = newest.folder("attention_groups")
    check(folder, tags("DecodeCudaGraphRunner", (2, 1), [{}]), 1)
    assert reading.load(reading.rank(folder, 1) / "rank.json")["dp"] == 0


def test_a_runner_with_a_loop_of_its_own_is_planned_and_captured(newest: Ran) -> None:
    check(newest.folder("without_the_hooked_capture"), tags("DecodeCudaGraphRunner", (4, 2, 1), [{}]))


def test_a_backend_of_another_vendor_is_hooked_when_it_is_imported(newest: Ran) -> None:
    found = reading.traces(newest.folder("other_vendor"))
    assert [(trace.tag, trace.rows) for trace in found] == [
        ("DecodeCudaGraphRunner__bs_2", 2),
        ("DecodeCudaGraphRunner__bs_1", 1),
    ]
    for trace in found:
        assert (trace.record["dirty"], trace.record["error"]) == ([], None)
        assert (trace.record["witnesses"]["forwards"], trace.record["witnesses"]["keyKnown"]) == (1, True)


def test_a_field_that_nobody_knows_is_an_axis(newest: Ran) -> None:
    folder = newest.folder("new_field")
    assert [record["tag"] for record in reading.records(folder)] == tags(
        "DecodeCudaGraphRunner", (2, 1), [{"moepath": "wide_ep"}]
    )
    assert reading.planned(folder) == [record["tag"] for record in reading.records(folder)]


def test_what_targets_declare_and_nobody_plans_is_listed_with_the_reason(newest: Ran) -> None:
    lines = reading.lines(reading.rank(newest.folder("declared")) / "plan.jsonl")
    items = [item for line in lines for item in line["notPlanned"]]
    left = [(item["shape"]["size"], item["shape"]["variants"], item["reason"]) for item in items]
    every = "1, 2, 3, 4, 5, 6, 7, 8"
    assert left == [
        (64, {}, f"DecodeCudaGraphRunner plans the sizes {every} (bs)"),
        (4, {"lora": "nolora"}, "DecodeCudaGraphRunner plans at this size: no variants"),
        (512, {}, "SGLang made no prefill runner"),
    ]
    assert len(reading.records(newest.folder("declared"))) == 8


def test_a_rank_that_is_not_asked_for_records_nothing_and_is_done(newest: Ran) -> None:
    folder = newest.folder("not_asked")
    assert reading.records(folder) == []
    assert reading.planned(folder) == []
    done = reading.load(reading.rank(folder) / "done.json")
    assert (done["ok"], done["eager"]) == (True, None)


def test_graphs_that_are_off_are_reported_and_never_guessed(sglang: Ran, newest: Ran) -> None:
    done = reading.load(reading.rank(sglang.folder("graphs_off")) / "done.json")
    assert (done["ok"], done["eager"], done["records"]) == (True, "disable_cuda_graph is set", 0)
    unknown = reading.load(reading.rank(newest.folder("no_graphs_and_no_reason")) / "done.json")
    assert unknown["eager"] is None
    assert unknown["reason"] == "SGLang was to capture graphs and planned none"


@pytest.mark.parametrize(
    "scenario", ["no_axis", "breakable", "prefill_piecewise", "greedy", "multi_layer_in_one_graph"]
)
def test_with_stacks_the_only_frames_of_ours_are_listed(newest: Ran, scenario: str) -> None:
    from shapetrace_capture import window
    from shapetrace_capture.adapters.sglang import adapter

    seen: Counter[tuple[str, str]] = Counter()
    for trace in reading.traces(newest.folder(scenario)):
        assert any("sglang/srt/" in frame for frame in trace.frames), trace.tag
        seen.update(reading.own_frames(trace))
    assert ("warmups.py", "watched_forward") in seen, "the pattern finds frames of ours"
    assert set(seen) <= window.OWN_FRAMES | adapter.OWN_FRAMES


def test_the_versions_are_those_that_were_promised() -> None:
    assert {"0.5.14", "0.5.18", "0.5.21", "0.5.23"} <= set(versions())
