"""What goes wrong, in SGLang or in ours: it is in the records, and SGLang never sees what is ours."""

from __future__ import annotations

import pytest
from conftest import Ran
from shapetrace_contract.reasons import Reason
from shapetrace_launcher.cause import Observed, cause_of
from support import reading
from support.names import OUR_FAULTS

METHOD = "sglang.srt.model_executor.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend.capture_one"


def test_a_renamed_method_ends_the_run_naming_it_and_the_engines_version(sglang: Ran) -> None:
    folder = reading.rank(sglang.folder("renamed_method"))
    record, done = reading.load(folder / "rank.json"), reading.load(folder / "done.json")
    assert record["hooks"][METHOD] == "missing"
    for known in ({}, {0: done}):
        cause = cause_of(Observed((0,), [], {0: record}, known))
        assert cause is not None
        assert cause.reason is Reason.HOOKS_NOT_APPLIED
        assert f"sglang {sglang.version}: not hooked: {METHOD} (missing)" in cause.message


def test_a_fault_in_a_hook_leaves_the_engines_graphs_and_is_in_the_records(sglang: Ran) -> None:
    folder = sglang.folder("hook_raises")
    assert sglang.returned("hook_raises") == {"graphs": 8, "forwards": 24}, "two warm-ups and a capture at each size"
    done = reading.load(reading.rank(folder) / "done.json")
    assert done["ok"] is False
    assert f"the hook of {METHOD}: ZeroDivisionError: a fault of ours" in done["reason"]
    assert reading.records(folder) == []


@pytest.mark.parametrize("fault", OUR_FAULTS)
def test_whatever_fails_in_our_hooks_sglang_captures_all_the_same(newest: Ran, fault: str) -> None:
    did = newest.returned("faults_of_ours")
    assert [(each["forwards"], len(each["graphs"])) for each in did["alone"]] == [(6, 2), (6, 2), (2, 0)]
    assert did[fault] == did["alone"]
    folder = newest.folder("faults_of_ours") / str(OUR_FAULTS.index(fault))
    done_file = reading.rank(folder) / "done.json"
    done = reading.load(done_file) if done_file.exists() else {}
    records = reading.records(folder)
    lost = [record["error"] for record in records]
    told = [done.get("reason"), *lost, *(process["errors"] for process in reading.processes(folder))]
    assert "on purpose" in str(told), "the fault is in the records"
    assert not done.get("ok") or (lost and all(lost)), "nobody says that all is well"
    for trace in reading.traces(folder):
        _, _, size, variants = reading.said(trace.tag)
        assert (trace.rows, trace.forwards, trace.variants) == (size, 1, variants), "what is recorded is right"


def test_a_fault_at_registration_leaves_the_engines_graphs_and_is_in_the_process_record(newest: Ran) -> None:
    folder = newest.folder("registration_raises")
    assert newest.returned("registration_raises") == {"graphs": 8}
    (process,) = reading.processes(folder)
    assert process["errors"] == ["the plugin for sglang: ZeroDivisionError: a fault of ours"]
    assert process["rank"] is None
    assert process["engine"] == {"name": "sglang", "version": newest.version, "configuration": {}}


def test_a_capture_site_that_no_hook_covers_is_named(sglang: Ran) -> None:
    folder = sglang.folder("untagged_site")
    begun = reading.load(reading.rank(folder) / "done.json")["captureBegin"]
    assert (begun["all"], begun["tagged"]) == (3, 2)
    (site,) = begun["untagged"]
    expected = "metadata_glue_graph.py" if "0.5.2" in sglang.version else "scenarios.py"
    assert expected in site


def test_sglangs_own_profiler_is_refused_by_the_name_of_its_flag(newest: Ran) -> None:
    folder = newest.folder("outer_profiler")
    assert newest.returned("outer_profiler") == {"graphs": 8}
    found = reading.records(folder)
    assert len(found) == 8
    for record in found:
        assert record["file"] is None
        assert record["error"].startswith("profilerBusy")
        assert "--enable-profile-cuda-graph" in record["error"]


def test_a_key_that_has_no_tag_costs_no_other_key(newest: Ran) -> None:
    folder = newest.folder("key_without_a_tag")
    assert [record["tag"] for record in reading.records(folder)] == ["DecodeCudaGraphRunner__bs_1__moepath-plain"]
    assert reading.planned(folder) == ["DecodeCudaGraphRunner__bs_1__moepath-plain"]
    done = reading.load(reading.rank(folder) / "done.json")
    assert (done["ok"], done["captureBegin"]["all"]) == (False, 2)
    assert "a key of DecodeCudaGraphRunner: TagError" in done["reason"]


def test_what_sglang_raises_reaches_its_caller_and_the_key_was_not_captured(newest: Ran) -> None:
    folder = newest.folder("engine_raises")
    assert newest.returned("engine_raises") == "no memory for three"
    *kept, lost = reading.records(folder)
    assert [record["tag"] for record in kept if record["file"]] == ["DecodeCudaGraphRunner__bs_4"]
    assert (lost["tag"], lost["file"]) == ("DecodeCudaGraphRunner__bs_3", None)
    assert lost["error"] == "the engine raised RuntimeError: no memory for three"
    assert not (reading.rank(folder) / "done.json").exists(), "nothing says that this rank was done"


def test_a_warm_up_taken_for_the_capture_costs_no_trace(newest: Ran) -> None:
    folder = newest.folder("more_warmups_than_expected")
    assert [trace.rows for trace in reading.traces(folder)] == [4, 2, 1]
    assert [(record["error"], record["dirty"]) for record in reading.records(folder)] == [(None, [])] * 3


def test_a_window_that_came_too_late_is_a_recorded_loss_and_the_last(newest: Ran) -> None:
    folder = newest.folder("fewer_warmups_than_expected")
    lost, *kept = reading.records(folder)
    assert (lost["file"], lost["tag"]) == (None, "DecodeCudaGraphRunner__bs_4")
    assert "fewer warm-ups than expected" in lost["error"]
    assert [trace.rows for trace in reading.traces(folder)] == [2, 1]
    assert all(record["error"] is None for record in kept)


def test_without_a_spool_nothing_is_hooked(newest: Ran) -> None:
    assert newest.returned("inert") == {"wrapped": False}
    assert not (newest.folder("inert") / "spool").exists()
