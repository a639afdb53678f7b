"""What a manifest says beside its traces: engine, image, machine, coverage, contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from shapetrace_contract import keys
from shapetrace_contract.settings import EngineSettings, ImageSettings
from shapetrace_contract.tag import Shape
from shapetrace_finish.__main__ import main
from shapetrace_finish.about import describe_content, describe_engine, describe_software
from shapetrace_traces.manifest import Manifest

SCHEMA = Path(__file__).parents[3] / "docs/manifest.schema.json"
DIGEST = "sha256:" + "a" * 64


def finish(attempt: Any, **more: str) -> Manifest:
    assert main({**attempt.environment, **more}, sleep=lambda seconds: None) == 0
    found: Manifest = attempt.manifest
    return found


def test_a_run_says_what_ran(attempt: Any) -> None:
    arguments = [
        "--load-format",
        "dummy",
        "--enable-lora",
        "--model-path",
        "/secret/place",
        "--api-key",
        "k",
        "--tp-size=2",
    ]
    attempt.engine = EngineSettings(name="sglang", args=arguments, parallelism={"tensor": 2}, device="rocm")
    for rank in (0, 1):
        configuration = {"cuda_graph_max_bs": 8, "device": f"gpu {rank}", "sizes": [1, 2], "odd": "x" * 9000}
        engine_record = {"name": "sglang", "version": "0.5.23", "configuration": configuration}
        record = {"v": 1, "rank": rank, "hooks": {"a": "applied"}, "engine": engine_record}
        versions = {"torch": "2.13.0", "hip": "7.2", "cuda": None, "driver": 70253211}
        process = {"pid": 3, "rank": rank, "versions": versions, "environment": {"SGLANG_USE_AITER": "1"}}
        process["tracers"] = {"libroctracer64.so": "torch" if rank else "system"}
        attempt.put_rank(rank, record=record, processes=[process])
    image = ImageSettings(reference="vendor/sglang:rocm", id=f"docker.io/vendor/sglang@{DIGEST}")
    manifest = finish(attempt, **{ImageSettings.ENV: image.to_env()})
    engine, software = manifest.engine, manifest.software
    assert (engine.version, engine.weights) == ("0.5.23", "dummy")
    assert engine.arguments == {"--enable-lora": "", "--load-format": "dummy", "--tp-size": "2"}
    assert engine.image is not None
    assert (engine.image.reference, engine.image.digest) == ("vendor/sglang:rocm", DIGEST)
    assert engine.configuration == {
        "cuda_graph_max_bs": ["8"],
        "device": ['"gpu 0"', '"gpu 1"'],
        "sizes": ["[1, 2]"],
    }
    assert software.versions["torch"] == ["2.13.0"]
    assert software.versions["driver"] == ["70253211"]
    assert "cuda" not in software.versions
    assert software.tracers == {"libroctracer64.so": ["system", "torch"]}
    assert software.environment == {"SGLANG_USE_AITER": ["1"]}


def test_what_nobody_told_is_absent(attempt: Any) -> None:
    attempt.engine = EngineSettings(name="command", parallelism={"tensor": 1})
    attempt.put_rank(0)
    engine = finish(attempt).engine
    assert (engine.version, engine.image, engine.weights, engine.arguments) == (None, None, None, {})


@pytest.mark.parametrize(
    ("name", "arguments", "weights"),
    [
        ("sglang", ["--load-format=dummy"], "dummy"),
        ("vllm", ["--load-format", "safetensors"], "real"),
        ("vllm", [], "real"),
        ("torch", [], "dummy"),
        ("command", ["--load-format", "dummy"], None),
    ],
)
def test_weights_are_dummy_or_real(name: str, arguments: list[str], weights: str | None) -> None:
    assert describe_engine(EngineSettings(name=name, args=arguments), None, []).weights == weights


def test_models_are_told_apart_by_name_source_and_commit_and_no_path_is_told(attempt: Any) -> None:
    attempt.engine = EngineSettings(
        name="vllm",
        models=[
            {"role": "target", "name": "org/large", "revision": "main"},
            {"role": "draft", "path": "/models/1/private/eagle", "pvc": {"claimName": "w", "path": "private/eagle"}},
            {"role": "adapter", "path": "/private/in/the/image/lora-a"},
            {"role": "adapter", "name": "org/large"},
        ],
    )
    fetched = [
        {"name": "org/large", "revision": None, "resolvedRevision": "cd" * 20},
        {"name": "org/large", "revision": "main", "resolvedRevision": "ab" * 20},
    ]
    attempt.put_rank(0, stopped={"reason": "Done", "message": "", "models": fetched})
    models = finish(attempt).engine.models
    assert [(item.role, item.name, item.source, item.revision, item.resolved_revision) for item in models] == [
        ("target", "org/large", "hub", "main", "ab" * 20),
        ("draft", "eagle", "pvc", None, None),
        ("adapter", "lora-a", "path", None, None),
        ("adapter", "org/large", "hub", None, "cd" * 20),
    ]
    assert b"private" not in attempt.store.get(keys.MANIFEST)


@pytest.mark.parametrize(
    "hostile",
    [
        3,
        [3],
        [{"name": "a"}],
        [{"name": ["a"], "resolvedRevision": "ab" * 20}],
        [{"name": "a", "revision": None, "resolvedRevision": "/a/path"}],
    ],
)
def test_what_is_no_commit_resolves_nothing(hostile: Any) -> None:
    engine = EngineSettings(models=[{"role": "target", "name": "a"}])
    (model,) = describe_engine(engine, None, [{"rank": 0, "stopped": {"models": hostile}}]).models
    assert (model.name, model.resolved_revision) == ("a", None)


def test_an_image_without_a_digest_has_none() -> None:
    found = describe_engine(EngineSettings(), ImageSettings("registry/engine:1", "registry/engine:1"), []).image
    assert found is not None
    assert found.digest is None
    pinned = describe_engine(EngineSettings(), ImageSettings(f"registry/engine@{DIGEST}"), []).image
    assert pinned is not None
    assert pinned.digest == DIGEST


def test_coverage_says_what_is_missing_of_each_runner(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, lost=attempt.shapes[:1])
    (coverage,) = finish(attempt).coverage
    assert (coverage.runner, coverage.planned, coverage.delivered) == ("DecodeRunner", 24, 23)
    assert coverage.missing == [f"rank 1: {attempt.shapes[0].tag}"]


def test_coverage_counts_wrong_labels_copies_and_captures_beyond_the_plan(attempt: Any) -> None:
    planned = attempt.shapes[:-1]
    small, large = planned[0], planned[8]  # of one variant set
    plan = [{"runner": "DecodeRunner", "epoch": 1, "shapes": [item.tag for item in planned], "notPlanned": []}]
    attempt.put_rank(0, really={small: large, large: small}, plan=plan)
    attempt.put_rank(1, planned)
    path = attempt.folder / keys.part_key(1)
    part = json.loads(path.read_bytes())
    for entry in part["traces"][:3]:  # three names for one recording
        entry["rawSha256"] = "ab" * 32
    path.write_text(json.dumps(part))
    (coverage,) = finish(attempt).coverage
    assert (coverage.planned, coverage.delivered, coverage.missing) == (22, 22, [])
    assert (coverage.contradicted, coverage.duplicates, coverage.additional) == (2, 3, 1)


def test_a_trace_says_what_its_index_counted(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1)
    content = finish(attempt).traces[0].content
    assert content is not None
    assert (content.windows, content.launches_in_windows, content.gpu_in_windows) == (0, 0, 0)
    assert content.sequence_sha256 is not None
    assert len(content.sequence_sha256) == 64


def test_where_the_windows_are_and_which_steps_they_were_travels_in_the_manifest() -> None:
    windows = [{"beginMicroseconds": 1.5, "endMicroseconds": 2.5, "launches": 3}]
    content = describe_content({"windows": windows, "profilerSteps": [134]})
    assert content is not None
    assert (content.window_microseconds, content.profiler_steps) == ([(1.5, 2.5)], [134])


def test_what_each_step_of_a_capture_took_is_in_the_manifest(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1)
    path = attempt.folder / keys.part_key(1)
    part = json.loads(path.read_bytes())
    for entry, times in zip(
        part["traces"], ({"start": 0.5, "save": 2}, None, "odd", [1], {"a" * 99: 1.0}), strict=False
    ):
        entry["timesSeconds"] = times
    part["traces"][5]["timesSeconds"] = {
        "stop": "long",
        "save": float("nan"),
        "room": True,
        "window": 10**400,
        "start": 1.5,
    }
    path.write_text(json.dumps(part))
    manifest = finish(attempt)
    by_key = {trace.key: trace.times_seconds for trace in manifest.traces}
    told = [by_key[entry["key"]] for entry in part["traces"][:6]]
    assert told == [{"start": 0.5, "save": 2.0}, {}, {}, {}, {}, {"start": 1.5}]
    written = json.loads(attempt.store.get(keys.MANIFEST), parse_constant=pytest.fail)
    assert {"start": 0.5, "save": 2.0} in [trace["timesSeconds"] for trace in written["traces"]]


def aliases(attempt: Any, engine: str, *tags: str) -> list[str | None]:
    """Of rank 0, where two ranks of one tensor group captured the same."""
    attempt.engine = EngineSettings(name=engine, parallelism={"tensor": 2})
    shapes = [labelled(tag) for tag in tags]
    for rank in (0, 1):
        attempt.put_rank(rank, shapes)
    found = {(trace.rank, trace.tag): trace.alias for trace in finish(attempt).traces}
    assert len(found) == 2 * len(tags)
    first, second = ([found[rank, shape.tag] for shape in shapes] for rank in (0, 1))
    assert second == [name and name.replace("_rank0", "_rank1") for name in first]
    return first


def labelled(tag: str) -> Shape:
    return Shape.from_tag(f"{tag}__attention-dense__lora-lora")


def test_target_and_draft_have_the_names_that_sglang_gives_them(attempt: Any) -> None:
    found = aliases(attempt, "sglang", "DecodeCudaGraphRunner__bs_8", "DecodeCudaGraphRunner-draft0__bs_8")
    name = "DecodeCudaGraphRunner_bs_8_dense_lora_rank0"
    assert found == [name, f"Draft{name}"]


@pytest.mark.parametrize("engine", ["vllm", "torch", "command"])
def test_an_engine_without_such_names_gives_none(attempt: Any, engine: str) -> None:
    assert aliases(attempt, engine, "DecodeCudaGraphRunner__bs_8") == [None]


def test_a_name_that_sglang_would_give_twice_is_nobodys(attempt: Any) -> None:
    first, again = "EAGLEDraftCudaGraphRunner-draft0-step0", "EAGLEDraftCudaGraphRunner-draft0-step1"
    found = aliases(attempt, "sglang", f"{first}__bs_8", f"{again}__bs_8", f"{first}__bs_4")
    assert found == [None, None, "EAGLEDraftCudaGraphRunner_bs_4_dense_lora_rank0"]


def test_the_sequence_of_the_kernels_travels_in_the_manifest() -> None:
    content = describe_content({"windows": [], "kernelSequenceSha256": "ab" * 32})
    assert content is not None
    assert content.kernel_sequence_sha256 == "ab" * 32
    assert json.loads(content.model_dump_json(by_alias=True))["kernelSequenceSha256"] == "ab" * 32


def test_the_order_of_the_captures_of_a_rank_is_in_the_manifest(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1)
    for rank in range(2):
        seqs = sorted(trace.seq for trace in finish(attempt).traces if trace.rank == rank)
        assert seqs == list(range(12))


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"error": "no"},
        {"windows": [], "launchesInWindows": "many"},
        {"flags": 3},
        {"stacksShare": float("nan")},  # a manifest with one would be no JSON
        {"windows": [{"beginMicroseconds": float("-inf"), "endMicroseconds": 1.0}]},
    ],
)
def test_an_index_that_is_none_of_ours_gives_no_content(index: dict[str, Any]) -> None:
    assert describe_content(index) is None


@pytest.mark.parametrize("hostile", [3, "x", [1], {"a": {"b": 1}}, {"a" * 999: "b" * 999}, {"\ud800": "\ud800"}])
def test_hostile_records_do_no_harm(hostile: Any) -> None:
    part = {
        "rank": 0,
        "record": {"engine": hostile},
        "processes": [hostile, {"versions": hostile, "tracers": hostile}],
        "traces": [],
    }
    describe_engine(EngineSettings(), None, [part])
    found = describe_software([part, {**part, "processes": hostile, "traces": [{"index": {"gpus": hostile}}]}])
    json.dumps(found.model_dump(mode="json"), ensure_ascii=False).encode()


def test_what_is_written_is_as_the_schema_says(attempt: Any) -> None:
    attempt.put_rank(0)
    attempt.put_rank(1, lost=attempt.shapes[:1])
    finish(attempt)
    value, schema = json.loads(attempt.store.get(keys.MANIFEST)), json.loads(SCHEMA.read_text())
    jsonschema.validate(value, schema)
    jsonschema.validate({**value, "newer": {"field": 1}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**value, "verdict": "Fine"}, schema)
