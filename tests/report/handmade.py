"""Tables written by hand: columns a test does not name are 0, or null where that is a name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import EXCHANGED, JUDGED_STEPS, Digest
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.schema import COLLECTIVES, EACH_COPY, SCHEMAS
from nsysflow.analysis.tables.validity import FailedCheck
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.results import Results as RealResults

MS = 1_000_000
"""ns in a ms."""


NOTHING_FOUND: Final = Findings(
    valued=(), together_ns=None, step_ns=0, of_steps=False, steps=1, report="run.sqlite"
)


class Results(RealResults):
    """A run whose findings were never looked for: those of its first report."""

    @property
    def found(self) -> Findings:
        """As they were put there."""
        first = self.analyses[0]
        return first.found if isinstance(first, Handmade) else NOTHING_FOUND


@dataclass(frozen=True)
class Handmade:
    """An analysis that was never computed."""

    tables: dict[str, pl.DataFrame]
    trace: Trace = field(default_factory=lambda: Trace(report="run.sqlite", source="by hand"))
    options: Options = field(default_factory=Options)
    step_name: str | None = None
    notes: tuple[Note, ...] = ()
    failed_checks: tuple[FailedCheck, ...] = ()
    collectives: pl.DataFrame = field(default_factory=COLLECTIVES.to_frame)

    found: Findings = NOTHING_FOUND
    step_counts: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def judged(self) -> "Handmade":
        """All of it."""
        return self

    @property
    def subject(self) -> JudgedReport:
        """Rules find nothing in tables alone."""
        raise LookupError("tables written by hand have no operations")

    @property
    def tracks(self) -> Tracks:
        """Tables alone have no timeline."""
        raise LookupError("tables written by hand have no operations")

    @property
    def selected_ns(self) -> tuple[tuple[int, int], ...]:
        return ()

    @property
    def parts(self) -> pl.DataFrame:
        """Of accounting: exposed communication and copies were waited for."""
        exposed = {"comm_exposed_ns": "communication_ns", "copy_exposed_ns": "copies_ns"}
        accounting = self.tables.get("accounting", SCHEMAS["accounting"].to_frame())
        names = [f"{part}_ns" for part in PARTS]
        return accounting.rename(exposed).select("report", "device", *names)

    @property
    def digest(self) -> Digest:
        """Of the communication kernels, all selected and judged; nothing is known around them."""
        blank = [
            pl.lit(dtype == pl.Boolean() or 0).cast(dtype).alias(name)
            for name, dtype in EXCHANGED.items()
            if name not in COLLECTIVES
        ]
        return Digest(
            report=next(iter(self.collectives["report"]), self.trace.report),
            source=self.trace.source,
            gpus=self.accounting.select("device", "name"),
            notes=self.notes,
            failed=self.failed_checks,
            step_name=self.step_name,
            collectives=self.collectives.with_columns(blank).select([*EXCHANGED]),
            steps=self.steps.with_columns(pl.lit(value=True).alias("judged")).select(
                [*JUDGED_STEPS]
            ),
            accounting=self.accounting,
        )

    def compute(self, *tables: str) -> None:
        """There is nothing to compute."""

    def longest_gaps(self, limit: int, at_least_ns: int) -> pl.DataFrame:
        gaps = self.gaps.filter(pl.col("duration_ns") >= at_least_ns)
        return gaps.top_k(limit, by="duration_ns")

    @property
    def step_names(self) -> pl.DataFrame:
        """The one name, of all processes."""
        processes = self.steps.select("report", "process").unique(maintain_order=True)
        return processes.with_columns(pl.lit(self.step_name, pl.String).alias("name"))

    @property
    def step_keys(self) -> pl.DataFrame:
        return self.steps.select("report", "process", "device", "step")

    @property
    def is_one_rank(self) -> bool:
        return False

    @property
    def induced(self) -> pl.DataFrame:
        """Of the first GPU."""
        device = pl.lit(0, pl.Int32).alias("device")
        return self.syncs.filter(pl.col("induced_idle_ns") > 0).with_columns(
            device, pl.int_range(pl.len(), dtype=pl.UInt32).alias("call")
        )

    @property
    def each_copy(self) -> pl.DataFrame:
        return EACH_COPY.to_frame()

    def gap_slices(self, at_least_ns: int) -> Iterator[pl.DataFrame]:
        yield self.gaps.filter(pl.col("duration_ns") >= at_least_ns)

    def count_gaps(self, at_least_ns: int) -> int:
        return len(self.gaps.filter(pl.col("duration_ns") >= at_least_ns))

    def __getattr__(self, name: str) -> pl.DataFrame:
        if name not in SCHEMAS:
            raise AttributeError(name)
        return self.tables.get(name, SCHEMAS[name].to_frame())


def frame(name: str, *rows: dict[str, Any]) -> pl.DataFrame:
    """A table of the schema from the columns that matter."""
    of = SCHEMAS[name]
    blank = {column: 0 if dtype.is_numeric() else None for column, dtype in of.items()}
    filled = [{**blank, "report": "run.sqlite", **row} for row in rows]
    return pl.DataFrame(filled, schema=of)


def handmade(
    *, step_name: str | None = None, notes: tuple[Note, ...] = (), **rows: list[dict[str, Any]]
) -> Handmade:
    """An analysis of `run.sqlite` from rows by table."""
    tables = {name: frame(name, *some) for name, some in rows.items()}
    return Handmade(tables=tables, step_name=step_name, notes=notes)


def results(**rows: Any) -> Results:
    """One report's results from rows by table."""
    return Results([handmade(**rows)])


