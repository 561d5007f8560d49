"""What rules look at: the judged part of a report."""

from typing import TYPE_CHECKING

import polars as pl

from nsysflow.analysis.findings.kernels.order import kernels_in_order
from nsysflow.analysis.findings.pauses import pause_rows
from nsysflow.analysis.findings.stalls import stall_rows
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.launches import launch_counts
from nsysflow.base.units import duration

if TYPE_CHECKING:
    from nsysflow.analysis.analyze import Tables


class Subject:
    """The judged part of one report: its steady steps, or all of it where there are none.

    Attributes:
        tables: the tables of the judged part, e.g. `subject.tables.gap_summary`.
        whole: the tables of all that was selected.
        timeline: the whole trace.
    """

    def __init__(self, whole: "Tables") -> None:
        self.whole = whole
        self.tables = tables = whole.judged
        self.timeline: Timeline = tables.timeline

    @property
    def view(self) -> View:
        """The judged part itself."""
        return self.tables.view

    @property
    def report(self) -> str:
        """The report's name."""
        return self.timeline.trace.report

    @computed_once
    def kernels(self) -> pl.DataFrame:
        """The judged kernels in order, with what their names and neighbours tell."""
        return kernels_in_order(self.view)

    @computed_once
    def judged_steps(self) -> pl.DataFrame:
        """The steps that are judged: rows of `timeline.steps`; none where a window is judged."""
        return self.view.steps if self.view.of_steps else self.view.steps.clear()

    @computed_once
    def of_steps(self) -> bool:
        """Whether steps are judged. If not, every figure `per step` is of the whole window."""
        return not self.judged_steps.is_empty()

    @computed_once
    def steps(self) -> int:
        """How many steps are judged, on the device that has most of them; at least 1."""
        counts = self.judged_steps.group_by("process", "device_no").len()["len"]
        return max(1, *counts.to_list()) if len(counts) else 1

    @computed_once
    def step_ns(self) -> int:
        """The mean of the judged steps on the device where it is longest; else the window."""
        if not self.of_steps:
            window = self.tables.accounting["window_ns"].max()
            return window if isinstance(window, int) else 0
        lengths = self.judged_steps.with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
        )
        means = lengths.group_by("process", "device_no").agg(pl.col("ns").mean())
        return round(float(means.select(pl.col("ns").max()).item()))

    @computed_once
    def step_paths(self) -> tuple[str, ...]:
        """Which ranges are steps; several if processes differ."""
        return tuple(self.timeline.step_paths["joined"].unique(maintain_order=True))

    @computed_once
    def step_prefixes(self) -> tuple[str, ...]:
        """How the paths of phases inside steps begin: `step/`, or empty for automatic steps, which
        are in no path."""
        paths = self.timeline.step_paths
        prefix = (
            pl.when(pl.col("path").is_null()).then(pl.lit("")).otherwise(pl.col("joined") + "/")
        )
        return tuple(paths.select(prefix).to_series().unique(maintain_order=True))

    @computed_once
    def pauses(self) -> pl.DataFrame:
        """Where a GPU waits for Python and for launches: `pauses.pause_rows`."""
        return pause_rows(self.view, list(self.step_paths))

    @computed_once
    def launches(self) -> pl.DataFrame:
        """Its launches by phase: `launches.launch_counts`."""
        return launch_counts(self.view)

    @computed_once
    def stalls(self) -> pl.DataFrame:
        """Its calls that block the host: `stalls.stall_rows`."""
        return stall_rows(self.view)

    @property
    def a_step(self) -> str:
        """What follows a figure per step in a sentence; nothing where a window is judged."""
        return " a step" if self.of_steps else ""

    def spent(self, ns: int) -> str:
        """A time per step in words: `3.92 ms a step`; `3.92 ms` of a window."""
        return f"{duration(ns)}{self.a_step}"

    def per_step(self, total_ns: int) -> int:
        """A sum over the judged part, per step."""
        return round(total_ns / self.steps)

    def worst_ns(self, rows: pl.DataFrame, column: str) -> int:
        """The sum of a column per step, on the device where it is largest; rows without `device`
        are of one."""
        if rows.is_empty():
            return 0
        if "device" not in rows.columns:
            return self.per_step(int(rows[column].sum()))
        sums = rows.group_by("device").agg(pl.col(column).sum())
        return self.per_step(int(sums[column].max()))  # type: ignore[arg-type]

    def steps_with(self, times_ns: pl.Series) -> int:
        """In how many of the judged steps one of these instants lies; 1 where none are judged."""
        if not self.of_steps:
            return 1
        starts = self.judged_steps["start_ns"].unique().sort()
        return max(1, starts.search_sorted(times_ns, side="right").n_unique())
