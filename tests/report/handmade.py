"""Tables and findings written by hand: columns a test does not name are 0, or null where that is a
name; `_ms` names the `_ns` column in ms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import EXCHANGED, JUDGED_STEPS, Digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.comm import COLLECTIVES
from nsysflow.analysis.tables.index import TablesOfReport, declaration
from nsysflow.analysis.tables.validity import FailedCheck
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.report.results import Results as RealResults

Row = dict[str, Any]

MS: Final = 1_000_000
"""ns in a ms."""

HOSTILE: Final = (
    *("<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!-- <script>"),
    *("</title></svg>", "\"quoted\" and 'quotes' & \\ <![CDATA[ ]]> {data} {script} %s"),
    "x" * 5_000,
    *("\u202eevil\u202c", "\u05e9\u05dc\u05d5\u05dd", "two\nlines \u2028 \x00\x1b[31m"),
)
"""Names that a program may choose for its functions, kernels, ranges and files."""

NOTHING_FOUND: Final = Findings(
    valued=(), together_ns=None, step_ns=0, typical_step_ns=0, undisturbed_step_ns=0,
    of_steps=False, steps=1, report="run.sqlite",
)  # fmt: skip


class Results(RealResults):
    """A run of analyses that may be handmade; its findings are those that its first report was
    given."""

    def __init__(self, analyses: Sequence["Analysis | Handmade"], **about: Any) -> None:
        super().__init__(cast("Sequence[Analysis]", analyses), **about)

    @property
    def found(self) -> Findings:
        first: object = self.analyses[0]
        found: Findings = first.found if isinstance(first, Handmade) else super().found
        return found

    @property
    def ranks_of_run(self) -> Ranks:
        analyses: tuple[object, ...] = self.analyses
        made = [each for each in analyses if isinstance(each, Handmade)]
        if made and not self.many:
            return Ranks.of([each.digest for each in made])
        ranks: Ranks = super().ranks_of_run
        return ranks


@dataclass(frozen=True)
class Handmade(TablesOfReport):
    """An analysis that was never computed: all of it is judged, nothing is replayed or drawn."""

    tables: dict[str, pl.DataFrame]
    trace: Trace = field(default_factory=lambda: Trace(report="run.sqlite", source="by hand"))
    options: Options = field(default_factory=Options)
    step_name: str | None = None
    steps_inferred: bool = False
    growth_ns: tuple[int, int] | None = None
    turns_ns: tuple[int, int] | None = None
    notes: tuple[Note, ...] = ()
    failed_checks: tuple[FailedCheck, ...] = ()
    found: Findings = NOTHING_FOUND
    step_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    selected_ns: tuple[tuple[int, int], ...] = ()
    is_one_rank: bool = False

    @property
    def run_steps(self) -> "Handmade":
        return self

    @property
    def judged(self) -> "Handmade":
        return self

    @property
    def parts(self) -> pl.DataFrame:
        """Of accounting: exposed communication and copies were waited for."""
        exposed = {"comm_exposed_ns": "communication_ns", "copy_exposed_ns": "copies_ns"}
        names = [f"{part}_ns" for part in PARTS]
        return self.accounting.rename(exposed).select("report", "device", *names)

    @property
    def digest(self) -> Digest:
        """Of the communication kernels, all selected and judged; nothing is known around them."""
        blank = [
            pl.lit(dtype == pl.Boolean() or 0).cast(dtype).alias(name)
            for name, dtype in EXCHANGED.items()
            if name not in COLLECTIVES
        ]
        steps = self.steps.with_columns(pl.lit(value=True).alias("judged"))
        return Digest(
            report=next(iter(self.collectives["report"]), self.trace.report),
            source=self.trace.source,
            gpus=self.accounting.select("device", "name"),
            notes=self.notes,
            failed=self.failed_checks,
            step_name=self.step_name,
            collectives=self.collectives.with_columns(blank).select([*EXCHANGED]),
            steps=steps.select([*JUDGED_STEPS]),
            accounting=self.accounting,
        )

    def compute(self, *tables: str) -> None:
        """There is nothing to compute."""

    @property
    def step_names(self) -> pl.DataFrame:
        processes = self.steps.select("report", "process").unique(maintain_order=True)
        return processes.with_columns(pl.lit(self.step_name, pl.String).alias("name"))

    @property
    def step_keys(self) -> pl.DataFrame:
        return self.steps.select("report", "process", "device", "step")

    def table(self, name: str) -> pl.DataFrame:
        return self.tables.get(name, declaration(name).schema.to_frame())

    def longest_gaps(self, limit: int, at_least_ns: int) -> pl.DataFrame:
        return next(self.gap_slices(at_least_ns)).top_k(limit, by="duration_ns")

    def gap_slices(self, at_least_ns: int) -> Iterator[pl.DataFrame]:
        yield self.gaps.filter(pl.col("duration_ns") >= at_least_ns)

    def count_gaps(self, at_least_ns: int) -> int:
        return next(self.gap_slices(at_least_ns)).height


def row(**columns: Any) -> Row:
    """A row; what is named in ms becomes ns."""
    return {
        name.removesuffix("_ms") + "_ns" if name.endswith("_ms") else name: round(value * MS)
        if name.endswith("_ms")
        else value
        for name, value in columns.items()
    }


def frame(name: str, *rows: Row) -> pl.DataFrame:
    """A table of the schema from the columns that matter."""
    columns = declaration(name).schema
    blank = {column: 0 if dtype.is_numeric() else None for column, dtype in columns.items()}
    filled = [{**blank, "report": "run.sqlite", **row(**given)} for given in rows]
    return pl.DataFrame(filled, schema=columns)


def handmade(
    *, step_name: str | None = None, notes: tuple[Note, ...] = (), **rows: list[Row]
) -> Handmade:
    """An analysis of `run.sqlite` from rows by table."""
    tables = {name: frame(name, *some) for name, some in rows.items()}
    return Handmade(tables=tables, step_name=step_name, notes=notes)


def results(**rows: Any) -> Results:
    """One report's results from rows by table."""
    return Results([handmade(**rows)])