def device(window_ns: int, **columns: Any) -> dict[str, Any]:
    """A row of accounting: the causes make up the idle, compute is the rest."""
    idle_ns = sum(columns.get(f"{cause}_ns", 0) for cause in CAUSES)
    rest_ns = columns.get("comm_exposed_ns", 0) + columns.get("copy_exposed_ns", 0)
    return {
        "name": "NVIDIA H200",
        "window_ns": window_ns,
        "idle_ns": idle_ns,
        "compute_ns": window_ns - idle_ns - rest_ns,
        **columns,
    }


def renamed(run: Handmade, report: str) -> Handmade:
    """`run` as a report of another name."""
    name = pl.lit(report).alias("report")
    tables = {each: rows.with_columns(name) for each, rows in run.tables.items()}
    return replace(run, tables=tables, trace=replace(run.trace, report=report))


def part(cause: str, total_ns: int, **columns: Any) -> dict[str, Any]:
    """A row of gap_summary."""
    return {"cause": cause, "total_ns": total_ns, "gaps": 1, **columns}


def captured(run: Handmade, *processes: tuple[int, int | None]) -> Handmade:
    """`run` with what processes (pid, unprofiled ns of a step) say of their window of steps."""
    rows = [(pid << 24, "3:2:5", unprofiled_ns) for pid, unprofiled_ns in processes]
    captures = pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")
    return replace(run, trace=replace(run.trace, captures=captures))


def metrics(group: str, name: str, busy_ns: int, **columns: Any) -> dict[str, Any]:
    """A row of gpu_metrics: half of the SMs active, unless said otherwise."""
    said = {"samples": 9, "sm_active_pct": 50.0, "bound": "latency"} | columns
    return {"group": group, "name": name, "busy_ns": busy_ns, **said}


