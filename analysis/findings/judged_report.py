"""What rules look at: the judged part of a report, its pauses, and the calls at which its host
waits; and a finding about its kernels, where these could take less time.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.events.classes import SYNC_AFTER_NS
from nsysflow.analysis.events.graphs import capturing_time
from nsysflow.analysis.events.retries import in_retries
from nsysflow.analysis.findings.backward import blocking, offloaded
from nsysflow.analysis.findings.experts import Experts, experts_of
from nsysflow.analysis.findings.frameworks import Frameworks, frameworks_of
from nsysflow.analysis.findings.kernels import kernels_in_order
from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.frames.intervals import Axis
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.phases.names import LOADS_DATA, SAVES_STATE
from nsysflow.analysis.schema import BLOCK, GRID, os_pid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.steps.kinds import Steps, step_time_ns
from nsysflow.analysis.tables.launches import launch_counts
from nsysflow.analysis.tables.report_tables import ReportTables
from nsysflow.analysis.tables.run import PARTS_OF_STEPS
from nsysflow.analysis.tables.syncs import without_inner
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration

LONG_NS: Final = 2_000_000
"""A pause of this length is a single piece of Python, and no launch's. Between two launches Python
takes 20 to 220 us (samples, 2026-11-20), and up to 1.4 ms while it is sampled at 1 kHz
(h200-hf-trainer-samples)."""

LONG_IN_SHORT_STEP_NS: Final = 500_000
"""In a short step a pause of this length is long if it is more than half of all its pauses."""

PAUSE_CAUSES: Final = ("host", "launch", "module_load")
"""The causes of a pause: code of the host's own, what launching costs, and code that is loaded."""


def pause_rows(view: View, step_paths: list[str]) -> pl.DataFrame:
    """The pauses of the judged part: `device`, `process`, `start_ns`, `ns`, `phase` (where the host
    was; `OUTSIDE` in no range), `loads_code` (whether code is loaded in it), `data` (whether its
    phase loads data) and `long`; code is not data, and neither is long.

    Args:
        view: the judged part.
        step_paths: which ranges are steps; `batch` may be one, and then loads nothing.
    """
    parts = view.idle_parts
    places = _by_place(pl.concat([parts[cause][["row", "path", "ns"]] for cause in PAUSE_CAUSES]))
    gaps, loading = view.gaps, parts["module_load"]["row"].unique()
    rows = places.select(
        view.events.ops["device"][gaps["next_op"][places["row"]]].alias("device"),
        gaps["process"][places["row"]],
        gaps["start_ns"][places["row"]],
        "ns",
        "path",
        pl.col("row").is_in(loading.implode()).alias("loads_code"),
    ).join(_phases(view, step_paths), on="path", how="left", maintain_order="left")
    per_step_ns = pl.col("ns").sum().over("device", "process") / max(1, len(view.steps))
    long = (pl.col("ns") >= LONG_NS) | (
        (pl.col("ns") >= LONG_IN_SHORT_STEP_NS) & (2 * pl.col("ns") > per_step_ns)
    )
    loads, data = pl.col("loads_code"), pl.col("data").fill_null(value=False)
    return rows.drop("path").with_columns(
        (data & ~loads).alias("data"),
        (long & ~data & ~loads).alias("long"),
        pl.col("phase").fill_null(OUTSIDE),
    )


def _by_place(pieces: pl.DataFrame) -> pl.DataFrame:
    """The sums of `ns` by `row` and `path`, in order: most pieces are alone, so that a sort of one
    number takes a third of a group-by."""
    at = (pl.col("row").cast(pl.Int64) * (1 << 32)) + (pl.col("path").cast(pl.Int64) + 1).fill_null(
        0
    )
    pieces = pieces.with_columns(at.alias("at")).sort("at")
    lasts = pieces.with_columns(pl.col("ns").cum_sum().alias("up_to")).filter(
        (pl.col("at") != pl.col("at").shift(-1)).fill_null(value=True)
    )
    return lasts.select(
        "row", "path", pl.col("up_to").diff().fill_null(pl.col("up_to")).alias("ns")
    )


def _phases(view: View, step_paths: list[str]) -> pl.DataFrame:
    """Per `path` its name as `phase`, and `data`: whether it loads data."""
    inner = pl.col("joined")
    for path in step_paths:
        inner = inner.str.strip_prefix(path)
    data = inner.str.contains(LOADS_DATA).alias("data")
    return view.attribution.paths.select("path", pl.col("joined").alias("phase"), data)


UNLIKE: Final = 2
"""If later steps take less than half as long, recorded ones waited for something that ended: the
first tokens took 52.7 ms each, as their lengths were new, later ones 11.4 ms (an H100, 2026-11-25).
Recording alone made steps at most 1.8 times as long."""

