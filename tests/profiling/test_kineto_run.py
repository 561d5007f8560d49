"""A run recorded by torch.profiler: the trace of each process is a report."""

import sys
from pathlib import Path

import pytest

from nsysflow.runs.manifest import read_manifest
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR
from tests.profiling.fake import profiled
from tests.reports import DATA
from tests.runtime.programs import TRAINS, run_torch

LEAVES = """
import os, shutil, sys
for name in sys.argv[2:]:
    shutil.copy(sys.argv[1], os.path.join(os.environ["NSYSFLOW_RUN_FOLDER"], name))
sys.exit(len(sys.argv) == 3)
"""
"""A program that leaves these traces. If there is only one, it fails."""


def recorded(folder: Path, *names: str) -> tuple[str, ...]:
    """The reports of a run that leaves files of these names."""
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        LEAVES,
        str(DATA / "h200-kineto.pt.trace.json.gz"),
        *names,
    ]
    asked = ["--collector", "kineto", "--on", "cpu", "--force", "-o", str(folder)]
    ran = profiled(*asked, "--no-analyze", "--", *command)
    assert ran.exit_code == (len(names) == 1), ran.output
    assert ", ".join(names) in ran.stderr
    manifest = read_manifest(folder)
    assert manifest is not None
    return manifest.reports


def test_traces_of_ranks_that_the_command_starts_are_reports_in_order(
    tmp_path: Path,
) -> None:
    ranks = tuple(f"rank{rank}.pt.trace.json.gz" for rank in range(11))
    assert recorded(tmp_path / "out", *ranks) == ranks


def test_traces_of_all_processes_are_reports_and_the_next_run_replaces_them(
    tmp_path: Path,
) -> None:
    first = ("report.pt.trace.json.gz", "report-97.pt.trace.json.gz", "report-813.pt.trace.json.gz")
    assert recorded(tmp_path / "out", *first) == first
    assert recorded(tmp_path / "out", *first[:1]) == first[:1]
    assert [path.name for path in (tmp_path / "out").glob("*.gz")] == [*first[:1]]


@pytest.mark.slow
def test_a_second_process_does_not_overwrite_the_trace_of_the_first(tmp_path: Path) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "0:0:1"}
    first = tmp_path / "report.pt.trace.json.gz"
    assert run_torch(TRAINS, tmp_path, **asked).returncode == 0
    held = first.read_bytes()
    assert run_torch(TRAINS, tmp_path, **asked).returncode == 0
    assert first.read_bytes() == held
    pids = {path.stem.removeprefix("child-") for path in tmp_path.glob("child-*.json")}
    (second,) = (path.name for path in tmp_path.glob("report-*.gz"))
    assert second in {f"report-{pid}.pt.trace.json.gz" for pid in pids}
    assert not list(tmp_path.glob(".*"))