def device(window_ns: int, **columns: Any) -> Row:
    """A row of accounting: the causes make up the idle, compute is the rest."""
    columns = row(**columns)
    idle_ns = sum(columns.get(f"{cause}_ns", 0) for cause in CAUSES)
    rest_ns = columns.get("comm_exposed_ns", 0) + columns.get("copy_exposed_ns", 0)
    whole = {"window_ns": window_ns, "idle_ns": idle_ns}
    rest = {"name": "NVIDIA H200", "compute_ns": window_ns - idle_ns - rest_ns}
    return rest | whole | columns


def renamed(run: Handmade, report: str) -> Handmade:
    """`run` as a report of another name."""
    name = pl.lit(report).alias("report")
    tables = {table: rows.with_columns(name) for table, rows in run.tables.items()}
    return replace(run, tables=tables, trace=replace(run.trace, report=report))


def captured(run: Handmade, *processes: tuple[int, int | None]) -> Handmade:
    """`run` with what processes (pid, unprofiled ns of a step) say of their window of steps."""
    rows = [(pid << 24, "3:2:5", unprofiled_ns) for pid, unprofiled_ns in processes]
    captures = pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")
    return replace(run, trace=replace(run.trace, captures=captures))


def metrics(group: str, name: str, busy_ns: int, **columns: Any) -> Row:
    """A row of gpu_metrics: half of the SMs active, unless said otherwise."""
    said = {"samples": 9, "sm_active_pct": 50.0, "bound": "latency"} | columns
    return {"group": group, "name": name, "busy_ns": busy_ns, **said}


def sampled() -> Handmade:
    """A run with sampled counters: loss keeps the GPU busy and the chip idle."""
    return handmade(
        accounting=[device(100 * MS, host_ms=30)],
        gpu_metrics=[
            metrics("phase", "step", 70 * MS, bound="overhead", sm_active_pct=20.0),
            metrics("phase", "step/forward", 50 * MS, bound="compute", sm_active_pct=90.0),
            metrics("phase", "step/loss", 20 * MS, sm_active_pct=12.0),
            metrics("class", "matmul", 45 * MS, dram_read_pct=20.0, dram_write_pct=11.5),
            metrics("class", "reduction", 5 * MS, sm_active_pct=29.9, dram_read_pct=None),
        ],
    )


def measured() -> Handmade:
    """A step of 4 TFLOP in 10 ms on an H200, forward and backward apart."""
    peak = {"unit": "bf16", "peak_flops_per_s": 989.4e12, "process": 1, "steps": 5}
    rows = [
        row(path=path, flops=tera * 10**12, time_ms=ms, flops_per_s=tera * 1e15 / ms)
        | peak
        | {"mfu_pct": 100 * tera * 1e15 / ms / 989.4e12}
        for path, tera, ms in (("step", 4, 10), ("step/backward", 3, 6), ("step/forward", 1, 2))
    ]
    typical = row(part="typical", steps="0 to 4", count=5, time_ms=50)
    return handmade(accounting=[device(50 * MS)], mfu=rows, run=[typical])


def two_ranks() -> list[Handmade]:
    """A collective that the second rank came 3 ms late to."""
    found = []
    for number, start_ms in enumerate((1, 4)):
        made = row(start_ms=start_ms, end_ms=5, report=f"rank{number}", process=10 + number)
        made |= {"device": number, "name": "nccl"}
        collectives = pl.DataFrame([made], schema=COLLECTIVES)
        rank = handmade(accounting=[device(9 * MS)])
        found.append(replace(rank, tables=rank.tables | {"collectives": collectives}))
    return found