SCALAR_BYTES: Final = 1 << 16
"""A copy to the host of at most this size reads a value; a larger one moves data. (The driver
copies up to 64 kB through a buffer of its own.)"""


def stall_rows(view: View) -> pl.DataFrame:
    """Every stall of the judged part: `call`, `api`, `kind` (its class), `what` (`read`,
    `fetch`, `pageable`, `pinned`, `sync`, `alloc`, or `retry` in one of the allocator's), `phase`,
    `source`, `via`, `at_phase` (its phase where it has no line), `start_ns`, `blocked_ns`,
    `idle_ns` (behind it, on the GPU where that is most), `process`; and `bytes`, what it copies or
    waits to be copied, null without that."""
    gaps = view.timeline.bare_gaps
    charges = view.charges.with_columns(gaps["device_no"][view.charges["gap"]])
    idle = charges.group_by("call", "device_no").agg(pl.col("ns").sum())
    idle = idle.group_by("call").agg(pl.col("ns").max().alias("idle_ns"))
    rows = (
        without_inner(view.timeline.stalls, view.charges["call"])
        .join(idle, on="call", how="left")
        .with_columns(pl.col("idle_ns").fill_null(0))
    )
    rows = _within(view, rows)
    copied = _copy_of(view, rows)
    source, via = (pl.col(line).cast(pl.String).fill_null("") for line in ("source", "via"))
    return rows.select(
        "call",
        pl.col("name").cast(pl.String).alias("api"),
        pl.col("class").cast(pl.String).alias("kind"),
        _what(view, rows, copied).alias("what"),
        "phase",
        source.alias("source"),
        via.alias("via"),
        pl.when((source == "") & (via == "")).then("phase").otherwise(pl.lit("")).alias("at_phase"),
        "start_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("blocked_ns"),
        "idle_ns",
        view.events.threads["process"][rows["thread_no"]],
        copied["bytes"],
    ).sort("start_ns", "call")


