"""A program's own torch.profiler works, whatever `nsysflow profile` records."""

import gzip
import json
from pathlib import Path

import pytest

from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR
from tests.runtime.programs import run_torch

pytestmark = pytest.mark.slow

OWN = """
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from nsysflow import region, steps

def done(profiler):
    profiler.export_chrome_trace("own.json")

off = torch.autograd.profiler.profile(enabled=False)
at = schedule(wait={wait}, warmup={warmup}, active={active}, repeat=1)
cpu = [ProfilerActivity.CPU]
with profile(activities=cpu, schedule=at, on_trace_ready=done) as profiler:
    for number in steps(range(12)):
        with region("forward"), record_function(f"body {{number}}"):
            torch.ones(8).sum()
        profiler.step()
print("trained")
"""


def names_in(trace: bytes) -> set[str]:
    return {event["name"] for event in json.loads(trace)["traceEvents"]}


@pytest.mark.parametrize(
    ("wait", "warmup", "active", "recorded", "said"),
    [
        (0, 1, 8, False, "is running when the window opens"),
        (0, 6, 2, False, "is running when the window opens"),
        (3, 1, 1, False, "stopped before the window closed"),
        (3, 4, 2, False, "stopped before the window closed"),
        (0, 1, 1, True, ""),
        (6, 1, 2, True, ""),
    ],
    ids=["records before", "warms up before", "inside", "warms up inside", "ended before", "after"],
)
def test_the_programs_own_profiler_gets_its_steps_and_no_trace_mixes_both(
    tmp_path: Path, wait: int, warmup: int, active: int, recorded: bool, said: str
) -> None:
    code = OWN.format(wait=wait, warmup=warmup, active=active)
    ran = run_torch(code, tmp_path, **{COLLECTOR: "kineto", CAPTURE: "1:1:3"})
    assert (ran.returncode, ran.stdout) == (0, "trained\n"), ran.stderr
    bodies = {f"body {number}" for number in range(wait + warmup, wait + warmup + active)}
    assert bodies <= names_in((tmp_path / "own.json").read_bytes())
    ours = tmp_path / "report.pt.trace.json.gz"
    assert ours.exists() == recorded
    if recorded:
        in_window = {f"body {number}" for number in (2, 3, 4)}
        found = names_in(gzip.decompress(ours.read_bytes()))
        assert {name for name in found if name.startswith("body")} == in_window
    lines = [line for line in ran.stderr.splitlines() if line.startswith("nsysflow:")]
    assert len(lines) == (not recorded)
    assert all(said in line for line in lines)
    (status,) = take_statuses(tmp_path)
    assert (status.window, status.captured) == ("closed", 3)
