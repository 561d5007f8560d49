"""A narrowed window against the oracle: parts and causes to the ns, on random and real reports."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.base.errors import SelectionError
from nsysflow.runs.analyze import analyze_reports
from tests import tiny
from tests.analyses import (
    CAUSE_COLUMNS,
    EXAMPLES,
    OF_REPORT,
    PARTS,
    SCHEMAS,
    STALL_COLUMNS,
    loaded,
    oracle_of,
    rows_of,
    sums,
    tables_of,
    tables_of_report,
)
from tests.analysis.test_invariants import (
    causes_sum_to_idle,
    the_summary_sums_to_each_cause_as_phases_and_what_is_in_none_do,
)
from tests.exports import process, thread, write_export
from tests.oracle.account_table import accounting, projections
from tests.oracle.accounting import Keep, common, union
from tests.oracle.code import code
from tests.oracle.comm import comm
from tests.oracle.gpu_metrics import gpu_metrics
from tests.oracle.host_stacks import host_stacks, idle_stacks
from tests.oracle.launches import launches, starved
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.phase_table import phases
from tests.oracle.report import Report
from tests.oracle.run import run
from tests.oracle.steps import steps_of
from tests.oracle.strategies import NAMES as RANGE_NAMES
from tests.oracle.strategies import several, traces
from tests.reports import PACKED

COMPARED: Final = ["start_ns", "end_ns", "window_ns", *PARTS, *CAUSE_COLUMNS, "gaps"]


def in_time(report: Report, from_ns: int, to_ns: int) -> Keep:
    """The devices' windows between two instants."""
    return {
        device: union((max(start, from_ns), min(end, to_ns)) for start, end in window)
        for device, window in report.windows.items()
        if window
    }


def in_steps(report: Report, first: int, past: int, name: str | None = None) -> Keep:
    """The steps of all processes, by their number on each device."""
    kept: Keep = {}
    for step in steps_of(report, name):
        if first <= step.index < past:
            kept.setdefault(step.device, []).append((step.start_ns, step.end_ns))
    return kept


def both(report: Report, *keeps: Keep) -> Keep:
    """The part of each device's window that all of them keep."""
    kept = dict(report.windows)
    for device, keep in product(kept, keeps):
        kept[device] = common(kept[device], union(keep.get(device, [])))
    return kept


def starting_in(report: Report, keep: Keep) -> list[int]:
    """The operations that start in the window."""
    return [
        index
        for index, op in enumerate(report.ops)
        if any(start <= op.start_ns < end for start, end in keep.get(op.device, []))
    ]


def assert_agrees_with_the_oracle(
    trace: nsysflow.Trace, report: Report, options: Options, keep: Keep
) -> None:
    """Compare the accounting of a narrowed window, and the tables whose time the window cuts."""
    keep = both(report, keep)
    analysis = nsysflow.analyze(trace, options)
    if not any(keep.values()):
        with pytest.raises(SelectionError):
            _ = analysis.accounting
        return
    columns = ["device", *COMPARED]
    expected = [row for row in accounting(report, keep) if keep[row["device"]]]
    assert rows_of(analysis.accounting.to_dicts(), columns) == rows_of(expected, columns)
    assert_counted(analysis, report, starting_in(report, keep))
    assert_gaps_are_cut(analysis, keep)
    assert analysis.starved.to_dicts() == starved(report, keep)
    numbers = next((range(part.first, part.end or 0) for part in options.steps), None)
    oracle: dict[str, Callable[[Report, Keep], list[dict[str, Any]]]] = {
        "code": code,
        "comm": comm,
        "host_stacks": host_stacks,
        "idle_stacks": idle_stacks,
        "phases": partial(phases, name=options.step, numbers=numbers),
        "launches": launches,
        "gpu_metrics": gpu_metrics,
        "run": partial(run, name=options.step),
    }
    for name, made in oracle.items():
        # the oracle does not compute the launches of a narrowed phase
        columns = [column for column in SCHEMAS[name] if (name, column) != ("phases", "launches")]
        found = rows_of(getattr(analysis, name).to_dicts(), columns)
        assert found == rows_of(made(report, keep), columns), name


