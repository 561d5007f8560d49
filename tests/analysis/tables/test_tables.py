"""Borders and ties of the rules that tables are made by, as pictures; figures of real runs; MFU."""

from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.schema import FLOPS
from nsysflow.analysis.tables.mfu import MFU
from nsysflow.base.errors import FlopsError
from nsysflow.report.blocks.accounting import mfu_sentences
from nsysflow.report.results import Results
from tests.agreement import Picture, assert_pictures_agree
from tests.analyses import analysed, loaded, oracle_of, rows_of
from tests.oracle.accounting import Keep
from tests.oracle.mfu import mfu
from tests.oracle.model import Flops, GpuSample, Message, PlainTrace, Range, to_trace
from tests.oracle.report import Report
from tests.oracle.steps import steps_of
from tests.tiny import MAIN, PROCESS, Row, analysis_of, call, copy, kernel, launch, opened, plain_of

US: Final = 1_000
MS: Final = 1_000 * US
NCCL: Final = "ncclDevKernel_AllReduce"
SYNC: Final = "cudaStreamSynchronize"
COPY: Final = "cudaMemcpyAsync"


def labelled(*more: Row, source: str = "pinned", returned: int = 10) -> list[Row]:
    """A copy to the device from 20 to 100, whose call returns at `returned`."""
    return [launch(0, returned, 1, name=COPY), copy(20, 100, 1, "HtoD", source, "device"), *more]


COPIES: dict[str, Picture] = {
    "its call returns as it ends": labelled(returned=100),
    "its call returns before": labelled(returned=99, source="pageable"),
    "a sync 50 us after its call": labelled(call(10 + 50 * US, 60 * US, SYNC)),
    "a sync later than that": labelled(call(11 + 50 * US, 60 * US, SYNC)),
    "another launch before the sync": labelled(launch(US, 2 * US, 2), call(9 * US, 20 * US, SYNC)),
    "another call before the sync": labelled(
        call(US, 2 * US, "cudaEventQuery"), call(9 * US, 20 * US, SYNC)
    ),
}


def paced(count: int, *more: Row) -> list[Row]:
    """Launches of 5 us every 10 us, each directly followed by its kernel of 1 us."""
    starts = [(number, 10 * US * number) for number in range(count)]
    rows: list[Row] = [launch(at, at + 5 * US, number + 1) for number, at in starts]
    return [*rows, *(kernel(at + 5 * US, at + 6 * US, n + 1) for n, at in starts), *more]


LATER = launch(MS, MS + 5 * US, 99), kernel(MS + 5 * US, MS + 6 * US, 99)
LONG = launch(120 * US, 125 * US, 99)

STARVED: dict[str, Picture] = {
    "too few launches": paced(8),
    "just enough of them": paced(9),
    "a pause ends a window": paced(12, *LATER),
    "so does an operation of over 50 us": paced(12, LONG, kernel(125 * US, 175 * US + 1, 99)),
    "one of 50 us does not": paced(12, LONG, kernel(125 * US, 175 * US, 99)),
}


def apart(*pauses_ns: int) -> list[Row]:
    """Kernels of 1 us with these pauses between them, launched when the one before has ended."""
    rows: list[Row] = [launch(0, 10, 1), kernel(10, US, 1)]
    end = US
    for number, pause_ns in enumerate(pauses_ns, start=2):
        start = end + pause_ns
        rows += [launch(start - 10, start, number), kernel(start, start + US, number)]
        end = start + US
    return rows


LENGTHS: dict[str, Picture] = {
    "lengths on the borders of the histogram": apart(1_999, 2_000, 4_999, 5_000, 100 * US, MS)
}

SOUND: Final = (launch(0, 10, 1), kernel(20, 30, 1), launch(80, 90, 2), kernel(95, 99, 2))


def nodes(*spans: tuple[int, int, int]) -> list[Row]:
    """Kernels of one node of a graph: start, end and launch. Launch n begins at 20 n."""
    launches = [launch(20 * n, 20 * n + 5, n) for n in sorted({n for _, _, n in spans})]
    return [*launches, *(kernel(start, end, n, node=1) for start, end, n in spans)]