def _within(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """The stalls with idle time behind them in the judged part, or that begin in it."""
    spans = view.windows[["start_ns", "end_ns"]].sort("start_ns")
    begun = spans["start_ns"].search_sorted(rows["start_ns"], side="right")
    past = spans["end_ns"].sort().search_sorted(rows["start_ns"], side="right")
    return rows.filter((begun > past) | (rows["idle_ns"] > 0))


def _what(view: View, rows: pl.DataFrame, copied: pl.DataFrame) -> pl.Series:
    """What each stall does, with its copies (`_copy_of`). A sync of a stream right after a copy on
    its thread waits for that."""
    events = view.events
    retried = in_retries(rows, events.retries, events.axis)
    memory = copied["copy_label"].cast(pl.String)
    to_host = copied["direction"] == "DtoH"
    reads = to_host & (copied["bytes"] <= SCALAR_BYTES)
    pageable = memory.str.starts_with("pageable")
    return rows.select(
        pl.when(pl.lit(retried))
        .then(pl.lit("retry"))
        .when(pl.col("class") == "alloc")
        .then(pl.lit("alloc"))
        .when(pl.lit(reads))
        .then(pl.lit("read"))
        .when(pl.lit(to_host & pageable))
        .then(pl.lit("fetch"))
        .when((pl.col("class") == "blocking_copy") | pl.lit(pageable))
        .then(pl.lit("pageable"))
        .when(pl.lit(memory.str.starts_with("pinned")))
        .then(pl.lit("pinned"))
        .otherwise(pl.lit("sync"))
    ).to_series()


def _copy_of(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """Per stall the copy that it is, or that ended right before it: `direction`, `bytes`,
    `copy_label`; null without one."""
    about = ["direction", "bytes", "copy_label"]
    copies = view.timeline.copies.filter(pl.col("call").is_not_null()).unique("call", keep="first")
    own = rows[["call"]].join(copies, on="call", how="left", maintain_order="left")
    axis = view.events.axis
    before = _place(rows, "start_ns", axis).sort("place", maintain_order=True)
    ended = _place(copies, "launch_end_ns", axis, *about).sort("place")
    found = (
        before.join_asof(ended, on="place", tolerance=SYNC_AFTER_NS, check_sortedness=False)
        .sort("row")
        .select(about)
    )
    for_stream = rows["name"].cast(pl.String).str.contains("StreamSynchronize")
    return pl.DataFrame(
        [
            pl.select(pl.coalesce(own[name], pl.when(pl.lit(for_stream)).then(pl.lit(found[name]))))
            .to_series()
            .alias(name)
            for name in about
        ]
    )


def _place(rows: pl.DataFrame, time: str, axis: Axis, *columns: str) -> pl.DataFrame:
    """`row` and `place`, of an instant on the axis of threads."""
    at = axis.at(pl.col("thread_no"), pl.col(time)).alias("place")
    return rows.with_row_index("row").select("row", at, *columns)


def _step_ns(steps: pl.DataFrame) -> int:
    """What one of these steps takes, rows of `timeline.steps`."""
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    return step_time_ns(steps.with_columns(length))


class JudgedReport:
    """The judged part of one report: its steady steps, or all of it where there are none.

    Attributes:
        tables: the tables of the judged part, e.g. `subject.tables.gap_summary`.
        whole: the tables of all that was selected.
        timeline: the whole trace.
    """

    def __init__(self, whole: ReportTables) -> None:
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

    @property
    def has_ranks(self) -> bool:
        """Whether several processes or GPUs communicate in the report: ranks of one run."""
        communicating = self.timeline.communication[["process", "device"]].unique()
        return len(communicating) > 1

    @computed_once
    def kernels(self) -> pl.DataFrame:
        """The judged kernels in order, with what their names and neighbours tell."""
        return kernels_in_order(self.view)

    @property
    def grids(self) -> pl.DataFrame:
        """The grids and blocks of launches (`GRID`, `BLOCK`), by the `detail` of kernels. A page
        reads no more of a launch, and a finding is the same wherever it is asked for."""
        return self.timeline.trace.shapes[[*GRID, *BLOCK]]

    @computed_once
    def frameworks(self) -> Frameworks:
        """What the program is written with."""
        return frameworks_of(self.timeline)

    @computed_once
    def mostly_captures(self) -> bool:
        """Whether the recording is mostly the capture of graphs (spec §12.11)."""
        return capturing_time(self.timeline.events).is_most

    @computed_once
    def judged_steps(self) -> Steps:
        """The steps that are judged: rows of `timeline.steps`; none where a window is judged."""
        return self.view.steps if self.view.of_steps else self.view.steps.clear()

    @computed_once
    def of_steps(self) -> bool:
        """Whether steps are judged. If not, every figure `per step` is of the whole window."""
        return not self.judged_steps.is_empty()

    @property
    def steps_marked(self) -> bool:
        """Whether ranges mark judged steps: what lies outside all is then mostly between two."""
        return (
            self.of_steps and self.timeline.inferred_steps.is_empty() and not self.kernels_outside
        )

    @computed_once
    def kernels_outside(self) -> bool:
        """Whether most kernels are launched in no range, as where only the optimizer has one."""
        return 2 * self.kernels["node"].null_count() > len(self.kernels)

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
        return _step_ns(self.judged_steps)

    @computed_once
    def run_step_ns(self) -> int:
        """The mean of all steps after start-up, the long ones too, on the device where it is
        longest; else the window. What a step of a long run costs, and what savings are of."""
        if not self.of_steps:
            return self.step_ns
        return _step_ns(self.whole.run_steps.view.steps)

    @property
    def is_unlike_later(self) -> bool:
        """Whether steps that were not recorded take so much less that these are not typical."""
        later_ns = self.timeline.options.unrecorded_step_ns
        return later_ns is not None and UNLIKE * later_ns < self.run_step_ns

    @computed_once
    def recurring_ns(self) -> int:
        """What pauses that recur take more than a typical step, per step after start-up."""
        run = self.whole.run.filter(pl.col("part").is_in(PARTS_OF_STEPS))
        excess_ns = pl.col("excess_ns").filter(pl.col("part") == "recurring").sum()
        mean_ns = (excess_ns / pl.col("count").sum()).fill_nan(0).round().cast(pl.Int64)
        return greatest(run.group_by("process", "device").agg(ns=mean_ns)["ns"])

    @computed_once
    def step_paths(self) -> tuple[str, ...]:
        """Which ranges are steps; several if processes differ."""
        return tuple(self.timeline.step_paths["joined"].unique(maintain_order=True))

    @computed_once
    def step_prefixes(self) -> tuple[str, ...]:
        """How the paths of phases inside steps begin: `step/`, or empty for automatic steps, which
        are in no path, and where most kernels are launched in no range."""
        paths = self.timeline.step_paths
        anywhere = pl.col("path").is_null() | self.kernels_outside
        prefix = pl.when(~anywhere).then(pl.col("joined") + "/").otherwise(pl.lit(""))
        return tuple(paths.select(prefix).to_series().unique(maintain_order=True))

    @computed_once
    def pauses(self) -> pl.DataFrame:
        """Where a GPU waits for Python and for launches: `pauses.pause_rows`."""
        return pause_rows(self.view, list(self.step_paths))

    @computed_once
    def loading_phases(self) -> tuple[str, ...]:
        """The phases that load data, by their names."""
        phases = _phases(self.view, list(self.step_paths)).filter("data")
        return tuple(phases["phase"].unique().sort())

    @computed_once
    def launches(self) -> pl.DataFrame:
        """Its launches by phase: `launches.launch_counts`."""
        return launch_counts(self.view)

    @computed_once
    def stalls(self) -> pl.DataFrame:
        """Its calls that block the host: `stall_rows`; but for those at which a serving engine
        waits for the tokens of a step, which it cannot leave out, and those of `stalls_of_…`."""
        of_others = (self.stalls_of_offloaded, self.stalls_of_checkpoints, self.stalls_of_experts)
        others = pl.concat([some["call"] for some in (self.timeline.token_waits, *of_others)])
        return self._every_stall.filter(~pl.col("call").is_in(others.implode()))

    @computed_once
    def stalls_of_offloaded(self) -> pl.DataFrame:
        """Those that block it for copies of offloaded activations."""
        calls = blocking(self.view, self.offloaded)
        return self._every_stall.filter(pl.col("call").is_in(calls.implode()))

    @computed_once
    def stalls_of_checkpoints(self) -> pl.DataFrame:
        """Those at which it waits in `saving_phases`."""
        return self._every_stall.filter(pl.col("phase").is_in(self.saving_phases))

    @computed_once
    def saving_phases(self) -> tuple[str, ...]:
        """The phases that write checkpoints in half of the judged steps or more: by their names,
        where they copy to the host and launch no kernel."""
        if not self.of_steps:
            return ()
        saving = pl.col("phase").str.contains(SAVES_STATE)
        copies = self.tables.copies.filter(saving, pl.col("direction") == "DtoH")
        busy = self.tables.phases.filter(pl.col("kernels") > 0)["path"]
        phases = copies["phase"].filter(~copies["phase"].is_in(busy.implode())).unique().sort()
        waits = self._every_stall.filter(pl.col("phase").is_in(phases.implode()))
        often = 2 * self.steps_with(waits["start_ns"]) >= self.steps and not waits.is_empty()
        return tuple(phases) if often else ()

    @computed_once
    def stalls_of_experts(self) -> pl.DataFrame:
        """Those at which it waits in loops over experts."""
        return self._every_stall.filter(pl.col("call").is_in(self.experts.waits.implode()))

    @computed_once
    def experts(self) -> Experts:
        """The loops over experts."""
        return experts_of(self.view, self.kernels, self.steps)

    @computed_once
    def _every_stall(self) -> pl.DataFrame:
        return stall_rows(self.view)

    @computed_once
    def offloaded(self) -> pl.DataFrame:
        """The copies of activations that the host keeps for the backward pass."""
        return offloaded(self.view)

    @computed_once
    def copies(self) -> pl.DataFrame:
        """The rows of COPIES, but for those whose copies are mostly of offloaded activations."""
        key = ["process", "device", "phase", "direction", "copy_label"]
        gone = self.offloaded.group_by(key).agg(pl.col("bytes").sum().alias("gone_bytes"))
        gone = gone.with_columns(os_pid(pl.col("process")).alias("process"))
        rows = self.tables.copies.join(
            gone, on=key, how="left", nulls_equal=True, maintain_order="left"
        )
        mostly = 2 * pl.col("gone_bytes").fill_null(0) > pl.col("bytes")
        return rows.filter(~mostly).drop("gone_bytes")

    @property
    def a_step(self) -> str:
        """What follows a figure per step in a sentence; nothing where a window is judged."""
        return " a step" if self.of_steps else ""

    def spent(self, ns: int) -> str:
        """A time per step in words: `3.92 ms a step`; `3.92 ms` of a window."""
        return f"{duration(ns)}{self.a_step}"

    def idle(self, ns: int) -> str:
        """Idle time per step in words: `520 us of GPU idle time a step`."""
        return f"{duration(ns)} of GPU idle time{self.a_step}"

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

    def process_of(self, rows: pl.DataFrame) -> int | None:
        """The OS pid of these rows' process, where several processes use GPUs and they are of one;
        else None."""
        users = self.timeline.events.users["process"].n_unique()
        mine = rows.select(os_pid(pl.col("process")).unique()).to_series().drop_nulls()
        return int(mine[0]) if users > 1 and len(mine) == 1 else None

    def steps_with(self, times_ns: pl.Series) -> int:
        """In how many of the judged steps one of these instants lies; 1 where none are judged."""
        if not self.of_steps:
            return 1
        starts = self.judged_steps["start_ns"].unique().sort()
        return max(1, starts.search_sorted(times_ns, side="right").n_unique())