def assert_counted(analysis: nsysflow.Analysis, report: Report, started: list[int]) -> None:
    """Check that exactly the operations that start inside are counted."""
    ops = [report.ops[index] for index in started]
    kernels = [op for op in ops if op.kind == "kernel"]
    kernel_ns = sum(op.end_ns - op.start_ns for op in kernels)
    counted = {"ops": len(ops), "kernels": len(kernels), "kernel_ns": kernel_ns}
    assert sums(analysis.accounting, [*counted]) == counted
    of_kernels = {"count": len(kernels), "total_ns": kernel_ns}
    assert sums(analysis.kernels, [*of_kernels]) == of_kernels
    assert analysis.copies["count"].sum() == sum(op.kind == "memcpy" for op in ops)
    outermost = analysis.phases.filter(pl.col("depth") == 1)
    attributed = [index for index in started if report.op_place(index).how is not None]
    assert outermost["ops"].sum() == len(attributed)


def assert_gaps_are_cut(analysis: nsysflow.Analysis, keep: Keep) -> None:
    """Check that every gap lies in the window, and that causes, summaries and calls sum to it."""
    for row in analysis.gaps.to_dicts():
        border = (row["start_ns"], row["end_ns"])
        assert common([border], keep[row["device"]]) == [border]
        assert min(row[cause] for cause in CAUSE_COLUMNS) >= 0
    causes_sum_to_idle(analysis)
    the_summary_sums_to_each_cause_as_phases_and_what_is_in_none_do(analysis)
    assert analysis.gap_histogram["idle_ns"].sum() == analysis.accounting["idle_ns"].sum()
    charged = sums(analysis.accounting, STALL_COLUMNS)
    for kind in ("sync", "blocking_copy", "alloc"):
        calls = analysis.syncs.filter(pl.col("kind") == kind)
        assert calls["induced_idle_ns"].sum() == charged[f"{kind}_ns"]


