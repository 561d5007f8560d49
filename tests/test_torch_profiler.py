"""A trace written by the installed torch loads, not only the one in tests/data."""

from pathlib import Path

import pytest

from nsysflow.analysis.load import load

torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_ranges_of_a_cpu_run_arrive_and_no_gpu_work_is_made_up(tmp_path: Path) -> None:
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("step"):
                torch.ones(8).sum()
    path = tmp_path / "cpu.pt.trace.json"
    profiler.export_chrome_trace(str(path))

    trace = load(path)

    steps = trace.ranges.filter(name="step")
    assert steps.height == 3
    assert steps.select((steps["end_ns"] > steps["start_ns"]).all()).item()
    assert trace.ops.is_empty()
    assert trace.calls.is_empty()
