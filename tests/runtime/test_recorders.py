"""Who profiles a process, and what writes its ranges."""

import sys
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from nsysflow import region, steps
from nsysflow.runtime import collectors, recorders, regions
from nsysflow.runtime.collectors import attached_collector
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import OPENER
from nsysflow.runtime.recorders import find_recorder
from tests.recording import Notes, read_back, recorded


def without_nvtx(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    monkeypatch.setattr(recorders, "_missing", set())
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("built", [True, False])
def test_only_a_cuda_build_records_ranges(monkeypatch: pytest.MonkeyPatch, built: bool) -> None:
    notes: list[str] = []
    nvtx = SimpleNamespace(range_push=notes.append, range_pop=lambda: notes.append("pop"))
    backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: built))
    torch = SimpleNamespace(cuda=SimpleNamespace(nvtx=nvtx), backends=backends)
    without_nvtx(monkeypatch, torch)
    recorder = find_recorder("nsys")
    if not built:
        assert recorder is None
        return
    assert recorder is not None
    recorder.open("forward", 3)()
    assert notes == ["forward", "pop"]


@pytest.mark.parametrize(("collector", "package"), [("nsys", "nvtx"), ("kineto", "torch.profiler")])
def test_a_missing_package_does_not_stop_a_loop(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    collector: collectors.Collector,
    package: str,
) -> None:
    regions.warn_nothing_recorded.cache_clear()
    without_nvtx(monkeypatch, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv(OPENER, "nvtx")
    with recorded(collector):
        monkeypatch.setattr(regions, "_recorder", None)
        assert list(steps(range(5), wait=0, warmup=1, active=2)) == list(range(5))
        assert (THIS_PROCESS.ranges, THIS_PROCESS.window) == (0, "closed")
    said = capsys.readouterr().err
    assert said.count(f"pip install {package.partition('.')[0]}\n") == 1
    assert said.count("nsysflow:") == 1


@pytest.mark.parametrize(
    ("collector", "package", "has"),
    [
        ("nsys", "nvtx", ("push_range", "pop_range")),
        ("kineto", "torch.profiler", ("record_function",)),
    ],
)
def test_a_missing_package_is_searched_for_once_and_used_if_the_program_imports_it(
    monkeypatch: pytest.MonkeyPatch,
    collector: collectors.Collector,
    package: str,
    has: tuple[str, ...],
) -> None:
    searched: list[str] = []

    def search(name: str) -> object:
        searched.append(name)
        if name not in sys.modules:
            raise ImportError
        return sys.modules[name]

    monkeypatch.setattr(recorders, "_missing", set())
    monkeypatch.setattr(recorders, "import_module", search)
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert [find_recorder(collector) for _ in range(3)] == [None] * 3
    assert searched == [package]
    monkeypatch.setitem(
        sys.modules, package, cast("ModuleType", SimpleNamespace(**dict.fromkeys(has, print)))
    )
    assert find_recorder(collector) is not None


def test_a_recorder_found_later_records_only_later_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    later = Notes()
    with recorded():
        monkeypatch.setattr(regions, "_recorder", None)
        monkeypatch.setattr(recorders, "find_recorder", lambda _collector: None)
        with region("before"):
            monkeypatch.setattr(regions, "_recorder", later)
            with region("after"):
                pass
    assert read_back(later) == [("after", [])]


@pytest.mark.parametrize(
    ("environ", "collector"),
    [
        ({}, None),
        ({"NSYS_PROFILING_SESSION_ID": ""}, None),
        ({"NSYS_PROFILING_SESSION_ID": "17"}, "nsys"),
        ({"NVTX_INJECTION64_PATH": "libToolsInjection64.so"}, "nsys"),
        ({"NSYSFLOW_COLLECTOR": "nsys"}, "nsys"),
        ({"NSYSFLOW_COLLECTOR": "kineto"}, "kineto"),
        ({"NSYSFLOW_COLLECTOR": "kineto", "NSYS_PROFILING_SESSION_ID": "17"}, "kineto"),
    ],
)
def test_the_environment_says_who_profiles(environ: dict[str, str], collector: str | None) -> None:
    assert attached_collector(environ) == collector