def training() -> Handmade:
    """Two steps of 50 ms, the GPU at work for half of them; the smallest that shows every block.

    30 ms of idle lie between the steps, 12 ms are launches in forward, 8 ms a wait in the loss.
    """
    forward, loss, wait = "step/forward", "step/loss", "cudaStreamSynchronize"
    idle = row(host_ms=30, launch_ms=12, sync_ms=8)
    first = row(gap=7, step=0, start_ms=50, end_ms=70, duration_ms=20, host_ms=20, cause="host")
    last = row(gap=9, step=1, start_ms=90, end_ms=98, duration_ms=8, sync_ms=8, cause="sync")
    step = row(path="step", depth=1, host_wall_ms=60, kernel_ms=49, busy_ms=50, bound="compute")
    inner = row(path=forward, depth=2, host_wall_ms=35, kernel_ms=40, busy_ms=40, bound="compute")
    read = row(path=loss, depth=2, host_wall_ms=20, kernel_ms=9, busy_ms=9, bound="compute+sync")
    return handmade(
        step_name="step",
        notes=(Note(NoteKind.RUN, "12 ranges of NCCL are not phases"),),
        accounting=[device(100 * MS, **idle, kernels=900, gaps=3, kernel_ms=49, copy_exposed_ms=1)],
        gap_summary=[
            row(cause="host", total_ms=30, phase="", per_step_ms=15, gaps=2, window_pct=30.0),
            row(cause="launch", total_ms=12, phase=forward, per_step_ms=6, gaps=80, window_pct=12),
            row(cause="sync", total_ms=8, phase=loss, per_step_ms=4, gaps=2, window_pct=8.0)
            | {"culprit": wait},
        ],
        gaps=[
            first | row(phase="", waiting_phase=forward, host_range="", prev_op="adam")
            | {"next_op": "gemm"},
            last | row(phase=loss, waiting_phase=forward, host_range=loss, prev_op="nll")
            | {"next_op": "gemm", "culprit": wait},
        ],
        phases=[
            step | row(instances=2, kernels=900, launches=800, idle_ms=20, launch_ms=12, sync_ms=8),
            inner | row(instances=2, kernels=600, launches=500, idle_ms=12, launch_ms=12),
            read | row(instances=2, kernels=300, launches=300, idle_ms=8, sync_ms=8),
        ],
        syncs=[
            row(api=wait, kind="sync", phase=loss, start_ms=80, blocked_ms=12, gpu_busy_ms=4)
            | {"induced_idle_ns": 8 * MS},
            row(api="cudaDeviceSynchronize", kind="sync", start_ms=100, blocked_ms=211)
            | {"gpu_busy_ns": 211 * MS},
        ],
        steps=[
            row(step=0, end_ms=60, duration_ms=60, compute_ms=20, idle_ms=40, host_ms=22)
            | {"steady": False, "kind": "start-up"},
            row(step=1, start_ms=60, end_ms=100, duration_ms=40, compute_ms=30, idle_ms=10)
            | row(host_ms=8, steady=True, kind="steady"),
        ],
        run=[
            row(part="start-up", steps="0", count=1, time_ms=60, busy_ms=20, cause="host")
            | row(cause_ms=22),
            row(part="typical", steps="1", count=1, time_ms=40, busy_ms=30),
        ],
        kernels=[
            row(name="gemm<bf16>", short_name="gemm", count=600, total_ms=40, median_ns=66_000)
            | {"class": "matmul", "share_pct": 81.6, "grid": "64x1x1", "block": "256x1x1"}
        ],
        copies=[
            row(direction="HtoD", copy_label="pageable_blocking", count=2, bytes=4_000_000)
            | row(gpu_ms=1, exposed_ms=1)
        ],
        integrity=[
            row(check="unattributed operations", count=3, share_pct=0.3)
            | {"impact": "phases: these operations are in none"}
        ],
    )  # fmt: skip


STEP_NS: Final = 50 * MS
"""A step of `training`, of which all savings here are."""


def finding(**fields: Any) -> Finding:
    """A wait in the loop that was replayed, but for `fields`."""
    common: Row = {"rule": "sync-in-loop", "title": "sync in the loop", "steps": 2, "size_ns": MS}
    words = {"change": ("remove the wait", "wait later"), "evidence": ("it waits",)}
    return Finding(**common | words | {"table": "syncs", "changes": Changes()} | fields)


def valued(high_ns: int = 5 * MS, report: str = "run.sqlite", **fields: Any) -> Valued:
    """The same with its saving."""
    wait = finding(**fields)
    low_ns = high_ns if wait.method == "replay" else 0
    return Valued(
        finding=wait, low_ns=low_ns, high_ns=high_ns, alone_ns=high_ns, alone_low_ns=low_ns,
        step_ns=STEP_NS, step_after_ns=STEP_NS - high_ns, report=report,
    )  # fmt: skip


def found_of(
    *some: Valued, together_ns: int | None = None, steps: int = 2, of_steps: bool = True
) -> Findings:
    """What was found in `training`."""
    found = replace(NOTHING_FOUND, valued=some, step_ns=STEP_NS, undisturbed_step_ns=STEP_NS)
    return replace(found, together_ns=together_ns, steps=steps, of_steps=of_steps)


def stepped(found: Findings = NOTHING_FOUND) -> Handmade:
    """`training` with both of its steps judged."""
    return replace(training(), step_counts={("run.sqlite", 0): 2}, found=found)


def with_findings(*some: Valued, **of: Any) -> Results:
    """The results of `training` with these findings."""
    return Results([stepped(found_of(*some, **of))])
