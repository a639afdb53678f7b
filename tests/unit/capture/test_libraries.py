"""What computed, and what recorded it: versions of packages and device, and where the tracer's libraries were from."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shapetrace_capture import device, libraries
from shapetrace_contract import spool

from .fake_torch import session_with, torch_with

LINE = "7f00-7f01 r-xp 00000000 fe:00 1003  "


def install(folder: Path, name: str, version: str) -> None:
    path = folder / f"{name.replace('-', '_')}-1.dist-info"
    path.mkdir(parents=True)
    (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def torch_in(folder: Path) -> Any:
    (folder / "torch/lib").mkdir(parents=True)
    return SimpleNamespace(__file__=str(folder / "torch/__init__.py"))


def maps(tmp_path: Path, *files: str) -> Path:
    path = tmp_path / "maps"
    path.write_text("".join(f"{LINE}{file}\n" for file in ("", "[heap]", *files)))
    return path


def test_packages_that_compute_are_told_with_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "amd-aiter", "0.1.9.post1+g12ab")
    install(tmp_path, "flashinfer-python", "0.7.2")
    install(tmp_path, "sgl-kernel", "/a/place")
    install(tmp_path, "somebodys-own", "1.0")
    (tmp_path / "xformers-1.dist-info").mkdir()  # without a version
    monkeypatch.syspath_prepend(str(tmp_path))
    libraries.packages.cache_clear()
    found = libraries.packages()
    libraries.packages.cache_clear()
    assert found.items() >= {"amd-aiter": "0.1.9.post1+g12ab", "flashinfer-python": "0.7.2"}.items()
    assert not {"sgl-kernel", "somebodys-own", "xformers"} & set(found)


def test_packages_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries.packages.cache_clear()
    first = dict(libraries.packages())
    monkeypatch.setattr(sys, "path", [])
    assert libraries.packages() == first


def test_each_tracer_says_whether_it_is_torchs_own_or_the_systems(tmp_path: Path) -> None:
    torch = torch_in(tmp_path)
    text = maps(
        tmp_path,
        f"{tmp_path}/torch/lib/libroctracer64.so",
        f"{tmp_path}/torch/lib/libroctracer64.so",
        "/opt/rocm-7.2.2/lib/librocprofiler-sdk.so.1.1.0",
        "/opt/rocm-7.2.2/lib/libroctracer64.so.4.1.70202",
        "/opt/venv/lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.13",
        "/opt/rocm-7.2.2/lib/libamdhip64.so.7",
        "/opt/with space/libroctx64.so.4 (deleted)",
    )
    assert libraries.tracers(torch, text) == {
        "libcupti.so.13": "package",
        "librocprofiler-sdk.so.1.1.0": "system",
        "libroctracer64.so": "torch",
        "libroctracer64.so.4.1.70202": "system",
        "libroctx64.so.4": "system",
    }


def test_a_library_that_is_loaded_from_two_places_says_both(tmp_path: Path) -> None:
    torch = torch_in(tmp_path)
    text = maps(tmp_path, f"{tmp_path}/torch/lib/libroctracer64.so.4", "/opt/rocm/lib/libroctracer64.so.4")
    assert libraries.tracers(torch, text) == {"libroctracer64.so.4": "system, torch"}


def test_torchs_folder_is_known_behind_a_link(tmp_path: Path) -> None:
    torch_in(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    torch = SimpleNamespace(__file__=str(tmp_path / "link/torch/__init__.py"))
    assert libraries.tracers(torch, maps(tmp_path, f"{tmp_path}/real/torch/lib/libcupti.so.12")) == {
        "libcupti.so.12": "torch"
    }


def test_where_nothing_can_be_read_nothing_is_told(tmp_path: Path) -> None:
    assert libraries.tracers(torch_in(tmp_path), tmp_path / "none") == {}
    assert libraries.tracers(SimpleNamespace(), maps(tmp_path, "/lib/libcupti.so.12")) == {"libcupti.so.12": "system"}


def test_tracers_are_bounded(tmp_path: Path) -> None:
    many = maps(tmp_path, *(f"/lib/libcupti.so.{number}" for number in range(100)))
    assert len(libraries.tracers(torch_in(tmp_path), many)) == libraries.MAX_TRACERS


@pytest.mark.parametrize(
    ("hip", "properties", "name"),
    [
        ("7.2", SimpleNamespace(gcnArchName="gfx950:sramecc+:xnack-", major=9, minor=5), "gfx950:sramecc+:xnack-"),
        (None, SimpleNamespace(gcnArchName="NVIDIA H200", major=9, minor=0), "sm_90"),
        ("7.2", SimpleNamespace(), None),
    ],
)
def test_the_device_tells_its_architecture(hip: str | None, properties: Any, name: str | None) -> None:
    torch = torch_with()
    torch.version.hip = hip
    torch.cuda.current_device, torch.cuda.get_device_properties = lambda: 0, lambda number: properties
    torch.cuda.nccl = SimpleNamespace(version=lambda: (2, 30, 7))
    found = device.versions(torch)
    assert found.get("deviceArchitecture") == name
    assert (found["deviceName"], found["rccl" if hip else "nccl"]) == ("fake", "2.30.7")


def test_what_a_device_does_not_answer_costs_no_record() -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no such thing")

    torch = torch_with()
    torch.cuda.get_device_name = torch.cuda.get_device_properties = fails
    torch._C._cuda_getDriverVersion = fails
    torch.cuda.nccl = SimpleNamespace(version=fails)
    found = device.versions(torch)
    assert found["torch"] == "2.13.0"
    assert not {"deviceName", "deviceArchitecture", "driver", "nccl"} & {name for name, value in found.items() if value}


def test_the_process_record_has_both(tmp_path: Path) -> None:
    session_with(torch_with(), tmp_path).done()
    (path,) = tmp_path.glob("process-*.json")
    record = spool.read_json(path) or {}
    assert record["versions"].items() >= {"torch": "2.13.0", **libraries.packages()}.items()
    assert record["tracers"] == {}
