"""What a table is: its columns and what they mean, what makes it, and where it is shown."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.schema import CAUSE, COPY_LABEL, Frame
from nsysflow.analysis.selection.view import View


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: as in the table and in its CSV file; its unit is at the end: `_ns`, `_pct`.
        dtype: its type.
        meaning: what it means, as a phrase without a full stop.
    """

    name: str
    dtype: pl.DataType
    meaning: str


class TableSchema(Frame):
    """The columns of a table with their types, what a row is, and what each column means.

    In a table `process` is the OS pid and `thread` the OS tid. Times are ns since the session
    started; what was not measured is null, never 0.

    Attributes:
        meanings: what each column means, by name.
    """

    def __init__(self, row: str, columns: Iterable[Column]) -> None:
        listed = [*columns]
        super().__init__(row, {column.name: column.dtype for column in listed})
        self.meanings = {column.name: column.meaning for column in listed}


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        name: as `--table`, `Analysis` and files spell it. Its block on the page is
            declared in `nsysflow/report/blocks/` where it has `page_rows` or `full_rows`.
        schema: its columns, and what a row is.
        make: makes it from a view; None where `ranks/` or `findings/` make it from a whole run.
        scope: whether each report has one, or the run as a whole.
        csv: whether it becomes a CSV file: always, only with rows, or never.
        json_key: its key in report.json; None where it is not in there.
        page_rows: how many rows the terminal page shows; 0 where the page only has a sentence on
            it, None where it has nothing.
        full_rows: the same for summary.md and `--full`.
        judged: whether a page shows the judged steps of it; if not, the whole window.
        complete: whether a page shows it as a whole, whatever `--top` says.
        in_slices: whether it is made and written slice by slice, as it has a row per gap.
        ranked_by: what people read it by, largest first, where files keep another order.
        each: the table with a row per event that it sums up; `--format parquet` gives that.
        by_device: the table with a row per device, where its own rows are of all devices.
        by_stack: the table with a row per stack, where its own rows name only a stack's innermost
            function and line.
        filled_by: what to do so that it has rows, or why it has none.
        shown: the columns that people act on, most important first. Where a line is narrow, the
            last ones give way. Empty for the order of the schema.
    """

    name: str
    schema: TableSchema
    make: Callable[[View], pl.DataFrame] | None = None
    scope: Literal["report", "run"] = "report"
    csv: Literal["always", "with rows", "never"] = "always"
    json_key: str | None
    page_rows: int | None = None
    full_rows: int | None = None
    judged: bool = True
    complete: bool = False
    in_slices: bool = False
    ranked_by: str | None = None
    each: str | None = None
    by_device: str | None = None
    by_stack: str | None = None
    filled_by: str
    shown: str = ""

    @property
    def at_once(self) -> bool:
        """Whether it is worth computing beforehand: of one report, and not read slice by slice."""
        return self.scope == "report" and not self.in_slices

    @property
    def parts(self) -> tuple[str, ...]:
        """The tables that are not listed by themselves, but belong to this one."""
        return tuple(filter(None, (self.each, self.by_device, self.by_stack)))


def shared(names: str) -> list[Column]:
    """The columns of these names, which mean the same in many tables."""
    return [SHARED[name] for name in names.split()]


CAUSE_COLUMNS: Final = tuple(
    Column(f"{name}_ns", pl.Int64(), f"idle time with the cause `{name}`: {cause.meaning}")
    for name, cause in CAUSES.items()
)
"""Idle time by cause, in the order that breaks ties."""

SHARED: Final = {
    column.name: column
    for column in (
        Column(
            "bound",
            pl.String(),
            "what most of its time goes to: compute, communication and copies that were waited "
            "for, or a cause of idle time; joined by `+` where several are close",
        ),
        Column("bound_pct", pl.Float64(), "the share of the first part of `bound`"),
        Column("report", pl.String(), "the report's name: its file or its run's folder"),
        Column("process", pl.Int64(), "the process's id (pid)"),
        Column("device", pl.Int32(), "the GPU's index"),
        Column("stream", pl.Int64(), "the stream's number"),
        Column("start_ns", pl.Int64(), "when it starts, on the report's clock"),
        Column("end_ns", pl.Int64(), "when it ends, on the report's clock"),
        Column(
            "phase",
            pl.String(),
            "the NVTX ranges in which the work was launched, outermost first, joined by `/`; empty "
            "outside all ranges",
        ),
        Column(
            "path",
            pl.String(),
            "the NVTX range with the ranges around it, outermost first, joined by `/`",
        ),
        Column(
            "source",
            pl.String(),
            "the innermost line of your program, as `train.py:42 in step`; empty where no "
            "backtrace was recorded (`profile --backtrace all` records one of every call)",
        ),
        Column(
            "via",
            pl.String(),
            "the innermost line of the framework that `source` calls, as "
            "`transformers/trainer.py:2541 in _inner_training_loop`; empty where it calls none",
        ),
        Column(
            "culprit",
            pl.String(),
            "the call that is charged with most of it; empty where the time is between calls",
        ),
        Column(
            "cause",
            CAUSE,
            "why the GPU was idle; each cause has a page: `nsysflow explain sync`",
        ),
        Column(
            "compute_ns",
            pl.Int64(),
            "time with at least one kernel running that is not communication",
        ),
        Column("comm_exposed_ns", pl.Int64(), "time with communication but no compute running"),
        Column(
            "copy_exposed_ns",
            pl.Int64(),
            "time with a copy or memset, but neither compute nor communication running",
        ),
        Column("idle_ns", pl.Int64(), "time in which nothing runs on the GPU"),
        Column("exposed_ns", pl.Int64(), "the part of it without compute"),
        Column("ops", pl.Int64(), "how many kernels, copies, memsets and graphs"),
        Column("kernels", pl.Int64(), "how many kernels"),
        Column(
            "launches",
            pl.Int64(),
            "how many calls that start kernels, copies or graphs; one for a whole CUDA graph",
        ),
        Column("gaps", pl.Int64(), "how many stretches in which nothing runs on the GPU"),
        Column("bytes", pl.Int64(), "how many bytes were moved"),
        Column(
            "total_ns",
            pl.Int64(),
            "the sum of the durations; where they overlap it is more than the time that passed",
        ),
        Column("median_ns", pl.Int64(), "the median duration"),
        Column(
            "induced_idle_ns",
            pl.Int64(),
            "idle GPU time that the call brought about, during it and after it; this is what the "
            "call costs, not its length",
        ),
        Column("api", pl.String(), "the call"),
        Column(
            "direction",
            pl.String(),
            "where to: HtoD (to the GPU), DtoH (to the host), DtoD, PtoP (between GPUs)",
        ),
        Column(
            "copy_label",
            COPY_LABEL,
            "pageable or pinned host memory, and whether the copy blocks the host; `device` "
            "between GPU memories",
        ),
        Column(
            "operation",
            pl.String(),
            "NCCL's name of the collective, e.g. `ncclAllReduce`; empty where its ranges were not "
            "recorded",
        ),
        Column(
            "graph_estimate_ns",
            pl.Int64(),
            "how long its operations would take as one CUDA graph: their durations and 500 ns for "
            "each",
        ),
        Column("rank", pl.Int64(), "the rank's number, in the order of the reports"),
        Column("late_ns", pl.Int64(), "how much later than the first rank it came, all together"),
        Column(
            "cost_ns",
            pl.Int64(),
            "what it cost the others, all together: how much longer they waited for it, with "
            "nothing to compute, than for the next slowest rank",
        ),
        Column("cost_work_ns", pl.Int64(), "the part of `cost_ns` because it computed longer"),
        Column(
            "cost_copy_ns",
            pl.Int64(),
            "the part of `cost_ns` because its exposed copies took longer",
        ),
        Column(
            "cost_group_ns",
            pl.Int64(),
            "the part of `cost_ns` because of other exposed communication, in which it mostly "
            "waited for another group",
        ),
        Column(
            "cost_host_ns",
            pl.Int64(),
            "the part of `cost_ns` because its GPU was idle, mostly as its host was late, and what "
            "nothing else explains",
        ),
    )
}
"""Columns of many tables, by name."""
