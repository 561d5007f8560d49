"""Kernels that leave much of the chip idle.

* `small-grid`: kernels with too few blocks for the chip, or too few threads.
* `idle-chip`: kernels run, and the counters say that the chip does little.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import mul
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.gpus import threads_held, waves
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES, TINY_NS
from nsysflow.analysis.findings.own_kernels import is_triton, own_kernels
from nsysflow.analysis.findings.rules.loss import strided_softmaxes
from nsysflow.analysis.findings.rules.managed_memory import pages_move
from nsysflow.analysis.frames.intervals import Axis, on_axis
from nsysflow.analysis.schema import BLOCK, blocks_of_grid
from nsysflow.analysis.tables.gpu_metrics import BUSY_PCT
from nsysflow.base.units import number, percent

MOST_WAVES: Final = 0.5
"""Below half a block per SM, twice the blocks still run at once."""

FEW_WAVES: Final = 0.05
FEW_NS: Final = 1_000_000
"""A kernel of a millisecond on so few blocks is a program's own that was not made parallel: one
thread took 6.25 s for what 262,144 blocks did in 109 ms (A100, public reports of a CUDA course)."""

FEW_THREADS: Final = 0.1
THIN_NS: Final = 100_000
"""An own kernel of 100 us with a tenth of the threads that the GPU holds is too small, however many
SMs have a block of it. One that had 6 % of them took 15.9 of 53 ms a step; with its rows split over
the grid the step took 14.9 ms less (an H200, 2026-11-30). Tiles of tensor cores need no more
threads: cuBLAS's and cuDNN's own have 6 to 19 %."""

ALONE: Final = 1.5
"""With so many kernels at once in the mean, others fill the chip meanwhile."""

SMALL_PCT: Final = 5.0
"""Kernels with less of the kernel time are not worth it (verdict §4)."""

CHANGE_OF_GRID: Final = (
    "more work per kernel: a larger batch, or the tensors of several calls stacked into one",
    "matmul with few rows and a long inner dimension: split-K, torch.compile(mode='max-autotune')",
    "a kernel of your own: more, smaller blocks; or run independent ones on two streams",
)

CHANGE_OF_FEW: Final = (
    "a thread for each element: blockIdx.x * blockDim.x + threadIdx.x instead of a loop over all,"
    " and (n + 255) / 256 blocks of 256 threads",
    "where threads depend on each other: blocks that each reduce or scan a part, as CUB's do",
)

CHANGE_OF_TRITON: Final = (
    "more programs: split the rows, or the reduction, over the grid, and add up the parts"
    " (tl.atomic_add, or a second kernel)",
    "tiles that read whole lines of memory: neighbouring columns in one program, not one in each",
    "a recurrence: in chunks, whose states a second kernel combines",
)

CHANGE_OF_FEW_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "openacc": (
        "acc parallel loop on the loop itself: acc parallel alone, and acc serial, run it on one"
        " thread",
        "independent, or reduction(+:sum), where -Minfo=accel says that the loop is sequential",
        "collapse(2) on nested loops, of which one alone has few passes",
    ),
    "openmp": (
        "target teams distribute parallel for on the loop itself: target alone runs it on one"
        " thread",
        "reduction(+:sum) where passes add to one value; -Minfo=mp says what became of each loop",
        "collapse(2) on nested loops, of which one alone has few passes",
    ),
}
"""The compiler makes the kernels of these programs, from directives."""


def small_grid(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels of 5 us or more whose blocks leave more than half of the SMs empty; and kernels of
    the program's own, of 100 us or more, with a tenth of the threads that the GPU holds, or fewer.

    Twice the blocks would take half the time; a block on each SM, where a long kernel has hardly
    any, as much less, and so would all threads of one's own. Where grids were not loaded it stays
    quiet. Those of `strided-softmax` are not counted: that says how to give them more threads.
    """
    kernels = subject.kernels.with_row_index("row")
    kernels = kernels.with_columns(threads_held(subject, kernels), too_small(subject))
    thin = pl.col("row").is_in(_thin(subject, kernels)["row"].implode()).alias("thin")
    strided = pl.col("op").is_in(strided_softmaxes(subject)["op"].implode())
    small = kernels.with_columns(thin).filter(pl.col("thin") | pl.col("small"), ~strided)
    small = small.with_columns(waves(subject, small).alias("waves"), *_launched(subject, small))
    few = (pl.col("waves") <= FEW_WAVES) & (pl.col("ns") >= FEW_NS)
    left = pl.when(few).then("waves").when("thin").then("held").otherwise(0.5)
    gain_ns = (pl.col("ns") * (1 - left)).cast(pl.Int64).alias("gain_ns")
    rows = small.with_columns(gain_ns, (few | pl.col("thin")).alias("few"))
    for own in (True, False):  # each has a mend of its own
        yield from _small(subject, rows.filter(pl.col("thin") == own))


