"""`View`: the selected or judged part of a timeline. Every table is a function of a view."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.activity import (
    COPIES,
    LAUNCHES,
    BusyTime,
    Copies,
    Launches,
    with_exposed_time,
)
from nsysflow.analysis.events.classes import PART
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.events.waits import WaitPieces
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.idle.run_ahead import Charges, Gaps
from nsysflow.analysis.idle.samples import HOST_STACKS, LEFT_INSTANTS, by_stack
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.attribution import Attribution, PathSpans, PlacedOps, span_inside
from nsysflow.analysis.phases.work import (
    PathBusy,
    PathCompute,
    PathIdle,
    Work,
    busy_inside,
    busy_of_paths,
    compute_time,
    phase_idle,
    phase_work,
)
from nsysflow.analysis.selection.timeline import COMMUNICATION, Timeline
from nsysflow.analysis.selection.windows import (
    WINDOWS,
    RowParts,
    Windows,
    clip_host_time,
    clip_rows,
    domain_names,
    intersect_windows,
    narrow_charges,
    narrow_gaps,
    narrow_parts,
    require_domains,
    rows_lying_inside,
    rows_starting_inside,
    scale_instants,
    selected_windows,
    whole_windows,
)
from nsysflow.analysis.steps.kinds import (
    STEPS,
    Steps,
    judged_steps,
    selected_steps,
    steps_of_run,
)
from nsysflow.analysis.trace import Trace

OP_PARTS: Final = pl.Schema(
    {
        "node": pl.UInt32(),
        "process": pl.Int64(),
        "device_no": pl.UInt32(),
        "part": PART,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)
"""A row per operation, or part of one in a window, in order."""
OpParts = Annotated[pl.DataFrame, OP_PARTS]

STEP_COUNTS: Final = pl.Schema(
    {"process": pl.Int64(), "device_no": pl.UInt32(), "steps": pl.Int64()}
)
"""How many steps each process has on each device."""

VIEW_LAUNCHES: Final = pl.Schema({**LAUNCHES, "process": pl.Int64(), "node": pl.UInt32()})
"""A row per launch, with the process and the node of its phase."""

LAUNCH_NODES: Final = pl.Schema({"call": pl.UInt32(), "process": pl.Int64(), "node": pl.UInt32()})
"""The same without the times."""

VIEW_COPIES: Final = pl.Schema({**COPIES, "node": pl.UInt32(), "phase": pl.String()})
"""A row per memcpy, with the node and the name of its phase."""

VIEW_COMMUNICATION: Final = pl.Schema(
    {**COMMUNICATION, "busy_ns": pl.Int64(), "exposed_ns": pl.Int64()}
)
"""A row per communication kernel, with the time that it ran and was exposed in the windows."""


_Instants = Annotated[pl.DataFrame | None, LEFT_INSTANTS]


class View:
    """A whole timeline, as tables see it.

    Attributes:
        timeline: the trace behind it.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        windows: Annotated[pl.DataFrame | None, WINDOWS] = None,
        steps: Annotated[pl.DataFrame | None, STEPS] = None,
    ) -> None:
        """Take a timeline.

        Args:
            timeline: the trace behind the view.
            windows: the selected parts of each device's time; None to find them.
            steps: the steps in them; None to find them.
        """
        self.timeline = timeline
        self._windows = windows
        self._steps = steps

    @property
    def trace(self) -> Trace:
        """The report, without its rows."""
        return self.timeline.trace

    @property
    def scratch(self) -> Scratch | None:
        """Where large pieces are kept; None for memory."""
        return self.timeline.scratch

    @property
    def options(self) -> Options:
        """The choices of the caller."""
        return self.timeline.options

    @property
    def events(self) -> Events:
        """The events of the whole trace."""
        return self.timeline.events

    @property
    def attribution(self) -> Attribution:
        """The phases of the whole trace."""
        return self.timeline.attribution

    @property
    def busy(self) -> BusyTime:
        """When each device was busy, in the whole trace."""
        return self.timeline.busy

    @computed_once
    def windows(self) -> Windows:
        """The selected parts of each device's time.

        Raises:
            SelectionError: an option names something that the report lacks, or nothing is left.
        """
        return self._find_windows() if self._windows is None else self._windows

    @computed_once
    def ops(self) -> PlacedOps:
        """The operations that start in the windows, with their phases."""
        return self.timeline.ops

    @computed_once
    def gaps(self) -> Gaps:
        """The gaps in the windows, or their parts, with causes and places."""
        return self.timeline.gaps

    @computed_once
    def idle_parts(self) -> dict[str, RowParts]:
        """The idle time of these gaps by cause and place."""
        parts = self.timeline.idle_parts
        return {cause: rows.rename({"gap": "row"}) for cause, rows in parts.items()}

    @computed_once
    def host_stacks(self) -> Annotated[pl.DataFrame | None, HOST_STACKS]:
        """What the host was running in the idle time of `host` and `launch` in these gaps; None
        where the report does not say."""
        instants = self.host_instants
        return None if instants is None else by_stack(instants, self.attribution.paths["joined"])

    @computed_once
    def host_instants(self) -> _Instants:
        """The idle time of `host` and `launch` in these gaps by what the host was running;
        None where the report does not say."""
        return self._left_of(self.timeline.host_instants)

    @computed_once
    def gil_instants(self) -> _Instants:
        """The idle time of `host` and `launch` in these gaps by the thread that holds the GIL
        meanwhile; None where that is not known."""
        return self._left_of(self.timeline.gil_instants)

    def _left_of(self, instants: _Instants) -> _Instants:
        """What is left of instants in these gaps."""
        return None if instants is None else scale_instants(instants, self.idle_parts, self.gaps)

    @computed_once
    def charges(self) -> Charges:
        """What these gaps charge to each stall call."""
        return self.timeline.gap_causes.charges

    @computed_once
    def steps(self) -> Steps:
        """The steps that start in the windows."""
        return self._find_steps() if self._steps is None else self._steps

    @property
    def of_steps(self) -> bool:
        """Whether the windows are whole steps, so that what lies in them has a mean per step."""
        return False

    @computed_once
    def counts(self) -> Annotated[pl.DataFrame, STEP_COUNTS]:
        """How many steps there are."""
        key = ["process", "device_no"]
        return self.steps.group_by(key).agg(pl.len().cast(pl.Int64).alias("steps")).sort(key)

    @property
    def launches(self) -> Annotated[pl.DataFrame, VIEW_LAUNCHES]:
        """The launches whose first operation starts in the windows; made anew for each reader, as
        only one table has any use for them."""
        rows = self._launches()
        ops = self.timeline.ops.select("process", node="launch_node")
        return rows.hstack(ops[rows["op"]].get_columns())

    @computed_once
    def launching(self) -> Annotated[pl.DataFrame, LAUNCH_NODES]:
        """These launches without their times."""
        launches = self.ops.lazy().filter("first")
        return launches.select("call", "process", node="launch_node").collect()

    @computed_once
    def copies(self) -> Annotated[pl.DataFrame, VIEW_COPIES]:
        """The memcpys that start in the windows, with their phases."""
        copies = self._copies()
        copies = copies.join(self.ops[["op", "node"]], on="op", maintain_order="left")
        return copies.with_columns(self.attribution.name_of(copies["node"]).alias("phase"))

    @computed_once
    def communication(self) -> Annotated[pl.DataFrame, VIEW_COMMUNICATION]:
        """All communication kernels, with the time that each ran and was exposed in the windows."""
        kernels = self.timeline.communication
        return with_exposed_time(kernels, self.windows, self.busy, self.events.axis)

    @computed_once
    def waited(self) -> WaitPieces:
        """The time without compute in the windows, by what was waited for."""
        return self.timeline.waited

    @computed_once
    def work(self) -> Work:
        """What the phases did in the windows."""
        return self.timeline.work

    @computed_once
    def idle(self) -> PathIdle:
        """The idle time in the windows, by phase and cause."""
        return phase_idle(self.attribution, self.gaps, self.idle_parts)

    @computed_once
    def steady_busy(self) -> PathBusy:
        """How long the phases' operations ran in steady steps of their process."""
        key = ["process", "device_no"]
        steps = self.timeline.steps.filter("steady")
        pairs = steps.select(key).unique().with_row_index("pair")
        steps = steps.join(pairs, on=key).sort("pair", "start_ns")
        ops = self.parts_of_ops.join(pairs, on=key, maintain_order="left")
        parts = clip_rows(ops, steps, self.events.axis, "pair")
        return busy_of_paths(self.attribution, parts, self.events.axis)

    @computed_once
    def steady_idle(self) -> PathIdle:
        """The idle time in the windows of the gaps in steady steps, by phase and cause."""
        steady = self.gaps["steady"]
        parts = {
            cause: rows.filter(steady[rows["row"]])
            for cause, rows in self.idle_parts.items()
            if not rows.is_empty()
        }
        return phase_idle(self.attribution, self.gaps, parts)

    @computed_once
    def compute(self) -> PathCompute:
        """How long the phases computed in the windows."""
        return compute_time(self.attribution, self.timeline.ops, self.events.axis)

    @computed_once
    def without_unwaited(self) -> "View":
        """This selection of `Timeline.without_unwaited`."""
        timeline = self.timeline.without_unwaited
        if timeline is self.timeline:
            return self
        return type(self)(timeline, windows=self.windows, steps=self.steps)

    @computed_once
    def parts_of_ops(self) -> OpParts:
        """The parts of operations in the windows."""
        return self.timeline.ops.select(OP_PARTS.names())

    @computed_once
    def spans(self) -> PathSpans:
        """How long the phases' instances ran in the windows."""
        return self.work[["process", "path", "span_ns"]]

    @computed_once
    def work_of_steps(self) -> Work:
        """What the phases did in the steps of `steps`, each step to its end."""
        return self.timeline.work

    def clip_recorded(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """The parts of `pieces` of the recorded time (`device_no`, `start_ns`, `end_ns`, …) that
        belong to the view: all, also before the first operation and after the last."""
        return pieces

    def stalls_in_sight(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The `rows` (stalls with `induced_idle_ns`) that belong to the view."""
        return rows

    def calls_in_sight(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The `rows` (calls) that belong to the view."""
        return rows

    def _find_windows(self) -> Windows:
        return whole_windows(self.events.ops)

    def _find_steps(self) -> Steps:
        return self.timeline.steps

    def _launches(self) -> Launches:
        return self.timeline.launches

    def _copies(self) -> Copies:
        return self.timeline.copies


class NarrowedView(View):
    """The part of a timeline that the options select (spec §2).

    Causes, phases and steps are always those of the whole trace.
    """

    @computed_once
    def ops(self) -> PlacedOps:
        """The operations that start in the windows."""
        return self._starting_inside(self.timeline.ops)

    @computed_once
    def gaps(self) -> Gaps:
        """The parts of gaps in the windows, each with its share of the causes."""
        return narrow_gaps(self.timeline.gaps, self.windows, self.events.axis)

    @computed_once
    def idle_parts(self) -> dict[str, RowParts]:
        """The idle time of these parts of gaps, cut like them."""
        rank = self.attribution.by_name
        return narrow_parts(self.timeline.idle_parts, self.gaps, rank)

    @computed_once
    def charges(self) -> Charges:
        """The charges, cut like their gaps."""
        return narrow_charges(self.timeline.gap_causes.charges, self.gaps, self.timeline.gaps)

    @computed_once
    def waited(self) -> WaitPieces:
        """The pieces of this time that lie in the windows."""
        return clip_rows(self.timeline.waited, self.windows, self.events.axis)

    @computed_once
    def work(self) -> Work:
        """What the phases did: counts of what starts in the windows, and busy time inside them."""
        axis, windows, attribution = self.events.axis, self.windows, self.attribution
        host = clip_host_time(attribution.open_time, windows)
        begun = phase_work(attribution, self.ops, host, axis)
        return busy_inside(attribution, begun, self.parts_of_ops, axis)

    @computed_once
    def compute(self) -> PathCompute:
        """How long the phases computed inside the windows."""
        return compute_time(self.attribution, self.parts_of_ops, self.events.axis)

    @computed_once
    def parts_of_ops(self) -> OpParts:
        """These parts, cut by the windows."""
        ops = self.timeline.ops.select(OP_PARTS.names())
        return clip_rows(ops, self.windows, self.events.axis)

    @computed_once
    def spans(self) -> PathSpans:
        """How much of the phases' instances lies in the windows."""
        return span_inside(self.attribution, self.timeline.ops, self.windows)

    @computed_once
    def work_of_steps(self) -> Work:
        """What the phases did in these whole steps; in a window that cuts a phase, it did less."""
        ops = self.timeline.ops.with_columns(self.timeline.step_of_ops).join(
            self.steps, on=["range", "device_no"], how="semi", maintain_order="left"
        )
        no_host = self.attribution.open_time[["node", "host_wall_ns"]].clear()
        return phase_work(self.attribution, ops, no_host, self.events.axis)

    def clip_recorded(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """The parts that lie in the windows."""
        return clip_rows(pieces, self.windows, self.events.axis)

    def stalls_in_sight(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that start between the first window and the last, or that have idle time behind
        them in a window."""
        return rows.filter(self._begun_within() | (pl.col("induced_idle_ns") > 0))

    def calls_in_sight(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that start between the first window and the last."""
        return rows.filter(self._begun_within())

    def _begun_within(self) -> pl.Expr:
        first, last = self.windows["start_ns"].min(), self.windows["end_ns"].max()
        return pl.col("start_ns").is_between(pl.lit(first), pl.lit(last))

    def _find_windows(self) -> Windows:
        """The windows that all options agree on."""
        whole = self.timeline
        return selected_windows(
            whole.events, whole.attribution, whole.ops, whole.steps, whole.options
        )

    def _find_steps(self) -> Steps:
        inside = self._starting_inside(self.timeline.steps)
        # if processes share a GPU, a window of one may contain another step of the other
        return selected_steps(inside, self.options.steps)

    def _launches(self) -> Launches:
        return self.timeline.launches.join(self.ops, on="op", how="semi")

    def _copies(self) -> Copies:
        return self._starting_inside(self.timeline.copies)

    def _starting_inside(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows_starting_inside(rows, self.windows, self.events.axis)


def view_of(timeline: Timeline) -> View:
    """The view that the timeline's options ask for.

    Raises:
        SelectionError: there is no NVTX domain of a name that they hold.
    """
    options = timeline.options
    require_domains(domain_names(timeline.events.ranges), options, timeline.trace.report)
    asked = (options.device, options.range, options.from_ns, options.to_ns)
    narrowed = bool(options.steps) or any(choice is not None for choice in asked)
    return NarrowedView(timeline) if narrowed else View(timeline)


def judged_view(timeline: Timeline) -> View:
    """The steps that are judged, of those that lie in the selection as a whole; the selection
    itself where there are none, or with `--whole`.

    Raises:
        SelectionError: an option names something that the report lacks.
    """
    return _view_of_steps(timeline, judged_steps(timeline.steps, timeline.options.steps))


def run_view(timeline: Timeline) -> View:
    """What a long run consists of: all steps after start-up that were recorded whole, the long ones
    too. With `--steps` the steps that are judged.

    Raises:
        SelectionError: an option names something that the report lacks.
    """
    if timeline.options.steps:
        return judged_view(timeline)
    return _view_of_steps(timeline, steps_of_run(timeline.steps))


def _view_of_steps(timeline: Timeline, steps: Steps) -> View:
    """The view of those of the steps that lie in the selection as a whole."""
    selected = view_of(timeline)
    if timeline.options.whole:
        return selected
    steps = rows_lying_inside(steps, selected.windows, timeline.events.axis)
    return selected if steps.is_empty() else JudgedView(timeline, steps=steps)


class JudgedView(NarrowedView):
    """Some steps of a timeline, each as a whole."""

    @property
    def of_steps(self) -> bool:
        """True: the windows are the time of whole steps."""
        return True

    def _find_windows(self) -> Windows:
        """The time of the steps; of several processes on a device, of any of them."""
        return intersect_windows(whole_windows(self.events.ops), self.steps, self.events.axis)