FAULTS: dict[str, tuple[Row, ...]] = {
    "kernels before their launch": (launch(41, 45, 9), kernel(40, 50, 9)),
    "operations without a launch": (kernel(40, 50, None),),
    "negative durations": (launch(35, 36, 9), kernel(50, 40, 9), opened(9, 8, "odd")),
    "launches without an operation": (launch(40, 50, 9),),
    "overlapping kernels on one stream": (launch(21, 22, 9), kernel(25, 35, 9)),
    "unattributed operations": (opened(0, 50, "step"),),
}

INTEGRITY: dict[str, Picture] = {
    **{name: (*SOUND, *fault) for name, fault in FAULTS.items()},
    "a launch into a graph that is captured": [
        *(*SOUND, call(35, 36, "cudaStreamBeginCapture"), launch(40, 50, 9)),
        call(60, 61, "cudaStreamEndCapture"),
    ],
    "a kernel as long as its call": [*SOUND, launch(100, 110, 3), kernel(120, 130, 3)],
    "a graph's kernel up to another launch's": nodes((50, 60, 1), (60, 70, 2)),
    "a graph's kernel into another launch's": nodes((50, 61, 1), (60, 70, 2)),
    "a graph's kernels that overlap": nodes((50, 61, 1), (60, 70, 1)),
    "a graph's kernel of 100 times its median": nodes((30, 40, 1), (50, 60, 2), (70, 1_070, 3)),
    "one that lasts longer": nodes((30, 40, 1), (50, 60, 2), (70, 1_071, 3)),
}


def comm_in(*ranges: tuple[int, int, str]) -> PlainTrace:
    """A collective launched at 6, in NCCL's ranges, each with a message."""
    rows = tuple(
        Range(start, end, "push_pop", PROCESS, MAIN, "NCCL", name, row)
        for row, (start, end, name) in enumerate(ranges)
    )
    messages = tuple(Message(row.start_ns, MAIN, row.row + 1, None) for row in rows)
    plain = plain_of(launch(6, 8, 1), kernel(10, 20, 1, name=NCCL))
    return replace(plain, ranges=rows, messages=messages)


GROUP, REDUCE = "ncclGroup", "ncclAllReduce"

COMM: dict[str, Picture] = {
    "nested ranges that end together": comm_in((2, 9, GROUP), (4, 9, REDUCE)),
    "nested ranges that start together": comm_in((4, 9, GROUP), (4, 7, REDUCE)),
    "a range that ends as the launch begins": comm_in((2, 6, "ncclBroadcast")),
}


def stepped(*rows: Row, starts: tuple[int, ...] = (5, 100, 200)) -> list[Row]:
    """Steps, each with a kernel of 1 ns at its start, launched 2 ns before; the last ends there."""
    steps: list[Row] = []
    for number, start in enumerate(starts, start=101):
        steps += [opened(start - 3, start - 1, "step"), launch(start - 2, start - 1, number)]
        steps.append(kernel(start, start + 1, number, name="first"))
    return [*steps, *rows]


def ran(start: int, end: int, name: str = "k", number: int | None = None) -> Row:
    return kernel(start, end, number, name=name)


def two_processes(ours: PlainTrace, theirs: PlainTrace) -> PlainTrace:
    """Both on one GPU."""
    process: dict[str, Any] = {"process": 2 * PROCESS}
    of_thread = {**process, "thread": 2 * PROCESS | 1}
    return replace(
        ours,
        ops=(*ours.ops, *(replace(row, **process) for row in theirs.ops)),
        calls=(*ours.calls, *(replace(row, **of_thread) for row in theirs.calls)),
        ranges=(*ours.ranges, *(replace(row, **of_thread) for row in theirs.ranges)),
    )


STEP_PARTS: dict[str, Picture] = {
    "compute hides communication and both hide copies": stepped(
        *(ran(10, 20), ran(15, 40, NCCL), copy(35, 50, None, "HtoD", "pinned", "device"))
    ),
    "two processes with steps of their own": two_processes(
        plain_of(*stepped(ran(50, 60, "a"))), plain_of(*stepped(starts=(30, 130, 230)))
    ),
    "paths that are written alike": stepped(
        *(opened(10, 20, "a/b"), opened(30, 40, "a"), opened(31, 39, "b")),
        *(launch(12, 13, 1), launch(33, 34, 2), ran(15, 25, "k", 1), ran(35, 45, "k", 2)),
    ),
    "a last step of one range that never ended": [
        row
        for n, at in enumerate((0, 1_000, 2_000, 3_000), start=1)
        for row in (
            opened(at, None if at == 3_000 else at + 900, "step"),
            launch(at + 50, at + 60, n),
            kernel(at + 100, at + 400, n),
        )
    ],
}