def _small(subject: JudgedReport, rows: pl.DataFrame) -> Iterator[Finding]:
    """The finding that these kernels are too small."""
    share = share_of_kernels(subject, rows)
    if share < SMALL_PCT:
        return
    launch = ["name", "short_name", "waves", "blocks", "threads", "few", "thin", "held"]
    launches = rows.group_by(launch).agg(pl.col("ns").sum()).sort("ns", "waves", "threads")
    most = launches.row(-1, named=True)
    title = f"kernels too small for the chip: {percent(share)} of kernel time"
    change: tuple[str, ...] = CHANGE_OF_GRID
    if most["few"]:
        title = _title_of_few(launches, most, int(subject.kernels["ns"].sum()))
        directives = (CHANGE_OF_FEW_BY.get(name) for name in subject.frameworks.names)
        change = next((each for each in directives if each), CHANGE_OF_FEW)
        if most["thin"] and is_triton(subject, rows, str(most["short_name"])):
            change = CHANGE_OF_TRITON
    finding = kernel_finding(
        subject,
        rows,
        rule="small-grid",
        title=title,
        change=change,
        evidence=(
            in_words(subject, rows),
            f"the one with most time has {most['waves']:.2f} blocks per SM{_held(most)}",
        ),
    )
    if pages_move(subject):  # they do so at fixed times of a replay
        most_ns = min(finding.size_ns, subject.step_ns)
        finding = replace(finding, changes=None, at_most_ns=most_ns)
    yield replace(finding, fits=most["few"], takes="lines" if most["thin"] else None)


def _held(launch: dict[str, Any]) -> str:
    """`, 6.1 % of the threads that the GPU holds`, where that is why the kernel is too small."""
    share = percent(100 * launch["held"]) if launch["thin"] else ""
    return f", {share} of the threads that the GPU holds" if share else ""


