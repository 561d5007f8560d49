"""What steps consist of: sums on any trace, and small pictures of who gets which instant."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.options import Options, StepPart
from tests.analyses import PARTS, SCHEMAS, analysed, any_trace, few_reports, loaded, rows_of
from tests.oracle.model import PlainTrace, Shape, from_trace, to_trace
from tests.oracle.report import Report
from tests.oracle.step_parts import Key, step_parts
from tests.reports import DATA
from tests.tiny import MAIN, PROCESS, Row, analysis_of, call, copy, kernel, launch, opened, plain_of

STEP = ["process", "device", "step"]
KEY = list(Key.__dataclass_fields__)
NCCL = "ncclDevKernel_AllReduce"


def assert_sums_agree(analysis: nsysflow.Analysis) -> None:
    """The rows of each step sum to what the steps table says of it, column by column."""
    rows = analysis.step_parts
    assert rows.select(*STEP, *KEY).is_unique().all()
    assert rows.filter((pl.col("ns") <= 0) & (pl.col("count") <= 0)).is_empty()
    part, kind, ns = pl.col("part").cast(pl.String), pl.col("kind"), pl.col("ns")
    named = zip(PARTS, ("compute", "communication", "copies", "idle"), strict=True)
    columns = {
        "duration_ns": ns.sum(),
        **{column: ns.filter(part == name).sum() for column, name in named},
        **{f"{c}_ns": ns.filter((part == "idle") & (kind == c)).sum() for c in CAUSES},
    }
    found = rows.group_by(STEP).agg(sums.alias(name) for name, sums in columns.items())
    expected = analysis.steps.select(*STEP, *columns)
    lasting = expected.filter(pl.col("duration_ns") > 0)
    in_steps = found.drop_nulls("step")
    assert in_steps.sort(STEP).equals(lasting.sort(STEP), null_equal=True)
    windows = analysis.accounting.select("device", "window_ns", *list(columns)[1:])
    without = found.filter(pl.col("step").is_null()).rename({"duration_ns": "window_ns"})
    stepless = windows.join(analysis.steps, on="device", how="anti").filter(pl.col("window_ns") > 0)
    assert without.drop("process", "step").sort("device").equals(stepless.sort("device"))


@any_trace
def test_the_rows_of_a_step_of_any_trace_sum_to_its_parts(model: PlainTrace) -> None:
    assert_sums_agree(nsysflow.analyze(to_trace(model)))


@few_reports
def test_the_rows_of_a_step_of_a_real_report_sum_to_its_parts(name: str) -> None:
    assert_sums_agree(analysed(name))


def test_the_parts_of_a_trace_of_torch_agree_with_the_oracle() -> None:
    trace = nsysflow.load(DATA / "h200-kineto.pt.trace.json.gz")
    expected = step_parts(Report(from_trace(trace)))
    columns = list(SCHEMAS["step_parts"])
    found = nsysflow.analyze(trace).step_parts
    assert rows_of(found.to_dicts(), columns) == rows_of(expected, columns)


@pytest.mark.parametrize("name", ["h200-train", "nan_check-sync"])
def test_selected_steps_have_the_rows_that_they_have_in_the_whole_report(name: str) -> None:
    selected = nsysflow.analyze(loaded(name), Options(steps=(StepPart(1, 2),))).step_parts
    assert selected.equals(analysed(name).step_parts.filter(step=1))
    assert not selected.is_empty()


def steps_at(*starts: int) -> list[Row]:
    """Steps, each with a kernel of 1 ns at its start, launched 2 ns before; the last ends there."""
    rows: list[Row] = []
    for number, start in enumerate(starts, start=101):
        rows += [opened(start - 3, start - 1, "step"), launch(start - 2, start - 1, number)]
        rows.append(kernel(start, start + 1, number, name="first"))
    return rows


def found(analysis: nsysflow.Analysis, *columns: str, step: int | None = 0) -> list[Any]:
    """These columns of the rows of a step without its first kernel and its idle time."""
    rows = analysis.step_parts.filter(pl.col("step").eq_missing(step), pl.col("name") != "first")
    rows = rows.filter(pl.col("part") != "idle").with_columns(pl.col("part").cast(pl.String))
    return rows.select(columns).rows()


def test_an_instant_belongs_to_the_kernel_that_started_first() -> None:
    #    10        20        30        40
    # a  |==================>|
    # b       |====|                      within a: nothing is left
    # c                 |=========>|      a's end to its own
    rows = [kernel(10, 30, None, name="a"), kernel(15, 20, None, name="b")]
    rows.append(kernel(25, 40, None, name="c"))
    analysis = analysis_of(*steps_at(5, 100, 200), *rows)
    assert found(analysis, "name", "ns", "duration_ns", "count") == [
        ("a", 20, 20, 1),
        ("b", 0, 5, 1),
        ("c", 10, 15, 1),
    ]


def test_of_kernels_that_start_together_the_one_launched_first_has_the_time() -> None:
    starts = kernel(20, 30, 2, name="a"), kernel(20, 35, 1, name="b")
    calls = launch(12, 13, 1), launch(14, 15, 2)
    analysis = analysis_of(*steps_at(5, 100, 200), *starts, *calls)
    assert found(analysis, "name", "ns") == [("a", 0), ("b", 15)]


def test_compute_hides_communication_and_both_hide_copies() -> None:
    #                10        20        30        40        50
    # compute        |=========|
    # communication       |========= 30 in all =====|
    # copy                               |==================|
    rows: list[Row] = [kernel(10, 20, None), kernel(15, 40, None, name=NCCL)]
    rows.append(copy(35, 50, None, "HtoD", "pinned", "device"))
    analysis = analysis_of(*steps_at(5, 100, 200), *rows)
    assert found(analysis, "part", "kind", "ns", "duration_ns") == [
        ("compute", "other", 10, 10),
        ("communication", "comm", 20, 25),
        ("copies", "memcpy HtoD", 10, 15),
    ]


def test_a_kernel_across_the_border_of_steps_has_time_in_both_and_counts_in_the_first() -> None:
    # steps   |0: 5..100        |1: 100..200
    # first   |                 |            at 5, 100, 200
    # a                  |90 ======== 120|   so the kernel at 100 has nothing
    analysis = analysis_of(*steps_at(5, 100, 200), kernel(90, 120, None, name="a"))
    figures = ("name", "ns", "duration_ns", "count")
    assert found(analysis, *figures) == [("a", 10, 30, 1)]
    assert found(analysis, *figures, step=1) == [("a", 20, 0, 0)]
    hidden = analysis.step_parts.filter(step=1, name="first")
    assert hidden.select("ns", "duration_ns", "count").rows() == [(0, 1, 1)]


def test_a_kernel_that_is_hidden_behind_the_border_has_no_row_there() -> None:
    rows = kernel(80, 150, None, name="a"), kernel(90, 120, None, name=NCCL)
    analysis = analysis_of(*steps_at(5, 100, 200), *rows)
    assert found(analysis, "name", "ns", "count") == [("a", 70 - 50, 1), (NCCL, 0, 1)]
    assert found(analysis, "name", "ns", "count", step=1) == [("a", 50, 0)]


def test_operations_of_no_length_count_and_take_nothing() -> None:
    analysis = analysis_of(*steps_at(5, 100, 200), kernel(50, 50, None, name="a"))
    assert found(analysis, "name", "ns", "duration_ns", "count") == [("a", 0, 0, 1)]


def test_kernels_of_one_name_and_other_grids_have_rows_of_their_own() -> None:
    other = replace(kernel(20, 30, None), shape=Shape(grid_x=4, grid_y=2))
    analysis = analysis_of(
        *steps_at(5, 100, 200), kernel(10, 20, None), other, kernel(40, 41, None)
    )
    assert found(analysis, "name", "grid", "ns", "count") == [
        ("k", "1x1x1", 11, 2),
        ("k", "4x2x1", 10, 1),
    ]


def test_a_trace_without_grids_has_none() -> None:
    trace = to_trace(plain_of(*steps_at(5, 100, 200), kernel(10, 20, None)))
    ops = trace.ops.with_columns(pl.lit(None, trace.ops.schema["detail"]).alias("detail"))
    analysis = nsysflow.analyze(replace(trace, ops=ops, shapes=trace.shapes.clear()))
    assert found(analysis, "name", "grid", "ns") == [("k", None, 10)]


def test_a_gpu_without_steps_is_one_piece() -> None:
    analysis = analysis_of(
        *steps_at(5, 100, 200), kernel(10, 20, None, device=1), kernel(30, 50, None, device=1)
    )
    rows = analysis.step_parts.filter(device=1)
    assert rows.select("process", "step", "part", "ns", "count").to_dict(as_series=False) == {
        "process": [None, None],
        "step": [None, None],
        "part": ["compute", "idle"],
        "ns": [30, 10],
        "count": [2, 1],
    }


def test_a_gpu_that_is_not_selected_has_no_rows() -> None:
    rows = *steps_at(5, 100, 200), kernel(10, 20, None, device=1)
    for device in (0, 1):
        analysis = analysis_of(*rows, options=Options(device=device))
        assert set(analysis.step_parts["device"]) == {device}


def test_a_gpu_without_operations_of_any_length_has_no_rows() -> None:
    assert analysis_of(kernel(10, 10, None)).step_parts.is_empty()
    assert analysis_of().step_parts.is_empty()


def test_each_of_two_processes_on_a_gpu_has_all_that_runs_in_its_steps() -> None:
    # process 1   |0: 5 ------- |100 ------ |200
    # process 2      |0: 30 ------- |130 ------- |230
    # a               |50 === 60|                       in step 0 of both
    ours = plain_of(*steps_at(5, 100, 200), kernel(50, 60, None, name="a"))
    theirs = plain_of(*steps_at(30, 130, 230))
    process, thread = 2 * PROCESS, 2 * PROCESS | 2
    both = replace(
        ours,
        ops=(*ours.ops, *(replace(row, process=process) for row in theirs.ops)),
        calls=(*ours.calls, *(replace(r, process=process, thread=thread) for r in theirs.calls)),
        ranges=(*ours.ranges, *(replace(r, process=process, thread=thread) for r in theirs.ranges)),
    )
    analysis = nsysflow.analyze(to_trace(both))
    assert_sums_agree(analysis)
    with_a = analysis.step_parts.filter(name="a").select("process", "step", "ns", "count")
    assert with_a.rows() == [(1, 0, 10, 1), (2, 0, 10, 1)]
    first = analysis.step_parts.filter(name="first", process=1, step=0)
    assert first["count"].sum() == 2


def test_idle_time_has_its_cause_place_culprit_and_number_of_gaps() -> None:
    # GPU   |5|      |400_005|            |800_010|
    # host  sync until 400_000 in `log`: nearly all of the gap is the sync's
    rows: list[Row] = [opened(7, 400_001, "log"), call(7, 400_000, "cudaStreamSynchronize")]
    analysis = analysis_of(*steps_at(5, 400_005, 800_010), *rows)
    idle = analysis.step_parts.filter(pl.col("part") == "idle", pl.col("kind") == "sync", step=0)
    (row,) = idle.to_dicts()
    assert (row["name"], row["phase"], row["count"]) == ("cudaStreamSynchronize", "log", 1)
    assert (row["ns"], row["duration_ns"], row["grid"]) == (400_000 - 7, 0, None)


def test_paths_that_are_written_alike_share_a_row() -> None:
    both = opened(10, 20, "a/b"), opened(30, 40, "a"), opened(31, 39, "b")
    calls = launch(12, 13, 1, thread=MAIN), launch(33, 34, 2, thread=MAIN)
    ran = kernel(15, 25, 1), kernel(35, 45, 2)
    analysis = analysis_of(*steps_at(5, 100, 200), *both, *calls, *ran)
    assert found(analysis, "phase", "ns", "count") == [("a/b", 20, 2)]


def test_a_kernel_of_several_short_names_has_the_smallest() -> None:
    other = replace(kernel(20, 30, None), short_name="j")
    analysis = analysis_of(*steps_at(5, 100, 200), kernel(10, 20, None), other)
    assert found(analysis, "name", "short_name", "ns") == [("k", "j", 20)]
