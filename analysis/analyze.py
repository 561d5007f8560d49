"""`analyze`: a trace in, every table of the spec out, each computed when first asked for."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from nsysflow.analysis.accounting import accounting_table
from nsysflow.analysis.comm import collectives, comm_table
from nsysflow.analysis.copies import copy_table, each_copy
from nsysflow.analysis.gap_tables import gap_histogram, gap_summary, gap_table
from nsysflow.analysis.gpu_metrics import gpu_metrics_table
from nsysflow.analysis.integrity import integrity_table
from nsysflow.analysis.intervals import overlaps
from nsysflow.analysis.kernels import kernel_table
from nsysflow.analysis.keys import os_pid
from nsysflow.analysis.launches import launch_table
from nsysflow.analysis.mfu import declared_flops, mfu_table
from nsysflow.analysis.options import Options
from nsysflow.analysis.parallel import computed_once, side_by_side
from nsysflow.analysis.phases import phase_table
from nsysflow.analysis.schema import COLLECTIVES, EACH_COPY, INDUCED, MFU, TABLES
from nsysflow.analysis.starved import starved_table, unbroken_runs
from nsysflow.analysis.steps import step_table
from nsysflow.analysis.syncs import induced_table, sync_table
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.windows import laid
from nsysflow.analysis.working import Working

SLICE_ROWS = 262_144
"""Gaps made into text at a time."""

_EARLY = {"integrity": "_damage", "launches": "_launch_rows"}
"""What tables need that waits for nothing but the prepared trace: work for the cores that the
explanation of the gaps leaves idle."""


def analyze(trace: Trace, options: Options | None = None) -> "Analysis":
    """Everything the spec defines about `trace`.

    Args:
        trace: a report, as `load` returns it.
        options: what to narrow the analysis to; None takes it whole.

    Returns:
        The tables, each computed when first read.

    Raises:
        SelectionError: (when a table is read) an option names a range or device that is not there.
    """
    return Analysis(trace, options or Options())


class Analysis(Working):
    """The tables of one report; `schema.TABLES` says what each holds."""

    @computed_once
    def accounting(self) -> pl.DataFrame:
        """`ACCOUNTING`."""
        return self._table(
            "accounting",
            accounting_table(self._prepared, self._windows, self._busy, self._ops, self._gaps),
        )

    @computed_once
    def gaps(self) -> pl.DataFrame:
        """`GAPS`."""
        return pl.concat(self.gap_slices())

    def gap_slices(self, at_least_ns: int = 0) -> Iterator[pl.DataFrame]:
        """`GAPS` in slices, those that last `at_least_ns` or longer: as text a gap takes ten times
        the memory."""
        gaps = self._gaps
        if at_least_ns > 0:
            gaps = gaps.filter(pl.col("end_ns") - pl.col("start_ns") >= at_least_ns)
        for first in range(0, max(len(gaps), 1), SLICE_ROWS):
            rows = gaps[first : first + SLICE_ROWS]
            yield self._table("gaps", gap_table(self._prepared, self._attribution, rows))

    @computed_once
    def gap_summary(self) -> pl.DataFrame:
        """`GAP_SUMMARY`."""
        table = gap_summary(
            self._prepared, self._attribution, self._gaps, self._chosen_steps, self._windows
        )
        return self._table("gap_summary", table)

    @computed_once
    def gap_histogram(self) -> pl.DataFrame:
        """`GAP_HISTOGRAM`."""
        return self._table("gap_histogram", gap_histogram(self._prepared, self._gaps))

    @computed_once
    def phases(self) -> pl.DataFrame:
        """`PHASES`."""
        return self._table("phases", phase_table(self._attribution, self._work, self._idle))

    @computed_once
    def syncs(self) -> pl.DataFrame:
        """`SYNCS`."""
        table = sync_table(self._stall_rows, self._charges, self._copies)
        if self._narrowed:
            table = table.filter(self._in_sight(table) | (pl.col("induced_idle_ns") > 0))
        return self._table("syncs", table)

    @computed_once
    def induced(self) -> pl.DataFrame:
        """`INDUCED`: what the calls of `syncs` cost each device."""
        ops, gaps = self._prepared.ops, self._bare_gaps
        device = ops["device"].gather(gaps["next_op"].gather(self._charges["gap"]))
        charges = self._charges.with_columns(device.alias("device"))
        return self._titled(induced_table(self._stall_rows, charges, self._copies), INDUCED)

    @computed_once
    def launches(self) -> pl.DataFrame:
        """`LAUNCHES`."""
        rows = self._launch_rows
        if self._narrowed:
            rows = rows.join(self._ops, on="op", how="semi")
        ops = self._placed_ops
        rows = rows.with_columns(*(ops[name].gather(rows["op"]) for name in ("process", "node")))
        table = launch_table(self._attribution, rows, self._gaps, self._idle, self._spans)
        return self._table("launches", table)

    @computed_once
    def starved(self) -> pl.DataFrame:
        """`STARVED`."""
        axis, ops = self._prepared.axis, self._placed_ops
        runs = overlaps(unbroken_runs(ops, self._whole_gaps), laid(self._windows, axis))
        table = starved_table(self._attribution, axis, ops, runs, self._gaps)
        return self._table("starved", table)

    @computed_once
    def kernels(self) -> pl.DataFrame:
        """`KERNELS`."""
        table = kernel_table(
            self._ops, self.trace.shapes, self.trace.devices, self.options.kernel_classes
        )
        return self._table("kernels", table)

    @computed_once
    def copies(self) -> pl.DataFrame:
        """`COPIES`."""
        table = copy_table(self._prepared, self._placed_copies, self._charges, self._busy)
        return self._table("copies", table)

    @computed_once
    def each_copy(self) -> pl.DataFrame:
        """`EACH_COPY`: the memcpys that `copies` sums up."""
        rows = each_copy(self._prepared, self._placed_copies, self._charges)
        return self._titled(rows, EACH_COPY)

    @computed_once
    def comm(self) -> pl.DataFrame:
        """`COMM`."""
        return self._table("comm", comm_table(self._placed_comm, self._ops))

    @computed_once
    def collectives(self) -> pl.DataFrame:
        """`COLLECTIVES`: the kernels that `comm` counts."""
        begun = self._placed_comm.join(self._ops, on="op", how="semi", maintain_order="left")
        return self._titled(collectives(begun), COLLECTIVES)

    @computed_once
    def every_collective(self) -> pl.DataFrame:
        """`COLLECTIVES` of the whole report, whatever is looked at."""
        return self._titled(collectives(self._placed_comm), COLLECTIVES)

    @computed_once
    def steps(self) -> pl.DataFrame:
        """`STEPS`."""
        gaps = self._whole_gaps
        skip = self.options.skip
        table = step_table(self._prepared, self._chosen_steps, gaps, self._busy, skip=skip)
        return self._table("steps", table)

    @computed_once
    def gpu_metrics(self) -> pl.DataFrame:
        """`GPU_METRICS`."""
        table = gpu_metrics_table(
            self._prepared,
            self._attribution,
            self._placed_ops,
            self._windows,
            self._busy,
            self.options.kernel_classes,
        )
        return self._table("gpu_metrics", table)

    @computed_once
    def mfu(self) -> pl.DataFrame:
        """`MFU`.

        Raises:
            FlopsError: what is declared is more than the GPU can do.
        """
        pid = os_pid(pl.col("process")).alias("process")
        told = declared_flops(self.trace.flops, self._steps["process"].unique(), self.options)
        if told.is_empty():
            return self._table("mfu", MFU.to_frame().drop("report"))
        table = mfu_table(
            told.with_columns(pid),
            self._step_paths.with_columns(pid),
            self.steps,
            self._work_of_steps.with_columns(pid, pl.col("joined").alias("path")),
            self.trace.devices,
            self.trace.report,
        )
        return self._table("mfu", table)

    @computed_once
    def integrity(self) -> pl.DataFrame:
        """`INTEGRITY`, of the whole trace."""
        node = self._placed_ops["node"]
        return self._table("integrity", integrity_table(self._prepared, self._damage, node))

    @computed_once
    def step_name(self) -> str | None:
        """The path of the range that is one step (several if processes differ); None where nothing
        repeats."""
        names = self._step_paths["joined"].unique(maintain_order=True)
        return ", ".join(names) or None

    @computed_once
    def step_names(self) -> pl.DataFrame:
        """`report`, `process`, `name`: what `step_name` says, process by process."""
        return (
            self._step_paths.group_by("process", maintain_order=True)
            .agg(pl.col("joined").str.join(", ").alias("name"))
            .select(
                pl.lit(self.trace.report).alias("report"),
                os_pid(pl.col("process")).alias("process"),
                "name",
            )
        )

    @computed_once
    def notes(self) -> tuple[str, ...]:
        """What the reader should know: the loader's notes, and domains asked for that are not
        there."""
        asked = {*self.options.domains_added, *self.options.domains_removed}
        if not asked:
            return self.trace.notes
        found = {*self._prepared.ranges["domain"].drop_nulls().unique().cast(pl.String)}
        known = f"there are: {', '.join(sorted(found))}" if found else "there is none with a name"
        missing = [
            f"no NVTX domain {name!r} in {self.trace.report}; {known}"
            for name in sorted(asked - found)
        ]
        return (*self.trace.notes, *missing)

    def longest_gaps(self, limit: int, at_least_ns: int = 0) -> pl.DataFrame:
        """The longest `limit` rows of `gaps`, longest first, without making the others."""
        ns = pl.col("end_ns") - pl.col("start_ns")
        length = self._gaps.select(ns.alias("ns")).with_row_index("row")
        top = length.filter(pl.col("ns") >= at_least_ns).top_k(limit, by="ns")
        longest = self._gaps[top["row"]].sort(
            ns, "device_no", "start_ns", descending=[True, False, False]
        )
        return self._table("gaps", gap_table(self._prepared, self._attribution, longest))

    def count_gaps(self, at_least_ns: int = 0) -> int:
        """How many gaps, or parts of them in the windows, last `at_least_ns` or longer."""
        gaps = self._gaps
        return int((gaps["end_ns"] - gaps["start_ns"] >= at_least_ns).sum())

    def compute(self, *tables: str) -> None:
        """Compute these tables now, on all cores; reading them one by one uses about one."""
        # The explanation first, and what need not wait for it on the other cores meanwhile.
        early = (
            "_explained",
            "_gap_places",
            "_stall_rows",
            "_copies",
            *(_EARLY[t] for t in tables if t in _EARLY),
        )
        side_by_side([partial(getattr, self, name) for name in (*early, *tables)])

    def _in_sight(self, table: pl.DataFrame) -> pl.Series:
        """Rows of `table` that start between the first window's start and the last one's end."""
        windows = self._windows
        return table["start_ns"].is_between(windows["start_ns"].min(), windows["end_ns"].max())

    def _table(self, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """`rows` as the table called `name`, the report's name in front."""
        return self._titled(rows, TABLES[name])

    def _titled(self, rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
        report = pl.lit(self.trace.report).alias("report")
        return rows.select(report, pl.all()).match_to_schema(schema)