def sampled() -> Handmade:
    """A run with sampled counters: loss keeps the GPU busy and the chip idle."""
    return handmade(
        accounting=[device(100 * MS, host_ns=30 * MS)],
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
    parts = [("step", 4, 10), ("step/backward", 3, 6), ("step/forward", 1, 2)]
    rows = [
        {
            "path": path,
            "flops": tera * 10**12,
            "time_ns": ms * MS,
            "flops_per_s": tera * 1e15 / ms,
            "mfu_pct": 100 * tera * 1e15 / ms / 989.4e12,
            **peak,
        }
        for path, tera, ms in parts
    ]
    steady = {"kind": "steady", "steps": "0 to 4", "count": 5, "total_ns": 50 * MS}
    return handmade(accounting=[device(50 * MS)], mfu=rows, step_groups=[steady])


def two_ranks() -> list[Handmade]:
    """A collective that the second rank came 3 ms late to."""
    found = []
    for number, start_ns in enumerate((1 * MS, 4 * MS)):
        row = {"report": f"rank{number}", "process": 10 + number, "device": number, "name": "nccl"}
        made = {"start_ns": start_ns, "end_ns": 5 * MS, **row}
        collectives = pl.DataFrame([made], schema=COLLECTIVES)
        found.append(replace(handmade(accounting=[device(9 * MS)]), collectives=collectives))
    return found


def training() -> Handmade:
    """Two steps of 50 ms, the GPU at work for half of them; the smallest that shows every block.

    30 ms of idle lie between the steps, 12 ms are launches in forward, 8 ms a wait in the loss.
    """
    forward, loss = "step/forward", "step/loss"
    return handmade(
        step_name="step",
        notes=(Note(NoteKind.RUN, "12 ranges of NCCL are not phases"),),
        accounting=[
            device(
                100 * MS,
                host_ns=30 * MS,
                launch_ns=12 * MS,
                sync_ns=8 * MS,
                kernels=900,
                gaps=3,
                kernel_ns=49 * MS,
                copy_exposed_ns=1 * MS,
            )
        ],
        gap_summary=[
            part("host", 30 * MS, phase="", per_step_ns=15 * MS, gaps=2, window_pct=30.0),
            part("launch", 12 * MS, phase=forward, per_step_ns=6 * MS, gaps=80, window_pct=12.0),
            part(
                "sync",
                8 * MS,
                phase=loss,
                window_pct=8.0,
                per_step_ns=4 * MS,
                gaps=2,
                culprit="cudaStreamSynchronize",
            ),
        ],
        gaps=[
            {
                "gap": 7,
                "step": 0,
                "start_ns": 50 * MS,
                "end_ns": 70 * MS,
                "duration_ns": 20 * MS,
                "cause": "host",
                "phase": "",
                "waiting_phase": forward,
                "host_range": "",
                "prev_op": "adam",
                "next_op": "gemm",
                "host_ns": 20 * MS,
            },
            {
                "gap": 9,
                "step": 1,
                "start_ns": 90 * MS,
                "end_ns": 98 * MS,
                "duration_ns": 8 * MS,
                "cause": "sync",
                "phase": loss,
                "waiting_phase": forward,
                "host_range": loss,
                "prev_op": "nll",
                "next_op": "gemm",
                "sync_ns": 8 * MS,
                "culprit": "cudaStreamSynchronize",
            },
        ],
        phases=[
            {
                "path": "step",
                "depth": 1,
                "instances": 2,
                "host_wall_ns": 60 * MS,
                "kernels": 900,
                "kernel_ns": 49 * MS,
                "busy_ns": 50 * MS,
                "idle_ns": 20 * MS,
                "launch_ns": 12 * MS,
                "sync_ns": 8 * MS,
                "bound": "compute",
                "launches": 800,
            },
            {
                "path": forward,
                "depth": 2,
                "instances": 2,
                "host_wall_ns": 35 * MS,
                "kernels": 600,
                "kernel_ns": 40 * MS,
                "busy_ns": 40 * MS,
                "idle_ns": 12 * MS,
                "launch_ns": 12 * MS,
                "bound": "compute",
                "launches": 500,
            },
            {
                "path": loss,
                "depth": 2,
                "instances": 2,
                "host_wall_ns": 20 * MS,
                "kernels": 300,
                "kernel_ns": 9 * MS,
                "busy_ns": 9 * MS,
                "idle_ns": 8 * MS,
                "sync_ns": 8 * MS,
                "bound": "compute+sync",
                "launches": 300,
            },
        ],
        syncs=[
            {
                "api": "cudaStreamSynchronize",
                "kind": "sync",
                "phase": loss,
                "start_ns": 80 * MS,
                "blocked_ns": 12 * MS,
                "gpu_busy_ns": 4 * MS,
                "induced_idle_ns": 8 * MS,
            },
            {
                "api": "cudaDeviceSynchronize",
                "kind": "sync",
                "phase": None,
                "start_ns": 100 * MS,
                "blocked_ns": 211 * MS,
                "gpu_busy_ns": 211 * MS,
            },
        ],
        steps=[
            {
                "step": 0,
                "end_ns": 60 * MS,
                "duration_ns": 60 * MS,
                "compute_ns": 20 * MS,
                "idle_ns": 40 * MS,
                "host_ns": 22 * MS,
                "steady": False,
                "kind": "start-up",
            },
            {
                "step": 1,
                "start_ns": 60 * MS,
                "end_ns": 100 * MS,
                "duration_ns": 40 * MS,
                "compute_ns": 30 * MS,
                "idle_ns": 10 * MS,
                "host_ns": 8 * MS,
                "steady": True,
                "kind": "steady",
            },
        ],
        step_groups=[
            {"kind": "steady", "steps": "1", "count": 1, "total_ns": 40 * MS},
            {
                "kind": "before",
                "steps": "0",
                "count": 1,
                "total_ns": 60 * MS,
                "excess_ns": None,
                "cause": "host",
                "cause_ns": 22 * MS,
            },
        ],
        kernels=[
            {
                "name": "gemm<bf16>",
                "short_name": "gemm",
                "class": "matmul",
                "count": 600,
                "total_ns": 40 * MS,
                "median_ns": 66_000,
                "share_pct": 81.6,
                "grid": "64x1x1",
                "block": "256x1x1",
            },
        ],
        copies=[
            {
                "direction": "HtoD",
                "copy_label": "pageable_blocking",
                "count": 2,
                "bytes": 4_000_000,
                "gpu_ns": 1 * MS,
                "exposed_ns": 1 * MS,
            },
        ],
        integrity=[
            {
                "check": "unattributed operations",
                "count": 3,
                "share_pct": 0.3,
                "impact": "phases: these operations are in none",
            },
        ],
    )
