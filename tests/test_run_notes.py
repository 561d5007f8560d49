"""What a run's manifest and its report say together."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl
import pytest

from nsysflow.analysis import schema
from nsysflow.analysis.options import Options
from nsysflow.analysis.trace import Trace
from nsysflow.errors import Damaged
from nsysflow.flow import analyze_reports
from nsysflow.handshake import Told
from nsysflow.manifest import Manifest, read_manifest, write_manifest
from nsysflow.run_notes import notes_on_run

TOLD: Final = Told(pid=7, versions={"nvtx": "0.2.16"}, ranges=24, steps=8, window="closed")
RUN: Final = Manifest(
    name="train",
    workload=None,
    command=("python", "train.py"),
    argv=("nsys", "profile", "python", "train.py"),
    on="cuda",
    collector="nsys",
    capture="3:2:5",
    processes=None,
    trace=("cuda", "nvtx"),
    backtrace=False,
    gpu_metrics=False,
    git={"commit": "abc", "changed": True},
    versions={"nsys": "2023.4.4"},
    gpus=("NVIDIA H200",),
    started="2026-11-20T10:00:00+00:00",
    wall_ns=5,
    exit_code=0,
    interrupted=False,
    reports=("report.sqlite",),
    told=(TOLD,),
)
RANGE: Final = {"kind": "push_pop", "start_ns": 0, "end_ns": 1, "thread": 1, "name": "step"}
RANGES: Final = schema.RANGES.to_frame().vstack(
    pl.DataFrame([{name: RANGE.get(name) for name in schema.RANGES}], schema=schema.RANGES)
)
HEALTHY: Final = Trace(report="report", ranges=RANGES)


def test_a_run_that_recorded_what_it_was_asked_for_has_no_notes() -> None:
    assert notes_on_run(RUN, HEALTHY) == ()


@pytest.mark.parametrize(
    ("run", "trace", "said"),
    [
        (RUN, Trace(report="report"), "opened 24 NVTX ranges and none was recorded: nvtx 0.2.16"),
        (
            replace(RUN, told=(replace(TOLD, versions={"nvtx": "0.2.11"}),)),
            Trace(report="report"),
            "forked without an exec",
        ),
        (replace(RUN, backtrace=True), HEALTHY, "holds no Python lines"),
        (replace(RUN, gpu_metrics=True), HEALTHY, "may not read the GPU's counters"),
        (replace(RUN, interrupted=True, exit_code=130), HEALTHY, "the run was interrupted"),
        (replace(RUN, exit_code=3), HEALTHY, "failed (exit code 3)"),
        (
            replace(RUN, told=(replace(TOLD, window="open", captured=1),)),
            HEALTHY,
            "captured 1 of 5 steps: the loop ended early",
        ),
        (
            replace(RUN, told=(replace(TOLD, window="open", captured=5),)),
            HEALTHY,
            "captured 5 of 5 steps: the program ended in the last one",
        ),
        (
            replace(RUN, told=(replace(TOLD, window="open", captured=4),), interrupted=True),
            HEALTHY,
            "until then, 4 of 5 steps",
        ),
        (
            replace(RUN, told=(replace(TOLD, window="open", captured=2),), exit_code=3),
            HEALTHY,
            "failed (exit code 3, 2 of 5 steps captured)",
        ),
        (replace(RUN, processes=2), HEALTHY, "1 of 2 ranks left a report"),
    ],
)
def test_what_was_asked_for_and_is_missing_is_said(run: Manifest, trace: Trace, said: str) -> None:
    (note,) = notes_on_run(run, trace)
    assert said in note


def test_a_program_that_ended_hard_inside_its_window_is_not_said_to_have_left_the_loop() -> None:
    told = replace(TOLD, window="open", captured=0, at_end=False)
    (note,) = notes_on_run(replace(RUN, told=(told,)), Trace(report="report"))
    assert note.startswith("the program ended inside the window of --capture by os._exit")
    (failed,) = notes_on_run(replace(RUN, told=(told,), exit_code=137), HEALTHY)
    assert "(exit code 137)" in failed  # and no count of steps, which nobody knows


def test_a_program_killed_behind_its_window_may_still_have_too_new_an_nvtx() -> None:
    (note,) = notes_on_run(
        replace(RUN, told=(replace(TOLD, at_end=False),)), Trace(report="report")
    )
    assert "nvtx 0.2.16 may be newer" in note


def test_of_ranks_the_one_that_captured_least_is_counted() -> None:
    ranks = tuple(replace(TOLD, rank=n, window="open", captured=3 - n) for n in range(2))
    run = replace(RUN, processes=2, reports=("rank0.sqlite", "rank1.sqlite"), told=ranks)
    assert notes_on_run(run, HEALTHY) == ("captured 2 of 5 steps: the loop ended early",)


def test_steps_are_not_counted_where_no_window_was_asked_for() -> None:
    told = (replace(TOLD, window="open", captured=1),)
    assert notes_on_run(replace(RUN, told=told, capture=None), HEALTHY) == ()


def test_what_a_run_was_not_to_record_is_not_missed() -> None:
    trace = replace(HEALTHY, notes=("no GPU work in this report; was it …?", "something else"))
    assert notes_on_run(RUN, trace)[0] == "no GPU work in this report; was it …?"
    on_cpu = notes_on_run(replace(RUN, on="cpu"), trace)
    assert on_cpu[0] == "something else"
    assert on_cpu[1].endswith("--on cpu: only ranges could be recorded, no GPU work")


def test_a_program_that_opened_no_range_is_told_how_to() -> None:
    trace = Trace(report="report", notes=("no NVTX ranges in this report; was it captured …?",))
    (note,) = notes_on_run(replace(RUN, told=()), trace)
    assert "nsysflow.region" in note


def test_a_program_whose_steps_went_unmarked_is_told_that_nvtx_is_missing() -> None:
    told = replace(TOLD, ranges=0, versions={"python": "3.12.1"})
    (note,) = notes_on_run(replace(RUN, told=(told,)), Trace(report="report"))
    assert "has no nvtx" in note
    assert "pip install nvtx" in note
    assert "opened none" not in note


def test_ranges_that_nsys_was_not_to_trace_are_not_missed() -> None:
    assert notes_on_run(replace(RUN, trace=("cuda",)), Trace(report="report")) == ()


@pytest.mark.parametrize(("on", "on_cpu"), [("cpu", True), ("cuda", False)])
def test_results_know_of_a_run_without_a_gpu(tmp_path: Path, on: str, on_cpu: bool) -> None:
    event = {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 7, "tid": 7}
    document = {"schemaVersion": 1, "traceEvents": [{**event, "ts": 1, "dur": 2}]}
    report = tmp_path / "report.pt.trace.json"
    report.write_text(json.dumps(document))
    write_manifest(tmp_path, replace(RUN, on=on, reports=(report.name,)))
    assert analyze_reports([tmp_path], Options()).on_cpu == on_cpu
    assert not analyze_reports([report], Options()).on_cpu


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    assert read_manifest(tmp_path) == RUN


def test_another_programs_manifest_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "webpack"}')
    assert read_manifest(tmp_path) is None
    (tmp_path / "manifest.json").write_text('["a", "list"]')
    assert read_manifest(tmp_path) is None


def test_a_manifest_of_ours_that_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"tool": "nsysflow", "name": "x"}')
    with pytest.raises(Damaged, match=r"manifest\.json cannot be understood"):
        read_manifest(tmp_path)
