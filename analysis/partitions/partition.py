"""`Partition`: a stretch of a report as a timeline of its own, and the view of what is its own."""

import polars as pl

from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.gaps.run_ahead import Explained, explain
from nsysflow.analysis.options import Options
from nsysflow.analysis.partitions.carried import Carried
from nsysflow.analysis.partitions.halo import Stretch, rows_of
from nsysflow.analysis.partitions.outline import Outline
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.view.view import View
from nsysflow.analysis.view.windows import WINDOWS


class Partition(Timeline):
    """The timeline of a stretch of a report, with its halo.

    Attributes:
        stretch: when its own operations start.
        carried: where the report stands before it.
    """

    def __init__(
        self,
        outline: Outline,
        stretch: Stretch,
        carried: Carried,
        options: Options,
        known_steps: pl.DataFrame,
    ) -> None:
        """Take the steps of the whole report: they are found in all partitions together."""
        super().__init__(rows_of(outline, stretch, options), options)
        self.stretch, self.carried = stretch, carried
        self._windows, self._known_steps = outline.windows, known_steps

    @computed_once
    def found_gaps(self) -> pl.DataFrame:
        """The gaps that an operation of its own ends, numbered anew."""
        gaps = Timeline.found_gaps.compute(self)
        next_start_ns = self.events.ops["start_ns"].gather(gaps["next_op"])
        own = gaps.with_columns(next_start_ns.alias("next_ns")).filter(
            self.stretch.holds("next_ns")
        )
        return own.drop("gap", "next_ns").with_row_index("gap")

    @computed_once
    def explained(self) -> Explained:
        """These gaps with their causes; step 3 goes on where the partition before it stopped."""
        return explain(
            self.events,
            self.found_gaps,
            framework_gap_ns=self.options.framework_gap_ns,
            standing=self.carried.numbered(self.events),
        )

    @computed_once
    def steps(self) -> pl.DataFrame:
        """The steps of the whole report."""
        devices = self.events.ops.select("device_no", "device").unique("device_no")
        return self._known_steps.drop("device_no").join(devices, on="device", maintain_order="left")

    @property
    def left(self) -> Carried:
        """Where the report stands behind it."""
        return self.carried.after(self.explained.standing, self.events, self.found_gaps)

    @property
    def windows(self) -> pl.DataFrame:
        """Its part of each device's time: `windows.WINDOWS`."""
        devices = self.events.ops.select("device_no", "device").unique("device_no")
        begin, end = self.stretch.begin_ns, self.stretch.end_ns
        whole = self._windows.join(devices, on="device")
        return (
            whole.select(
                "device_no",
                pl.max_horizontal("first_ns", pl.lit(begin, pl.Int64)).alias("start_ns"),
                pl.min_horizontal("last_ns", pl.lit(end, pl.Int64)).alias("end_ns"),
            )
            .filter(pl.col("end_ns") > pl.col("start_ns"))
            .sort("device_no")
            .match_to_schema(WINDOWS)
        )


class PartitionView(View):
    """What is a partition's own."""

    timeline: Partition

    @computed_once
    def windows(self) -> pl.DataFrame:
        """Its part of each device's time."""
        return self.timeline.windows

    @computed_once
    def ops(self) -> pl.DataFrame:
        """The operations that start in it."""
        return self.timeline.ops.filter(self.timeline.stretch.holds())
