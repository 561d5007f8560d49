"""What holds for every report: sums, bounds, and changes that must have no effect."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.causes import CAUSES, STALLS
from nsysflow.analysis.schema import os_pid
from nsysflow.base.names import NOT_RECORDED
from tests.analyses import (
    CAUSE_COLUMNS,
    OF_REPORT,
    PARTS,
    analysed,
    any_trace,
    by_device,
    few_reports,
    loaded,
    tables_of,
    tables_of_report,
)
from tests.oracle.model import PlainTrace, to_trace

# --- sums and bounds -----------------------------------------------------------------------------

Analysis = nsysflow.Analysis


def the_window_is_the_sum_of_its_parts(analysis: Analysis) -> None:
    for row in analysis.accounting.to_dicts():
        assert row["window_ns"] == sum(row[part] for part in PARTS)
        if row["start_ns"] is not None:
            assert row["window_ns"] == row["end_ns"] - row["start_ns"]


def causes_sum_to_idle(analysis: Analysis) -> None:
    gaps = analysis.gaps.with_columns(pl.lit(1).alias("gaps"), idle_ns="duration_ns")
    assert (gaps["end_ns"] - gaps["start_ns"]).to_list() == gaps["idle_ns"].to_list()
    for table in (gaps, analysis.accounting, analysis.steps, analysis.phases):
        causes = table.select(pl.sum_horizontal(CAUSE_COLUMNS)).to_series()
        assert causes.to_list() == table["idle_ns"].to_list()
    columns = ["idle_ns", *CAUSE_COLUMNS, "gaps"]
    assert by_device(gaps, columns) == by_device(analysis.accounting, columns)


def the_summary_sums_to_each_cause_as_phases_and_what_is_in_none_do(analysis: Analysis) -> None:
    summary = analysis.gap_summary
    in_no_phase = pl.col("phase").is_in(["", NOT_RECORDED])
    tops = analysis.phases.filter(pl.col("depth") == 1)
    for cause in CAUSES:
        parts = summary.filter(pl.col("cause") == cause)
        assert by_device(parts, ["total_ns"]) == by_device(analysis.accounting, [f"{cause}_ns"])
        rest_ns = parts.filter(in_no_phase)["total_ns"].sum()
        placed_ns = int(tops[f"{cause}_ns"].sum()) + int(rest_ns)
        assert placed_ns == analysis.accounting[f"{cause}_ns"].sum(), cause


def no_call_is_charged_more_on_a_device_than_it_lasted(analysis: Analysis) -> None:
    charges, calls = analysis.timeline.gap_causes.charges, analysis.timeline.events.calls
    device = analysis.timeline.gap_causes.gaps["device_no"].gather(charges["gap"])
    charged = charges.group_by(device.alias("device_no"), "call").agg(pl.col("ns").sum())
    lasted = (calls["end_ns"] - calls["start_ns"]).gather(charged["call"])
    assert (charged["ns"] <= lasted).all()
    assert (charged["ns"] > 0).all()


def no_time_is_negative_and_no_share_leaves_0_to_100(analysis: Analysis) -> None:
    for name, of in OF_REPORT.items():
        table = getattr(analysis, name)
        for column in of:
            # an operation that starts before its launch has a negative latency; integrity counts it
            instant = column in ("start_ns", "end_ns", "peak_ns") or column.startswith("latency_")
            if column.endswith("_ns") and not instant:
                assert (table[column].drop_nulls() >= 0).all(), f"{name}.{column}"
            # launches.starved_pct is launch-caused idle ÷ span, and the idle before a phase's first
            # operation is not in its span
            if column.endswith("_pct") and column != "starved_pct":
                share = table[column].drop_nulls()
                assert share.is_between(0, 100 + 1e-9).all(), f"{name}.{column}"


def gaps_are_in_order_apart_from_each_other_and_inside_the_window(analysis: Analysis) -> None:
    windows = analysis.accounting.select("device", "start_ns", "end_ns")
    gaps = analysis.gaps.join(windows, on="device", suffix="_of_window", maintain_order="left")
    assert (gaps["duration_ns"] > 0).all()
    after = gaps.select(pl.col("start_ns") > pl.col("end_ns").shift(1).over("device"))
    assert after.to_series().drop_nulls().all()
    assert gaps["device"].is_sorted()
    assert (gaps["start_ns"] > gaps["start_ns_of_window"]).all()
    assert (gaps["end_ns"] < gaps["end_ns_of_window"]).all()


def every_operation_is_in_one_outermost_phase_or_in_none(analysis: Analysis) -> None:
    outermost = analysis.phases.filter(pl.col("depth") == 1)
    node = analysis.timeline.ops["node"]
    assert outermost["ops"].sum() == len(node) - node.null_count()
    assert analysis.phases["exclusive_kernel_ns"].sum() == outermost["kernel_ns"].sum()


def kernels_and_communication_are_those_of_the_accounting(analysis: Analysis) -> None:
    accounting = analysis.accounting
    counted = by_device(analysis.kernels, ["count", "total_ns"])
    kernels = accounting.filter(pl.col("kernels") > 0)
    assert counted == by_device(kernels, ["kernels", "kernel_ns"])
    if not analysis.code.is_empty():
        assert by_device(analysis.code, ["kernels", "total_ns"]) == counted
    of_accounting = by_device(accounting, ["comm_exposed_ns", "comm_ns"])
    assert by_device(analysis.comm, ["exposed_ns", "total_ns"]) == of_accounting
    assert analysis.comm["count"].sum() == len(analysis.collectives)


STEP: Final = ["process", "device", "step"]


def the_parts_of_each_step_sum_to_what_the_steps_say(analysis: Analysis) -> None:
    rows = analysis.step_parts
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


def the_ledger_sums_to_the_recorded_time(analysis: Analysis) -> None:
    events = analysis.timeline.events
    calls = events.calls.join(events.threads.select("thread_no", "process"), on="thread_no")
    times = pl.concat(
        rows.select("process", "start_ns", "end_ns")
        for rows in (events.ops, calls, events.ranges, events.overhead)
    )
    recorded = (
        times.group_by(os_pid(pl.col("process")).alias("os_pid"))
        .agg(
            (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("recorded_ns"),
            pl.col("process").n_unique().alias("sharers"),
        )
        .filter(pl.col("sharers") == 1)  # two of one number are one row of the sums
        .select("recorded_ns", process="os_pid")
    )
    sums = analysis.run.group_by("process", "device").agg(pl.col("time_ns", "busy_ns").sum())
    whole_busy_ns = (pl.col("window_ns") - pl.col("idle_ns")).alias("whole_busy_ns")
    busy = analysis.accounting.select("device", whole_busy_ns)
    alone = analysis.timeline.events.users.group_by("device_no").len()["len"].max() == 1
    for row in sums.join(recorded, on="process").join(busy, on="device").to_dicts():
        assert row["time_ns"] == row["recorded_ns"]
        assert row["busy_ns"] == row["whole_busy_ns"] or not alone


def the_longest_gaps_are_the_longest_of_the_gaps(analysis: Analysis) -> None:
    longest = analysis.gaps.sort("duration_ns", descending=True)["duration_ns"]
    assert analysis.longest_gaps(5)["duration_ns"].to_list() == longest.head(5).to_list()
    at_least_ns = 20_000
    found = longest.filter(longest >= at_least_ns)
    assert analysis.longest_gaps(5, at_least_ns)["duration_ns"].to_list() == found[:5].to_list()
    assert analysis.count_gaps(at_least_ns) == len(found)


def what_calls_cost_each_device_is_its_stalls_and_sums_to_the_syncs(analysis: Analysis) -> None:
    assert analysis.syncs["induced_idle_ns"].is_sorted(descending=True)
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
    causes_sum_to_idle,
    the_summary_sums_to_each_cause_as_phases_and_what_is_in_none_do,
    no_call_is_charged_more_on_a_device_than_it_lasted,
    no_time_is_negative_and_no_share_leaves_0_to_100,
    gaps_are_in_order_apart_from_each_other_and_inside_the_window,
    every_operation_is_in_one_outermost_phase_or_in_none,
    kernels_and_communication_are_those_of_the_accounting,
    the_parts_of_each_step_sum_to_what_the_steps_say,
    the_ledger_sums_to_the_recorded_time,
    the_longest_gaps_are_the_longest_of_the_gaps,
    what_calls_cost_each_device_is_its_stalls_and_sums_to_the_syncs,
)


def assert_invariants(analysis: Analysis) -> None:
    """Check all of them; random traces are checked beside the oracle, in test_oracle_agrees.py."""
    for holds in ALWAYS:
        holds(analysis)


@few_reports
def test_the_invariants_hold_on_a_real_report(name: str) -> None:
    assert_invariants(analysed(name))


# --- changes without an effect -------------------------------------------------------------------

TIMED: Final = ("ops", "calls", "ranges", "overhead", "graph_ranges", "running", "gradients")
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
        **{
            name: getattr(trace, name).with_columns(pl.col("start_ns") + by_ns)
            for name in ("backtraces", "messages", "graph_nodes")
        },
        loader_times=trace.loader_times.with_columns(
            pl.col("start_ns", "fetched_ns", "end_ns") + by_ns
        ),
        **{
            name: getattr(trace, name).with_columns(pl.col("time_ns") + by_ns)
            for name in (
                *("samples", "gpu_samples", "gpu_states", "gpu_traffic", "thread_cpu"),
                "process_cpu",
            )
        },
    )


SHIFTS_NS: Final = (1, -1, 7_000_000_001, -(10**12), 1_795_000_000 * 10**9, -4 * 10**18, 4 * 10**18)
"""A nanosecond; minutes; calendar time, as in Kineto traces; half of the range of int64."""


ANY_ORDER: Final = (
    *("calls", "ranges", "overhead", "threads", "devices", "diagnostics", "frames", "gpu_samples"),
    *(
        "gpu_states",
        "gpu_traffic",
        "thread_cpu",
        "process_cpu",
        "loader_times",
        "captures",
        "messages",
    ),
)
"""Frames to whose rows nothing points."""


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
    others: dict[str, Any] = {name: mixed(getattr(trace, name)) for name in ANY_ORDER}
    return replace(
        trace,
        ops=mixed(ops),
        shapes=shapes,
        copy_details=copies,
        **others,
    )


@any_trace
def test_neither_the_clock_nor_the_order_of_rows_means_anything(model: PlainTrace) -> None:
    trace = to_trace(model)
    by_ns = SHIFTS_NS[(len(model.ops) + len(model.calls)) % len(SHIFTS_NS)]
    moved = shuffled(shifted(trace, by_ns), len(model.ops))
    assert_same(tables_of(trace), tables_of(moved), shifted_by=by_ns)


ELSEWHERE: Final = {
    "h200-ddp-rank0": SHIFTS_NS[-3],  # communication
    "h200-gpu-metrics": SHIFTS_NS[-2],  # counters
    "h200-graph-level": SHIFTS_NS[2],  # graphs
    "h200-hf-trainer": SHIFTS_NS[-1],  # samples
    "nan_check-sync": SHIFTS_NS[3],  # backtraces
}
"""Reports that differ in what is moved, and by how much."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_report_with_another_name_clock_and_order_is_the_same(name: str) -> None:
    trace, by_ns = loaded(name), ELSEWHERE[name]
    moved = tables_of(replace(shuffled(shifted(trace, by_ns), 1), report="another"))
    for table in moved.values():
        assert set(table["report"].unique()) <= {"another"}
    called = pl.lit(name).alias("report")
    same = {of: table.with_columns(called) for of, table in moved.items()}
    assert_same(tables_of_report(name), same, shifted_by=by_ns)
