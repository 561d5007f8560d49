"""What holds for every report: sums, bounds, and changes that must have no effect."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeVar

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.causes import CAUSES, STALLS
from nsysflow.analysis.events.graphs import GRAPH_NODE_NS
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.names import NOT_RECORDED
from nsysflow.analysis.schema import ATTRIBUTION
from tests.analyses import (
    CAUSE_COLUMNS,
    OF_REPORT,
    PARTS,
    STALL_COLUMNS,
    analysed,
    any_trace,
    by_device,
    every_report,
    few_reports,
    loaded,
    sums,
    tables_of,
    tables_of_report,
)
from tests.oracle.model import Call, Op, Overhead, PlainTrace, Range, Thread, to_trace

# --- sums and bounds -----------------------------------------------------------------------------

Analysis = nsysflow.Analysis


def the_window_is_the_sum_of_its_parts(analysis: Analysis) -> None:
    for row in analysis.accounting.to_dicts():
        assert row["window_ns"] == sum(row[part] for part in PARTS)
        if row["start_ns"] is not None:
            assert row["window_ns"] == row["end_ns"] - row["start_ns"]


def causes_sum_to_the_gap(analysis: Analysis) -> None:
    gaps = analysis.gaps
    assert gaps.select(pl.sum_horizontal(CAUSE_COLUMNS)).to_series().to_list() == (
        gaps["duration_ns"].to_list()
    )
    assert (gaps["end_ns"] - gaps["start_ns"]).to_list() == gaps["duration_ns"].to_list()


def gaps_sum_to_idle(analysis: Analysis) -> None:
    idle = by_device(analysis.accounting, ["idle_ns", *CAUSE_COLUMNS, "gaps"])
    gaps = analysis.gaps.with_columns(pl.lit(1).alias("gaps"))
    assert by_device(gaps, ["duration_ns", *CAUSE_COLUMNS, "gaps"]) == idle


def the_summary_sums_to_each_cause(analysis: Analysis) -> None:
    for cause in CAUSES:
        parts = analysis.gap_summary.filter(pl.col("cause") == cause)
        assert by_device(parts, ["total_ns"]) == by_device(analysis.accounting, [f"{cause}_ns"])


def phases_and_what_is_in_none_sum_to_each_cause(analysis: Analysis) -> None:
    outside = analysis.gap_summary.filter(pl.col("phase").is_in(["", NOT_RECORDED]))
    tops = analysis.phases.filter(pl.col("depth") == 1)
    for cause in CAUSES:
        rest_ns = outside.filter(pl.col("cause") == cause)["total_ns"].sum()
        placed_ns = int(tops[f"{cause}_ns"].sum()) + int(rest_ns)
        assert placed_ns == analysis.accounting[f"{cause}_ns"].sum(), cause


def idle_behind_a_stall_is_in_the_phase_of_its_call(analysis: Analysis) -> None:
    induced = analysis.syncs.filter(pl.col("induced_idle_ns") > 0)
    behind = induced.group_by("phase", "kind").agg(pl.col("induced_idle_ns").sum())
    stalled = analysis.gap_summary.filter(pl.col("cause").is_in(STALLS))
    placed = stalled.group_by("phase", pl.col("cause").cast(pl.String)).agg(
        pl.col("total_ns").sum()
    )
    assert sorted(behind.rows()) == sorted(placed.rows())


def the_histogram_sums_to_idle(analysis: Analysis) -> None:
    accounting = by_device(analysis.accounting, ["idle_ns", "gaps"])
    assert by_device(analysis.gap_histogram, ["idle_ns", "gaps"]) == accounting


def the_histogram_counts_each_gap_under_its_largest_cause(analysis: Analysis) -> None:
    counted = analysis.gap_histogram.group_by("cause").agg(pl.col("gaps").sum())
    assert dict(counted.rows()) == dict(analysis.gaps["cause"].value_counts().rows())


def stalls_induce_what_the_gaps_lay_at_their_door(analysis: Analysis) -> None:
    for kind, column in zip(("sync", "blocking_copy", "alloc"), STALL_COLUMNS, strict=True):
        calls = analysis.syncs.filter(pl.col("kind") == kind)
        assert calls["induced_idle_ns"].sum() == analysis.gaps[column].sum()


def no_call_is_charged_more_on_a_device_than_it_lasted(analysis: Analysis) -> None:
    charges, calls = analysis.timeline.gap_causes.charges, analysis.timeline.events.calls
    device = analysis.timeline.gap_causes.gaps["device_no"].gather(charges["gap"])
    charged = charges.group_by(device.alias("device_no"), "call").agg(pl.col("ns").sum())
    lasted = (calls["end_ns"] - calls["start_ns"]).gather(charged["call"])
    assert (charged["ns"] <= lasted).all()
    assert (charged["ns"] > 0).all()


def no_time_is_negative(analysis: Analysis) -> None:
    for name, of in OF_REPORT.items():
        table = getattr(analysis, name)
        for column in of:
            # an operation that starts before its launch has a negative latency; integrity counts it
            instant = column in ("start_ns", "end_ns") or column.startswith("latency_")
            if column.endswith("_ns") and not instant:
                assert (table[column].drop_nulls() >= 0).all(), f"{name}.{column}"


def no_share_leaves_0_to_100(analysis: Analysis) -> None:
    for name, of in OF_REPORT.items():
        for column in of:
            # launches.starved_pct is launch-caused idle ÷ span, and the idle before a phase's first
            # operation is not in its span
            if column.endswith("_pct") and column != "starved_pct":
                share = getattr(analysis, name)[column].drop_nulls()
                assert share.is_between(0, 100 + 1e-9).all(), f"{name}.{column}"


def gaps_are_in_order_and_do_not_touch(analysis: Analysis) -> None:
    gaps = analysis.gaps
    assert (gaps["duration_ns"] > 0).all()
    after = gaps.select(pl.col("start_ns") > pl.col("end_ns").shift(1).over("device"))
    assert after.to_series().drop_nulls().all()
    assert gaps["device"].is_sorted()


def gaps_lie_inside_the_window(analysis: Analysis) -> None:
    windows = analysis.accounting.select("device", "start_ns", "end_ns")
    gaps = analysis.gaps.join(windows, on="device", suffix="_of_window")
    assert (gaps["start_ns"] > gaps["start_ns_of_window"]).all()
    assert (gaps["end_ns"] < gaps["end_ns_of_window"]).all()


def a_gap_is_named_after_its_largest_part(analysis: Analysis) -> None:
    for row in analysis.gaps.to_dicts():
        largest = max(CAUSES, key=lambda cause: row[f"{cause}_ns"])  # the first of equals
        assert row["cause"] == largest


def queue_time_is_queue_delay_up_to_10_us_and_dependency_beyond(analysis: Analysis) -> None:
    gaps = analysis.gaps
    assert (gaps["queue_delay_ns"] <= 10_000).all()
    assert (
        gaps.filter(pl.col("dependency_ns") > 0)["dependency_ns"].min() is None
        or (gaps.filter(pl.col("dependency_ns") > 0)["dependency_ns"] > 10_000).all()
    )


def an_unexplained_gap_is_all_unknown(analysis: Analysis) -> None:
    unknown = analysis.gaps.filter(pl.col("unknown_ns") > 0)
    assert unknown["unknown_ns"].to_list() == unknown["duration_ns"].to_list()


def every_operation_is_in_one_outermost_phase_or_in_none(analysis: Analysis) -> None:
    outermost = analysis.phases.filter(pl.col("depth") == 1)
    node = analysis.timeline.ops["node"]
    assert outermost["ops"].sum() == len(node) - node.null_count()


def exclusive_kernel_time_sums_to_the_outermost_phases(analysis: Analysis) -> None:
    outermost = analysis.phases.filter(pl.col("depth") == 1)
    assert analysis.phases["exclusive_kernel_ns"].sum() == outermost["kernel_ns"].sum()


def a_phase_says_how_each_of_its_operations_got_there(analysis: Analysis) -> None:
    phases = analysis.phases
    ways = [f"{way}_ops" for way in ATTRIBUTION.categories]
    how = phases.select(pl.sum_horizontal(*ways))
    assert how.to_series().to_list() == phases["ops"].to_list()
    assert (phases["kernels"] <= phases["ops"]).all()
    assert (phases["launches"] <= phases["ops"]).all()


def a_phase_is_busy_for_at_most_what_its_operations_take(analysis: Analysis) -> None:
    phases = analysis.phases
    assert (phases["busy_ns"] <= phases["graph_estimate_ns"] - GRAPH_NODE_NS * phases["ops"]).all()
    assert (phases["exclusive_kernel_ns"] <= phases["kernel_ns"]).all()


def a_call_blocks_for_at_least_as_long_as_a_gpu_was_busy(analysis: Analysis) -> None:
    assert (analysis.syncs["gpu_busy_ns"] <= analysis.syncs["blocked_ns"]).all()


def syncs_are_ranked_by_the_idle_they_induced(analysis: Analysis) -> None:
    assert analysis.syncs["induced_idle_ns"].is_sorted(descending=True)


def kernels_are_those_of_the_accounting(analysis: Analysis) -> None:
    counted = by_device(analysis.kernels, ["count", "total_ns"])
    accounting = analysis.accounting.filter(pl.col("kernels") > 0)
    assert counted == by_device(accounting, ["kernels", "kernel_ns"])
    for _, of_device in analysis.kernels.group_by("device"):
        if sums(of_device, ["total_ns"])["total_ns"]:
            assert of_device.select(pl.col("share_pct").sum()).item() == pytest.approx(100)


def a_copy_is_exposed_for_at_most_as_long_as_it_runs(analysis: Analysis) -> None:
    assert (analysis.copies["exposed_ns"] <= analysis.copies["gpu_ns"]).all()


def exposed_communication_is_that_of_the_accounting(analysis: Analysis) -> None:
    of_accounting = by_device(analysis.accounting, ["comm_exposed_ns", "comm_ns"])
    assert by_device(analysis.comm, ["exposed_ns", "total_ns"]) == of_accounting
    assert analysis.comm["count"].sum() == len(analysis.collectives)
    running = analysis.accounting.filter(pl.col("comm_hidden_pct").is_not_null())
    for device, hidden_pct in running.select("device", "comm_hidden_pct").rows():
        ran = sums(analysis.comm.filter(pl.col("device") == device), ["busy_ns", "exposed_ns"])
        hidden_ns = ran["busy_ns"] - ran["exposed_ns"]
        assert 100 * hidden_ns / ran["busy_ns"] == pytest.approx(hidden_pct)


def steps_follow_one_another(analysis: Analysis) -> None:
    steps = analysis.steps.with_columns(
        pl.col("end_ns").shift(1).over("process", "device").alias("before")
    )
    later = steps.drop_nulls("before")
    assert later["start_ns"].to_list() == later["before"].to_list()
    assert (steps["end_ns"] - steps["start_ns"]).to_list() == steps["duration_ns"].to_list()


def a_starved_window_is_half_launching(analysis: Analysis) -> None:
    starved = analysis.starved
    assert (2 * starved["launch_idle_ns"] >= starved["end_ns"] - starved["start_ns"]).all()
    assert (starved["launch_idle_ns"] <= starved["idle_ns"]).all()
    assert (starved["ops"] >= 8).all()


def the_longest_gaps_are_the_longest_of_the_gaps(analysis: Analysis) -> None:
    longest = analysis.gaps.sort("duration_ns", descending=True)["duration_ns"]
    assert analysis.longest_gaps(5)["duration_ns"].to_list() == longest.head(5).to_list()
    at_least_ns = 20_000
    found = longest.filter(longest >= at_least_ns)
    assert analysis.longest_gaps(5, at_least_ns)["duration_ns"].to_list() == found[:5].to_list()
    assert analysis.count_gaps(at_least_ns) == len(found)


def what_calls_cost_each_device_is_its_stalls_and_sums_to_the_syncs(analysis: Analysis) -> None:
    stalls = [f"{cause}_ns" for cause in STALLS]
    induced = analysis.induced.group_by("device").agg(pl.col("induced_idle_ns").sum())
    lost = analysis.accounting.select("device", pl.sum_horizontal(stalls).alias("lost_ns"))
    both = lost.join(induced, on="device", how="left").fill_null(0)
    assert both["lost_ns"].to_list() == both["induced_idle_ns"].to_list()
    key = ["process", "api", "thread", "start_ns", "phase"]
    costly = analysis.syncs.filter(pl.col("induced_idle_ns") > 0)
    assert_frame_equal(
        costly.group_by(key).agg(pl.col("induced_idle_ns").sum()),
        analysis.induced.group_by(key).agg(pl.col("induced_idle_ns").sum()),
        check_row_order=False,
    )


ALWAYS: Final[tuple[Callable[[Analysis], None], ...]] = (
    the_window_is_the_sum_of_its_parts,
    causes_sum_to_the_gap,
    gaps_sum_to_idle,
    the_summary_sums_to_each_cause,
    phases_and_what_is_in_none_sum_to_each_cause,
    idle_behind_a_stall_is_in_the_phase_of_its_call,
    the_histogram_sums_to_idle,
    the_histogram_counts_each_gap_under_its_largest_cause,
    stalls_induce_what_the_gaps_lay_at_their_door,
    no_call_is_charged_more_on_a_device_than_it_lasted,
    no_time_is_negative,
    no_share_leaves_0_to_100,
    gaps_are_in_order_and_do_not_touch,
    gaps_lie_inside_the_window,
    a_gap_is_named_after_its_largest_part,
    queue_time_is_queue_delay_up_to_10_us_and_dependency_beyond,
    an_unexplained_gap_is_all_unknown,
    every_operation_is_in_one_outermost_phase_or_in_none,
    exclusive_kernel_time_sums_to_the_outermost_phases,
    a_phase_says_how_each_of_its_operations_got_there,
    a_phase_is_busy_for_at_most_what_its_operations_take,
    a_call_blocks_for_at_least_as_long_as_a_gpu_was_busy,
    syncs_are_ranked_by_the_idle_they_induced,
    kernels_are_those_of_the_accounting,
    a_copy_is_exposed_for_at_most_as_long_as_it_runs,
    exposed_communication_is_that_of_the_accounting,
    steps_follow_one_another,
    a_starved_window_is_half_launching,
    the_longest_gaps_are_the_longest_of_the_gaps,
    what_calls_cost_each_device_is_its_stalls_and_sums_to_the_syncs,
)


@pytest.mark.parametrize("holds", ALWAYS, ids=lambda holds: holds.__name__)
@every_report
def test_an_invariant_holds_on_each_real_report(
    name: str, holds: Callable[[Analysis], None]
) -> None:
    holds(analysed(name))


@any_trace
def test_invariants_hold_on_any_trace(model: PlainTrace) -> None:
    analysis = nsysflow.analyze(to_trace(model))
    for holds in ALWAYS:
        holds(analysis)


# --- changes without an effect -------------------------------------------------------------------

TIMED: Final = ("ops", "calls", "ranges", "overhead", "graph_ranges", "running")
"""Frames of a trace that have a start and an end."""


def assert_same(
    some: dict[str, pl.DataFrame], others: dict[str, pl.DataFrame], *, shifted_by: int = 0
) -> None:
    assert set(some) == set(others)
    for name, table in some.items():
        instants = [column for column in ("start_ns", "end_ns") if column in table.columns]
        moved = others[name].with_columns(pl.col(instants) - shifted_by)
        try:
            assert_frame_equal(table, moved, check_exact=False, rel_tol=1e-12)
        except AssertionError as error:
            error.add_note(f"table {name}")
            raise


def shifted(trace: nsysflow.Trace, by_ns: int) -> nsysflow.Trace:
    """The same report with all times `by_ns` later."""
    times = pl.col("start_ns", "end_ns") + by_ns
    return replace(
        trace,
        **{name: getattr(trace, name).with_columns(times) for name in TIMED},
        backtraces=trace.backtraces.with_columns(pl.col("start_ns") + by_ns),
        messages=trace.messages.with_columns(pl.col("start_ns") + by_ns),
        graph_nodes=trace.graph_nodes.with_columns(pl.col("start_ns") + by_ns),
        samples=trace.samples.with_columns(pl.col("time_ns") + by_ns),
        gpu_samples=trace.gpu_samples.with_columns(pl.col("time_ns") + by_ns),
    )


SHIFTS_NS: Final = (1, -1, 7_000_000_001, -(10**12), 1_795_000_000 * 10**9, -4 * 10**18, 4 * 10**18)
"""A nanosecond; minutes; calendar time, as in Kineto traces; half of the range of int64."""


@any_trace
def test_shifting_all_times_moves_instants_and_nothing_else(model: PlainTrace) -> None:
    trace = to_trace(model)
    by_ns = SHIFTS_NS[(len(model.ops) + len(model.calls)) % len(SHIFTS_NS)]
    assert_same(tables_of(trace), tables_of(shifted(trace, by_ns)), shifted_by=by_ns)


@pytest.mark.parametrize("by_ns", SHIFTS_NS)
def test_a_report_on_another_clock_is_the_same_report(by_ns: int) -> None:
    moved = tables_of(shifted(loaded("synthetic-1"), by_ns))
    assert_same(tables_of_report("synthetic-1"), moved, shifted_by=by_ns)


def shuffled(trace: nsysflow.Trace, seed: int) -> nsysflow.Trace:
    """The same rows in another order, including those that `ops.detail` points to."""

    def mixed(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.sample(fraction=1.0, shuffle=True, seed=seed)

    def placed(details: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """The details in another order, and the new place of each."""
        order = mixed(details.with_row_index("was").select("was"))["was"]
        went = pl.Series("went", range(len(order)), dtype=pl.UInt32)
        return details[order], went.gather(order.arg_sort())

    shapes, shape_went = placed(trace.shapes)
    copies, copy_went = placed(trace.copy_details)
    detail = trace.ops["detail"]
    is_kernel = trace.ops["kind"] == "kernel"
    of_kernels = shape_went.gather(detail.set(~is_kernel, None))
    of_copies = copy_went.gather(detail.set(trace.ops["kind"] != "memcpy", None))
    ops = trace.ops.with_columns(of_kernels.zip_with(is_kernel, of_copies).alias("detail"))
    return replace(
        trace,
        ops=mixed(ops),
        shapes=shapes,
        copy_details=copies,
        calls=mixed(trace.calls),
        ranges=mixed(trace.ranges),
        overhead=mixed(trace.overhead),
        threads=mixed(trace.threads),
        devices=mixed(trace.devices),
        diagnostics=mixed(trace.diagnostics),
        frames=mixed(trace.frames),
        gpu_samples=mixed(trace.gpu_samples),
        captures=mixed(trace.captures),
        messages=mixed(trace.messages),
    )


@any_trace
def test_the_order_of_rows_means_nothing(model: PlainTrace) -> None:
    trace = to_trace(model)
    assert_same(tables_of(trace), tables_of(shuffled(trace, len(model.ops))))


@few_reports
def test_the_order_of_a_reports_rows_means_nothing(name: str) -> None:
    assert_same(tables_of_report(name), tables_of(shuffled(loaded(name), 1)))


@few_reports
def test_the_name_of_a_report_is_only_printed(name: str) -> None:
    trace = loaded(name)
    renamed = tables_of(replace(trace, report="another"))
    for table in renamed.values():
        assert set(table["report"].unique()) <= {"another"}
    called = pl.lit(trace.report).alias("report")
    assert_same(tables_of_report(name), {n: t.with_columns(called) for n, t in renamed.items()})


# --- other processes on other GPUs ---------------------------------------------------------------

OF_A_DEVICE: Final = ("accounting", "gaps", "gap_summary", "gap_histogram", "starved", "kernels")
OF_A_PROCESS: Final = ("phases", "syncs", "launches", "copies", "steps")


@any_trace
def test_removing_another_devices_operations_leaves_a_devices_accounting(model: PlainTrace) -> None:
    assert_alone_as_together(to_trace(model))


@pytest.mark.parametrize("name", ["synthetic-1", "synthetic-3", "synthetic-6"])
def test_removing_the_other_gpus_of_a_report_leaves_a_gpus_accounting(name: str) -> None:
    assert_alone_as_together(loaded(name))


def assert_alone_as_together(trace: nsysflow.Trace) -> None:
    columns = ["device", "start_ns", "end_ns", "window_ns", *PARTS, "ops", "kernels", "gaps"]
    borders = ["device", "gap", "start_ns", "end_ns", "duration_ns"]
    together = tables_of(trace, only=("accounting", "gaps"))
    for device in trace.ops["device"].unique():
        here = pl.col("device") == device
        alone = tables_of(replace(trace, ops=trace.ops.filter(here)), only=("accounting", "gaps"))
        for name, kept in (("accounting", columns), ("gaps", borders)):
            assert_frame_equal(alone[name].select(kept), together[name].filter(here).select(kept))


PIDS_ABOVE: Final = 10
DEVICES_ABOVE: Final = 10


Row = TypeVar("Row", Call, Range, Overhead, Thread)


def stranger(model: PlainTrace) -> PlainTrace:
    """The same program again, in other processes on other GPUs."""
    process = PIDS_ABOVE << 24
    thread = process | PIDS_ABOVE  # the tid of a main thread must equal the pid

    def moved(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(
            replace(row, process=row.process + process, thread=row.thread + thread) for row in rows
        )

    ops = tuple(
        replace(op, device=op.device + DEVICES_ABOVE, process=(op.process or 0) + process)
        for op in model.ops
    )
    return PlainTrace(
        ops=ops,
        calls=moved(model.calls),
        ranges=moved(model.ranges),
        overhead=moved(model.overhead),
        threads=moved(model.threads),
    )


def end_of(model: PlainTrace) -> int:
    """The latest end of any row that is not dropped."""
    rows: list[Op | Call | Range | Overhead] = [
        *model.ops,
        *model.calls,
        *model.ranges,
        *model.overhead,
    ]
    ends = [r.end_ns for r in rows if r.end_ns is not None and r.end_ns >= r.start_ns]
    return max(ends, default=0)


def joined(trace: nsysflow.Trace, other: nsysflow.Trace) -> nsysflow.Trace:
    """Both in one report."""
    is_kernel = pl.col("kind") == "kernel"
    offset = pl.when(is_kernel).then(len(trace.shapes)).otherwise(len(trace.copy_details))
    detail = (pl.col("detail") + offset).cast(pl.UInt32)
    more = replace(other, ops=other.ops.with_columns(detail))
    frames = ("ops", "shapes", "copy_details", "calls", "ranges", "overhead", "threads")
    both = {name: pl.concat([getattr(trace, name), getattr(more, name)]) for name in frames}
    return replace(trace, **both)


@any_trace
def test_an_unrelated_process_on_another_gpu_changes_nothing(model: PlainTrace) -> None:
    trace = to_trace(model)
    # both end at the same time, so that the end of the trace does not move
    names = (*OF_A_DEVICE, *OF_A_PROCESS)
    alone = tables_of(trace, only=names)
    other = stranger(replace(model, ranges=model.ranges[::2], calls=model.calls[::-1]))
    later = shifted(to_trace(other), end_of(model) - end_of(other))
    together = tables_of(joined(trace, later), only=names)
    mine = {
        name: table.filter(pl.col("device") < DEVICES_ABOVE)
        for name, table in together.items()
        if name in OF_A_DEVICE
    }
    mine |= {
        name: table.filter(pl.col("process") < PIDS_ABOVE)
        for name, table in together.items()
        if name in OF_A_PROCESS
    }
    assert_same(alone, mine)


# --- what counts as a framework gap --------------------------------------------------------------


@any_trace
def test_a_longer_framework_gap_takes_from_host_and_api_what_it_gives_to_launch(
    model: PlainTrace,
) -> None:
    trace = to_trace(model)
    assert_framework_gaps_move_host_to_launch(trace, (0, 50_000, 400_000))


@pytest.mark.parametrize("name", ["h200-ddp-rank0", "h200-nvtx-domain", "synthetic-2"])
def test_a_longer_framework_gap_moves_host_to_launch_in_a_report(name: str) -> None:
    assert_framework_gaps_move_host_to_launch(loaded(name), (10_000, 50_000, 10_000_000))


def assert_framework_gaps_move_host_to_launch(
    trace: nsysflow.Trace, limits: tuple[int, ...]
) -> None:
    """Check that only `host`, `api` and `launch` change: step 3 takes from their sum."""
    moved = ["host_ns", "api_ns", "launch_ns"]
    fixed = [c for c in CAUSE_COLUMNS if c not in moved]
    places = ["waiting_phase", "host_range"]
    kept = ["device", "start_ns", "end_ns", "duration_ns", *places, *fixed]
    found = [
        tables_of(trace, Options(framework_gap_ns=ns), only=("accounting", "gaps", "syncs"))
        for ns in limits
    ]
    for shorter, longer in pairwise(found):
        for table in ("accounting", "gaps"):
            less, more = shorter[table], longer[table]
            columns = [c for c in kept if c in less.columns]
            assert_frame_equal(less.select(columns), more.select(columns))
            assert (more["host_ns"] <= less["host_ns"]).all()
            assert (more["api_ns"] <= less["api_ns"]).all()
            assert (more["launch_ns"] >= less["launch_ns"]).all()
        assert_frame_equal(shorter["syncs"], longer["syncs"])
