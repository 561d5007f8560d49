"""A trace written by the installed torch loads, not only the one in tests/data."""

from pathlib import Path

import pytest

from nsysflow.analysis.load import load
from tests.runtime.programs import run_torch

pytestmark = pytest.mark.slow

PROGRAM = """
import torch
cpu = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=cpu) as profiler:
    for _ in range(3):
        with torch.profiler.record_function("step"):
            torch.ones(8).sum()
profiler.export_chrome_trace("cpu.pt.trace.json")
"""


def test_a_cpu_trace_has_its_ranges_and_no_gpu_work(tmp_path: Path) -> None:
    done = run_torch(PROGRAM, tmp_path)
    assert done.returncode == 0, done.stderr
    trace = load(tmp_path / "cpu.pt.trace.json")
    steps = trace.ranges.filter(name="step")
    assert steps.height == 3
    assert steps.select((steps["end_ns"] > steps["start_ns"]).all()).item()
    assert trace.ops.is_empty()
    assert trace.calls.is_empty()