Counters = dict[str, int]


def counted(
    *spans: tuple[int, int, str], samples: dict[int, Counters], active: int = 90
) -> PlainTrace:
    """Kernels of these us in a range `step`, and the counters of samples by their us."""
    rows: list[Row] = [opened(0, 100, "step")]
    for number, (start, end, name) in enumerate(spans, start=1):
        rows += [launch(number, number + 1, number), ran(start * US, end * US, name, number)]
    sampled = [
        GpuSample(at * US, 0, **{"sm_active_pct": active, **values})
        for at, values in samples.items()
    ]
    return replace(plain_of(*rows), gpu_samples=tuple(sampled))


BUSY = (0, 100, "gemm"), (100, 200, "gemm")
NONE: Counters = {}


def bound_by(**counters: int) -> PlainTrace:
    """Two samples of busy time with these counters above 10 %."""
    values = {"sm_issue_pct": 10, "dram_read_pct": 10, "dram_write_pct": 10} | counters
    return counted(*BUSY, samples={0: values, 100: values})


GPU_METRICS: dict[str, Picture] = {
    "no rate over 100": counted(
        (0, 1, "gemm"), (100, 101, "gemm"), samples={0: NONE, 100: NONE}, active=2
    ),
    "two classes of kernels": counted(
        (0, 100, "gemm"), (100, 200, "add_kernel"), samples={0: NONE, 100: {"sm_active_pct": 10}}
    ),
    "a phase with pauses": counted(
        *((0, 30, "gemm"), (100, 130, "gemm")),
        samples={at: {"sm_issue_pct": 10, "dram_read_pct": 10} for at in (0, 100)},
        active=25,
    ),
    "latency": bound_by(),
    "memory": bound_by(dram_read_pct=50),
    "half of memory's bandwidth": bound_by(dram_read_pct=40),
    "tensor cores before memory": bound_by(tensor_active_pct=60, dram_read_pct=90),
    "instructions": bound_by(sm_issue_pct=60),
}

EVERY: Final = {
    "copies": COPIES,
    "starved": STARVED,
    "lengths": LENGTHS,
    "integrity": INTEGRITY,
    "comm": COMM,
    "step_parts": STEP_PARTS,
    "gpu_metrics": GPU_METRICS,
}


@pytest.mark.parametrize("table", EVERY)
def test_pictures_of_a_table_agree_with_the_oracle(table: str) -> None:
    assert_pictures_agree(EVERY[table])


def checks(*rows: Row) -> dict[str, int]:
    return dict(analysis_of(*rows).integrity.select("check", "count").rows())


def test_a_fault_is_counted_by_its_check_and_a_sound_report_has_none() -> None:
    assert checks(*SOUND) == {}
    for check, fault in FAULTS.items():
        assert checks(*SOUND, *fault)[check] > 0


def test_a_collective_that_runs_into_a_window_takes_time_there_and_is_not_counted() -> None:
    trace = to_trace(comm_in((2, 9, REDUCE)))
    (row,) = nsysflow.analyze(trace, Options(from_ns=13, to_ns=18)).comm.to_dicts()
    assert (row["count"], row["bytes"], row["busy_ns"], row["exposed_ns"]) == (0, None, 5, 5)


@pytest.mark.parametrize("name", ["h200-train", "nan_check-sync"])
def test_selected_steps_have_the_rows_that_they_have_in_the_whole_report(name: str) -> None:
    selected = nsysflow.analyze(loaded(name), Options(steps=(StepPart(1, 2),))).step_parts
    assert selected.equals(analysed(name).step_parts.filter(step=1))
    assert not selected.is_empty()


def test_a_kernel_of_several_short_names_has_the_smallest() -> None:
    other = replace(kernel(20, 30, None), short_name="j")
    parts = analysis_of(*stepped(ran(10, 20), other)).step_parts
    assert parts.filter(step=0, name="k")["short_name"].to_list() == ["j"]


def test_a_gpu_that_is_not_selected_has_no_rows() -> None:
    rows = stepped(kernel(10, 20, None, device=1))
    for device in (0, 1):
        analysis = analysis_of(*rows, options=Options(device=device))
        assert set(analysis.step_parts["device"]) == {device}