def _thin(subject: JudgedReport, kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels of the program's own that last, have few of the threads that are `held`, and run
    without others beside them. Products, convolutions and attention are not asked for threads."""
    few = (pl.col("held") <= FEW_THREADS) & (pl.col("ns") >= THIN_NS)
    lasting = kernels.filter(few & ~pl.col("class").is_in([*MATRIX_CLASSES, "comm"]))
    own = own_kernels(subject, lasting)
    return own if own.is_empty() else own.filter(_at_once(kernels, own) < ALONE)


def _at_once(kernels: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """How many kernels of its GPU run at once during each of these rows, in the mean. Those of
    communication take few SMs, and do not count."""
    every, own = (
        frame.select("device", "start_ns", (pl.col("start_ns") + pl.col("ns")).alias("end_ns"))
        for frame in (kernels.filter(pl.col("class") != "comm"), rows)
    )
    first_ns, last_ns = every.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    axis = Axis.over(first_ns, last_ns, margin_ns=0)
    begun, mine = on_axis(every, axis, "device"), on_axis(own, axis, "device")
    until, since = (
        _passed(begun["start"], places) - _passed(begun["end"], places)
        for places in (mine["end"], mine["start"])
    )
    return (until - since) / (mine["end"] - mine["start"])


def _passed(places: pl.Series, until: pl.Series) -> pl.Series:
    """The time since each of `places` that lies before, summed up for each of `until`."""
    places = places.sort()
    before = places.search_sorted(until)
    sums = pl.concat([pl.Series([0]), places.cum_sum()])
    return until * before.cast(pl.Int64) - sums[before]


def _title_of_few(launches: pl.DataFrame, most: dict[str, Any], whole_ns: int) -> str:
    """`add and 2 more run as 1 block of 1 thread: 91 % of kernel time`: the kernels that run so."""
    alike = launches.filter(few=True, blocks=most["blocks"]).filter(
        pl.col("threads").eq_missing(most["threads"])
    )
    others = alike["name"].n_unique() - 1
    run = f"and {number(others)} more run" if others else "runs"
    share = percent(100 * int(alike["ns"].sum()) / whole_ns)
    return f"{most['short_name']} {run} as {_in_blocks(most)}: {share} of kernel time"


def _launched(subject: JudgedReport, kernels: pl.DataFrame) -> list[pl.Series]:
    """The `blocks` of each kernel, and the `threads` of a block."""
    grids = subject.grids.select(pl.all().gather(kernels["detail"]))
    threads = pl.reduce(mul, [pl.col(axis) for axis in BLOCK]).alias("threads")
    return grids.select(blocks_of_grid().alias("blocks"), threads).get_columns()


def _in_blocks(launch: dict[str, Any]) -> str:
    """`1 block of 256 threads`; without the threads where they were not recorded."""
    blocks, threads = launch["blocks"], launch["threads"]
    of_threads = f" of {_counted(threads, 'thread')}" if threads else ""
    return f"{_counted(blocks, 'block')}{of_threads}"


def _counted(count: int, what: str) -> str:
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


def too_small(subject: JudgedReport) -> pl.Series:
    """Whether each kernel is one of 5 us or more whose blocks leave more than half of the SMs
    empty; none is where that is not known."""
    sparse = pl.lit(waves(subject, subject.kernels) < MOST_WAVES).fill_null(value=False)
    lasting = (pl.col("ns") >= TINY_NS) & (pl.col("class") != "comm")
    return subject.kernels.select((lasting & sparse).alias("small")).to_series()


LOW_PCT: Final = 30.0
"""Half of `BUSY_PCT`, from which on a counter limits the work. Kernels that move whole tensors
were between 30 and 60 % of DRAM in all our reports."""

SHARE_PCT: Final = 5.0
"""A class with less of the kernel time is not worth it."""

CHANGE_OF_IDLE_CHIP: Final = (
    "more work per kernel: a larger batch, larger tiles, fewer and fused kernels",
    "run independent kernels on two streams, so that they share the chip",
    "see in Nsight Compute what such a kernel waits for: ncu --set full",
)


def idle_chip(subject: JudgedReport) -> Iterator[Finding]:
    """A class of kernels during which neither SMs, tensor cores nor DRAM reach 30 %."""
    issued = pl.max_horizontal("sm_issue_pct", "tensor_active_pct")
    moved = pl.sum_horizontal("dram_read_pct", "dram_write_pct")
    low = subject.tables.gpu_metrics.filter(
        pl.col("group") == "class", pl.col("bound") == "latency", pl.col("name") != "comm"
    ).with_columns(issued.alias("issued"), moved.alias("moved"))
    low = low.filter(pl.max_horizontal("issued", "moved") < LOW_PCT)
    whole = int(subject.kernels["ns"].sum())
    for row in low.iter_rows(named=True):
        rows = _of_class(subject, row)
        if int(rows["ns"].sum()) * 100 >= SHARE_PCT * whole:
            yield kernel_finding(
                subject,
                rows,
                rule="idle-chip",
                title=f"the chip is mostly idle while {row['name']} kernels run",
                change=CHANGE_OF_IDLE_CHIP,
                evidence=(
                    in_words(subject, rows),
                    f"while they run: SMs issue {percent(row['sm_issue_pct'])}, tensor cores"
                    f" {percent(row['tensor_active_pct'])}, DRAM {percent(row['moved'])} of the"
                    " maximum",
                ),
                table="gpu_metrics",
            )


def _of_class(subject: JudgedReport, row: dict[str, Any]) -> pl.DataFrame:
    """Its kernels. With the busiest counter at `BUSY_PCT` they would take as much less time."""
    reached = max(row["issued"], row["moved"]) / BUSY_PCT
    gain = (pl.col("ns") * (1 - reached)).round().cast(pl.Int64).alias("gain_ns")
    mine = (pl.col("class") == row["name"]) & (pl.col("device") == row["device"])
    return subject.kernels.filter(mine).with_columns(gain)