def a_third(report: Report) -> tuple[int, int]:
    """The starts of the operations at a third and at two thirds."""
    starts = sorted(op.start_ns for op in report.ops)
    return starts[len(starts) // 3], starts[2 * len(starts) // 3]


def inside_an_operation(report: Report, after_ns: int) -> int:
    """The middle of the longest operation that starts at `after_ns` or later."""
    later = [op for op in report.ops if op.start_ns >= after_ns]
    longest = max(later, key=lambda op: op.end_ns - op.start_ns)
    return (longest.start_ns + longest.end_ns) // 2


Selection = tuple[Options, Keep]


def edges(report: Report) -> Selection:
    """Between the middles of two operations."""
    from_ns, to_ns = (inside_an_operation(report, after_ns) for after_ns in a_third(report))
    return Options(from_ns=from_ns, to_ns=to_ns), in_time(report, from_ns, to_ns)


def range_(name: str) -> Callable[[Report], Selection]:
    return lambda report: (Options(range=name), projections(report, name))


def steps_from(first: int, past: int, name: str | None = None) -> Callable[[Report], Selection]:
    options = Options(step=name, steps=(StepPart(first, past),))
    return lambda report: (options, in_steps(report, first, past, name))


def last_device(report: Report) -> Selection:
    device = report.devices[-1]
    return Options(device=device), {device: report.windows[device]}


def everything(report: Report) -> Selection:
    """All narrowings together leave what each of them leaves."""
    from_ns, to_ns = a_third(report)
    (name, *_) = (row.name for row in report.trace.ranges)
    device, parts = report.devices[0], (StepPart(0, 3),)
    options = Options(device=device, from_ns=from_ns, to_ns=to_ns, range=name, steps=parts)
    keeps = {device: report.windows[device]}, in_time(report, from_ns, to_ns)
    return options, both(report, *keeps, projections(report, name), in_steps(report, 0, 3))


@pytest.mark.parametrize(
    ("name", "selection"),
    [
        ("h200-gpu-metrics", edges),  # counters
        ("h200-ddp-rank0", edges),  # communication
        ("h200-hf-trainer", edges),  # samples
        ("synthetic-5", range_("data/load")),
        ("h200-train", steps_from(1, 3, "step_async")),  # beside other loops
        ("synthetic-6", last_device),
        ("synthetic-4", everything),
    ],
)
def test_a_part_of_a_report_agrees(name: str, selection: Callable[[Report], Selection]) -> None:
    assert_agrees_with_the_oracle(loaded(name), oracle_of(name), *selection(oracle_of(name)))


@pytest.mark.parametrize("steps", [(2, 4), (2, 3)])
def test_a_starved_window_ends_where_the_selected_steps_end(steps: tuple[int, int]) -> None:
    # steps 1 to 4 of this report are one starved window, from the first gap of step 1 on
    options = Options(steps=(StepPart(*steps),))
    analysis = nsysflow.analyze(loaded("launch_bound-eager-plain"), options)
    (starved,) = analysis.starved.select("start_ns", "end_ns", "launch_idle_ns").rows()
    assert starved == analysis.accounting.select("start_ns", "end_ns", "launch_ns").row(0)


@pytest.mark.parametrize("name", ["nan_check-sync", "synthetic-3"])
def test_a_window_that_covers_everything_is_no_window(name: str) -> None:
    report, trace = oracle_of(name), loaded(name)
    first, last = min(op.start_ns for op in report.ops), max(op.end_ns for op in report.ops)
    whole = tables_of_report(name)
    # an operation of zero length may lie outside its device's window and is then not selected
    outside = len(report.ops) - len(starting_in(report, report.windows))
    counted = {"kernels", "copies", "comm", "phases", "launches"} if outside else set()
    narrowed = tables_of(trace, Options(from_ns=first - 10**9, to_ns=last + 1))
    # the ledger is of all recorded time, also before the first operation
    for table in set(OF_REPORT) - counted - {"run"}:
        assert_frame_equal(seen(whole, table), seen(narrowed, table))


def seen(tables: dict[str, pl.DataFrame], name: str) -> pl.DataFrame:
    """The rows and columns about the GPU: a window does not start before its first operation."""
    table = tables[name]
    if name == "accounting":
        return table.select("device", *COMPARED)
    if name == "phases":
        return table.filter(pl.col("ops") > 0).drop("host_wall_ns")
    if name == "syncs":
        return table.filter(pl.col("induced_idle_ns") > 0)
    return table.filter(pl.col("launches") > 0) if name == "launches" else table


@pytest.mark.parametrize("second", ["cudaStreamSynchronize", "cudaMalloc"])
def test_of_equal_remainders_the_first_cause_and_call_is_rounded_up(second: str) -> None:
    """Half of a gap behind 3001 ns of a wait and 1001 ns of another call: 1500.5 and 500.5."""
    waits = tiny.call(20, 4_000, "cudaStreamSynchronize"), tiny.call(4_000, 5_001, second)
    launches = tiny.launch(0, 5, 1), tiny.launch(5_001, 5_002, 2)
    kernels = tiny.kernel(10, 1_000, 1), tiny.kernel(5_002, 6_000, 2)
    half = tiny.analysis_of(*waits, *launches, *kernels, options=Options(from_ns=3_001))
    assert half.syncs.sort("start_ns")["induced_idle_ns"].to_list() == [1_501, 500]


def test_one_gpu_of_a_run_is_that_of_the_rank_that_ran_on_it() -> None:
    reports = [PACKED[f"h200-ddp-rank{number}"] for number in (0, 1)]
    results = analyze_reports(reports, Options(device=1), tables=["accounting"])
    assert results.table("accounting").select("report", "device").rows() == [("h200-ddp-rank1", 1)]
    with pytest.raises(SelectionError, match="no device 5 in any of h200-ddp-rank0"):
        analyze_reports(reports, Options(device=5), tables=["accounting"])


def test_a_rank_without_the_requested_range_is_left_out_with_a_note(tmp_path: Path) -> None:
    """Often only one rank evaluates or logs."""
    with_it, without = (
        write_export(tmp_path / f"r{n}.sqlite", kernels=[{}], calls=[{}], nvtx=[{"text": text}])
        for n, text in enumerate(("eval", "train"))
    )
    options = Options(range="eval")
    results = analyze_reports([with_it, without], options, tables=["accounting"])
    assert results.reports == ("r0",)
    left_out = "r1 is left out: no range 'eval' in r1"
    assert Note(NoteKind.LEFT_OUT, left_out) in results.notes
    with pytest.raises(SelectionError, match="no range 'eval' in r1"):
        analyze_reports([without], options, tables=["accounting"])
    with pytest.raises(SelectionError, match="no range 'test' in r0"):
        analyze_reports([with_it, without], Options(range="test"), tables=["accounting"])


def test_a_domain_may_be_one_ranks_alone_but_not_nobodys() -> None:
    ranks = [PACKED["h200-ddp-rank0"], PACKED["h200-train"]]  # only the first one has NCCL
    both = analyze_reports(ranks, Options(domains_added=("NCCL",)), tables=["accounting"])
    assert both.reports == ("h200-ddp-rank0", "h200-train")
    with pytest.raises(SelectionError, match=r"no NVTX domain 'NCLC' in any of .* NCCL"):
        analyze_reports(ranks, Options(domains_added=("NCLC",)), tables=["accounting"])


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(SelectionError, match="--from 2 is later than --to 1"):
        Options(from_ns=2 * 10**9, to_ns=10**9)


def test_steps_asked_for_are_those_of_each_process_that_shares_a_gpu(tmp_path: Path) -> None:
    """One process's window holds the start of the other's next step."""
    kernels, calls, ranges = [], [], []
    for number, step in product(range(2), range(4)):
        pid, at, correlation = 10 + number, 1000 * step + 600 * number, 10 * number + step + 1
        on = {"globalTid": thread(pid, pid), "start": at}
        ranges.append({**on, "end": at + 500, "text": "step"})
        calls.append({**on, "end": at + 10, "correlationId": correlation})
        ran = {"start": at + 50, "end": at + 200, "globalPid": process(pid)}
        kernels.append({**ran, "correlationId": correlation})
    path = write_export(tmp_path / "r.sqlite", kernels=kernels, calls=calls, nvtx=ranges)
    steps = nsysflow.analyze(nsysflow.load(path), Options(steps=(StepPart(1, 2),))).steps
    assert steps.select("process", "step").rows() == [(10, 1), (11, 1)]


def at(report: Report, place: float) -> int:
    """An instant of the report's GPU time, or just outside it."""
    starts = [start for window in report.windows.values() for start, _ in window]
    ends = [end for window in report.windows.values() for _, end in window]
    first, last = min(starts, default=0) - 2, max(ends, default=0) + 2
    return first + round(place * (last - first))


def between(places: tuple[float, float]) -> Callable[[Report], Selection]:
    def selection(report: Report) -> Selection:
        from_ns, to_ns = sorted(at(report, place) for place in places)
        return Options(from_ns=from_ns, to_ns=to_ns), in_time(report, from_ns, to_ns)

    return selection


STRETCHES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(between)
RANGES = st.sampled_from(RANGE_NAMES).map(range_)
STEPS = st.builds(
    lambda first, count, name: steps_from(first, first + count, name),
    *(st.integers(0, 3), st.integers(1, 3), st.sampled_from((None, None, *RANGE_NAMES))),
)


@settings(max_examples=3 * EXAMPLES // 2, suppress_health_check=list(HealthCheck))
@given(several(traces()), st.one_of(STRETCHES, RANGES, STEPS))
def test_any_part_of_any_trace_agrees(
    model: PlainTrace, selection: Callable[[Report], Selection]
) -> None:
    report = Report(model)
    options, keep = selection(report)
    assert_agrees_with_the_oracle(to_trace(model), report, options, keep)


def starved_gpu(device: int, apart_us: int, first: int) -> list[tiny.Row]:
    """Ten short kernels, each launched by a call that takes almost all of the time between two."""
    rows: list[tiny.Row] = []
    for number in range(10):
        at = number * apart_us * 1_000
        until, thread = at + apart_us * 1_000 - 100, tiny.MAIN + device
        rows.append(tiny.launch(at, until, first + number, thread=thread))
        done = at + apart_us * 1_000
        rows.append(tiny.kernel(done, done + 50, first + number, device=device))
    return rows


def test_starved_windows_of_two_gpus_stand_in_one_order() -> None:
    """Found by a random trace: the oracle had them by GPU."""
    model = tiny.plain_of(*starved_gpu(0, 10, 1), *starved_gpu(1, 20, 100))
    report = Report(model)
    selection = between((0.0, 1.0))(report)
    assert_agrees_with_the_oracle(to_trace(model), report, *selection)
    assert nsysflow.analyze(to_trace(model)).starved["device"].to_list() == [1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(device=7), "no device 7 in {}. Devices with GPU work there: 0."),
        (Options(range="evaluate"), "no range 'evaluate' in {}. There are: step, "),
        (Options(range="bckward"), "no range 'bckward' in {}. Did you mean backward? There are "),
        (Options(range="step/forwrd"), "no range 'step/forwrd' in {}. Did you mean step/forward"),
        (Options(domains_added=("NCLC",)), "no NVTX domain 'NCLC' in {}. Did you mean NCCL?"),
        (Options(domains_removed=("mine",)), "no NVTX domain 'mine' in {}. There "),
        (Options(step="epoch", steps=(StepPart(0, 1),)), "no range 'epoch' in {}."),
        (Options(from_ns=10**15), "nothing ran in {} in that time: it spans "),
        (Options(to_ns=-1), "Choose --from and --to inside it."),
    ],
)
def test_an_impossible_selection_names_the_possible_ones(options: Options, message: str) -> None:
    with pytest.raises(SelectionError) as refused:
        _ = nsysflow.analyze(loaded("h200-ddp-rank0"), options).accounting
    assert message.format("h200-ddp-rank0") in str(refused.value)


def test_a_range_that_launched_nothing_is_refused() -> None:
    with pytest.raises(SelectionError, match="launched nothing in the selected part of h200-train"):
        _ = nsysflow.analyze(loaded("h200-train"), Options(range="data")).accounting