# --- MFU ------------------------------------------------------------------------------------------

DDP = "h200-ddp-messages"
LAYERS, PRODUCT = 10, 2 * 4096**3
"""`ddp` at its usual size: forward has this many products of 4096 x 4096."""


def declaring(name: str, phases: dict[str, int], unit: str = "bf16") -> nsysflow.Trace:
    """A real report whose processes declare the FLOPs of a step."""
    trace = loaded(name)
    processes = trace.ops["process"].drop_nulls().unique().sort()
    rows = [(process, *each, unit) for process in processes for each in phases.items()]
    return replace(trace, flops=pl.DataFrame(rows, schema=FLOPS, orient="row"))


@pytest.mark.parametrize("name", [DDP, "synthetic-1"])
def test_rates_of_a_real_report_and_of_its_parts_are_the_oracles(name: str) -> None:
    """Of all, of the steps that start in a window, and of each GPU."""
    trace = declaring(name, {"forward": 10**6, "backward": 2 * 10**6, "aten::mm": 10**5})
    given = tuple(Flops(*row) for row in trace.flops.rows())
    report = Report(replace(oracle_of(name).trace, flops=given))
    starts = sorted(step.start_ns for step in steps_of(report))
    # from within the first step to just after the last one's start: both are cut
    cut = starts[0] + 1, starts[-1] + 1000
    parts: list[tuple[Options, Keep | None]] = [
        (Options(), None),
        (Options(from_ns=cut[0], to_ns=cut[1]), {device: [cut] for device in report.devices}),
        *((Options(device=on), {on: report.windows[on]}) for on in report.devices),
    ]
    for options, keep in parts:
        found = nsysflow.analyze(trace, options).mfu
        assert rows_of(found.to_dicts(), [*MFU]) == rows_of(mfu(report, keep), [*MFU]), options
    assert found.height > 0


def test_a_real_step_runs_at_the_rate_computed_by_hand() -> None:
    flops = (3 * LAYERS - 1) * PRODUCT
    (row,) = nsysflow.analyze(loaded(DDP), Options(flops_per_step=flops)).mfu.to_dicts()
    steps = analysed(DDP).steps.filter("steady")
    seconds = float(steps.select(pl.col("duration_ns").median()).item()) / 1e9
    assert row["flops_per_s"] == pytest.approx(flops / seconds, rel=1e-6)
    assert row["mfu_pct"] == pytest.approx(100 * flops / seconds / 989.4e12, rel=1e-6)
    assert (row["unit"], row["path"], row["steps"]) == ("bf16", "step", steps.height)


def test_a_rate_above_the_peak_is_refused_with_the_options_to_check() -> None:
    options = Options(flops_per_step=3 * LAYERS * PRODUCT, flops_dtype="float32")
    with pytest.raises(
        FlopsError, match="% of the dense float32 peak of an NVIDIA H200"
    ) as refused:
        _ = nsysflow.analyze(loaded(DDP), options).mfu
    assert "--flops-per-step F" in str(refused.value)
    assert "--flops-dtype tf32" in str(refused.value)


def test_the_command_line_overrides_what_the_program_declares() -> None:
    trace = declaring(DDP, {"forward": 10**9})
    typed = nsysflow.analyze(trace, Options(flops_per_step=5e9)).mfu
    assert typed.select("path", "flops", "unit").rows() == [("step", 5 * 10**9, "bf16")]
    other = nsysflow.analyze(trace, Options(flops_dtype="fp8")).mfu
    assert other["unit"].unique().to_list() == ["fp8"]
    assert other["flops"].to_list() == [10**9, 10**9]


EAGER: Final = "launch_bound-eager"


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        (EAGER, Options(), "no step was found"),
        ("h200-ddp-rank0", Options(range="backward"), "no step starts in the selected part"),
        ("h200-train", Options(step="forward"), "by its whole path, e.g. --step warmup/forward"),
    ],
)
def test_the_page_says_why_steps_have_no_rate(name: str, options: Options, reason: str) -> None:
    trace = loaded(name)
    if name == EAGER:  # its 500 equal launches tell no step from another
        trace = replace(trace, ranges=trace.ranges.clear())
    analysis = nsysflow.analyze(trace, replace(options, flops_per_step=1e9))
    assert analysis.mfu.is_empty()
    assert reason in " ".join(mfu_sentences(Results([analysis])))
