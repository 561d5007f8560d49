"""`Timeline`: a whole trace with its causes, phases and steps."""

from dataclasses import replace
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events import lost_launches as lost
from nsysflow.analysis.events.activity import (
    STATED_BY_NCCL,
    BlockingCalls,
    BusyTime,
    Copies,
    Launches,
    communication_kernels,
    copies,
    launches,
    stall_calls,
    with_gpu_busy,
)
from nsysflow.analysis.events.events import Calls, Events, in_order
from nsysflow.analysis.events.graphs import (
    LACKING_LAUNCHES,
    CapturedNodes,
    LackingLaunches,
    NodeOrigins,
    WrongTimes,
    captured_before,
    lacking_launches,
    node_origins,
    unseen_waits,
)
from nsysflow.analysis.events.producers import EventWaits, Producers, event_waits, producers
from nsysflow.analysis.events.waits import WaitPieces, split_waits, without_unwaited
from nsysflow.analysis.frames.columns import scatter_table
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.idle import samples
from nsysflow.analysis.idle.descheduled import place_stretches
from nsysflow.analysis.idle.gaps import (
    BareGaps,
    GapPlaces,
    ended_unseen,
    find_gaps,
    gap_places,
    host_questions,
)
from nsysflow.analysis.idle.gil import LockWaits, has_gil, lock_waits
from nsysflow.analysis.idle.launch_stacks import LaunchStacks, launch_stacks
from nsysflow.analysis.idle.places import IdleParts, idle_parts, main_paths
from nsysflow.analysis.idle.run_ahead import (
    ExplainedGaps,
    GapCauses,
    Gaps,
    find_causes,
    find_causes_in_slices,
)
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.attribution import PLACED_OPS, Attribution, PlacedOps, attribute
from nsysflow.analysis.phases.automatic import is_automatic, is_look, is_step
from nsysflow.analysis.phases.engine_steps import EngineSteps, engine_steps, generated_steps
from nsysflow.analysis.phases.graphs import listed_captures
from nsysflow.analysis.phases.stacks import OpenRanges, StacksFound
from nsysflow.analysis.phases.work import Work, phase_work
from nsysflow.analysis.steps.engines import StepSpans, TokenWaits, step_spans, token_waits
from nsysflow.analysis.steps.inferred import (
    INFERRED_STEPS,
    InferredSteps,
    as_ranges,
    infer_steps,
    inferred_paths,
)
from nsysflow.analysis.steps.kinds import STEPS, Steps, compiling_ranges, with_kinds
from nsysflow.analysis.steps.loops import MAIN, Loops, find_loops
from nsysflow.analysis.steps.ranges import (
    StepBounds,
    StepPaths,
    StepTimes,
    early_in_step,
    find_steps,
    step_paths,
    step_times,
)
from nsysflow.analysis.trace import Trace

COMMUNICATION: Final = pl.Schema({**PLACED_OPS, **STATED_BY_NCCL, "phase": pl.String()})
"""A row per communication kernel, with the name of its phase."""
Communication = Annotated[pl.DataFrame, COMMUNICATION]


class Timeline:
    """A whole trace and everything computed from it. Each piece is computed when it is first read.

    Attributes:
        trace: the report; its rows are freed once `events` exist.
        options: the choices of the caller. The window is not applied here: `view` does that.
    """

    def __init__(
        self,
        trace: Trace,
        options: Options,
        *,
        events: Events | None = None,
        steps: Annotated[pl.DataFrame | None, STEPS] = None,
        inferred: Annotated[pl.DataFrame | None, INFERRED_STEPS] = None,
        lacking: Annotated[pl.DataFrame | None, LACKING_LAUNCHES] = None,
    ) -> None:
        """Take a report.

        Args:
            trace: the report.
            options: the choices of the caller.
            events: its events; None to put its rows in order.
            steps: its steps; None to find them.
            inferred: those of them that are inferred; None to find these.
            lacking: the launches of which something is not in the report; None to find them.
        """
        self.trace = trace.without_rows()
        self.options = options
        self._rows = trace  # let go once they are in order
        self._events = events
        self._steps = steps
        self._inferred = inferred
        self._lacking = lacking

    @property
    def scratch(self) -> Scratch | None:
        """Where large pieces are kept; None for memory."""
        return self.trace.scratch

    @computed_once
    def events(self) -> Events:
        """The rows of the trace, cleaned, numbered, sorted and joined."""
        if self._events is not None:
            return self._events
        events = in_order(self._rows, self.options)
        self._rows = self.trace
        return events

    @computed_once
    def busy(self) -> BusyTime:
        """When each device was busy."""
        return BusyTime.of(self.events.ops)

    @computed_once
    def bare_gaps(self) -> BareGaps:
        """All gaps, without their causes."""
        return find_gaps(self.events, self.lacking_launches)

    @computed_once
    def lacking_launches(self) -> LackingLaunches:
        """The launches of which something is not in the report."""
        if self._lacking is not None:
            return self._lacking
        unseen = unseen_waits(self.events, self.producers.latest)
        return pl.concat([lacking_launches(self.events.ops), unseen])

    @computed_once
    def gap_causes(self) -> GapCauses:
        """All gaps with their causes, and the charges to each call."""
        return self._explained_gaps.causes

    @computed_once
    def _explained_gaps(self) -> ExplainedGaps:
        """All gaps with their causes, and what is known of the calls in them."""
        events, gaps, reach_ns = self.events, self.bare_gaps, self.options.framework_gap_ns
        keep_host_side = samples.has_host_stacks(self.trace) or has_gil(self.trace)
        if self.scratch is not None and not keep_host_side:
            return find_causes_in_slices(events, gaps, self.scratch, framework_gap_ns=reach_ns)
        return find_causes(
            events,
            gaps,
            framework_gap_ns=reach_ns,
            keep_host_side=keep_host_side,
            placed=place_stretches(events, reach_ns),
        )

    @computed_once
    def open_ranges(self) -> OpenRanges:
        """The ranges that can be phases, and when each was open."""
        return OpenRanges.of(self.events, self.options)

    @computed_once
    def attribution(self) -> Attribution:
        """The phase of each operation, of each stall and other call that idle time lies in, and of
        the host in each gap."""
        stacks = self._open_at_launches()  # while another thread explains the gaps
        calls = self._other_calls.select("thread_no", pl.col("start_ns").alias("time_ns"))
        stacks = stacks | {"calls": self.open_ranges.stacks_at(calls)}
        origins = self.node_origins.filter(pl.col("began_ns").is_null())
        listed = listed_captures(self.events.trace, origins, self.options)
        return attribute(self.open_ranges, stacks, self.captured_nodes, listed)

    @computed_once
    def node_origins(self) -> NodeOrigins:
        """Where the nodes of CUDA graphs come from."""
        return node_origins(self.events)

    @computed_once
    def captured_nodes(self) -> CapturedNodes:
        """The nodes that were captured while the report recorded."""
        captured = self.node_origins.filter(
            pl.col("began_ns").is_not_null(), pl.col("time_ns") <= self.events.last_ns
        )
        return captured.join(self.events.threads[["thread", "thread_no"]], on="thread")

    @computed_once
    def captured_before(self) -> int:
        """How many operations are of graphs captured before the recording, in unknown ranges."""
        return captured_before(self.events, self.node_origins)

    def _open_at_launches(self) -> dict[str, StacksFound]:
        """What `attribution` needs, apart from the causes of the gaps."""
        launched = pl.col("launch_start_ns").alias("time_ns")
        called = pl.col("start_ns").alias("time_ns")
        questions = {
            "ops": self.events.ops.select("thread_no", launched),
            "hosts": host_questions(self.bare_gaps, self.events.ops),
            "stalls": self._stall_calls.select("thread_no", called),
            "captures": self.captured_nodes[["thread_no", "time_ns"]],
            "steps": self.open_ranges.ranges.filter(is_step()).select("thread_no", called),
        }
        return {name: self.open_ranges.stacks_at(asked) for name, asked in questions.items()}

    @computed_once
    def _other_calls(self) -> Calls:
        """The calls that gaps contain and that neither stalled nor launched an operation."""
        in_calls = self._explained_gaps.in_calls
        calls = self.events.calls
        launched = self.events.ops[["op", "call", "first"]].filter("first")
        first_op = scatter_table(len(calls), launched["call"], launched["op"])
        rows = pl.concat([time.calls for time in in_calls.values()])
        return calls[rows.filter(first_op[rows].is_null()).unique().sort()]

    @computed_once
    def ops(self) -> PlacedOps:
        """All operations, with their phases."""
        return self.events.ops.hstack(self.attribution.placed["ops"].get_columns())

    @computed_once
    def gap_places(self) -> GapPlaces:
        """Where the host was in each gap, and the step and phase of its end."""
        hosts = self.attribution.placed["hosts"]["node"]
        return gap_places(self.bare_gaps, self.ops, hosts, self.steps, self.events.axis)

    @computed_once
    def gaps(self) -> Gaps:
        """All gaps, with their causes and places."""
        return self.gap_causes.gaps.hstack(self.gap_places.get_columns())

    @computed_once
    def idle_parts(self) -> dict[str, IdleParts]:
        """All idle time by cause and place."""
        hosts, queues = (
            self.attribution.path_of(self.gap_places[name])
            for name in ("between_node", "queue_node")
        )
        begun_ns, explained = self.events.calls["start_ns"], self._explained_gaps
        return idle_parts(
            explained.causes, explained.in_calls, hosts, queues, self._path_of_call, begun_ns
        )

    @computed_once
    def host_instants(self) -> Annotated[pl.DataFrame | None, samples.INSTANTS]:
        """What the host was running in the gaps that it kept waiting; None where the report does
        not say."""
        known = samples.has_host_stacks(self.trace)
        return self._instants(samples.cells(self.events)) if known else None

    @computed_once
    def gil_instants(self) -> Annotated[pl.DataFrame | None, samples.INSTANTS]:
        """The same of waits for the GIL; `stack` is the number of the thread that holds it."""
        lock = self.lock_waits
        return None if lock is None else lock.shared_out(self._instants(lock.tiles))

    @computed_once
    def lock_waits(self) -> LockWaits | None:
        """Who waits for the GIL while another thread holds it; None where that is not known."""
        return lock_waits(self.events, self.options.framework_gap_ns)

    def _instants(self, tiles: samples.Cells) -> samples.Instants:
        side = self.gap_causes.host_side
        assert side is not None  # kept where these are asked for
        host_path = self.attribution.path_of(self.gap_places["between_node"])
        return samples.host_instants(self.events, side, tiles, host_path, self._path_of_call)

    @computed_once
    def main_paths(self) -> pl.Series:
        """Per gap, the path of the place with most of its largest cause."""
        return main_paths(self.gap_causes.gaps, self.idle_parts, self.attribution.by_name)

    @computed_once
    def _path_of_call(self) -> pl.Series:
        """The path of each call that idle time lies in or is charged to."""
        placed = self.attribution.placed
        first = self.ops[["call", "launch_node", "first"]].filter("first")
        first = first.select("call", node="launch_node")
        stalls = self._stall_calls.select("call", placed["stalls"]["node"])
        others = self._other_calls.select("call", placed["calls"]["node"])
        known = pl.concat([first, stalls, others])
        path = self.attribution.path_of(known["node"])
        return scatter_table(len(self.events.calls), known["call"], path)

    @computed_once
    def work(self) -> Work:
        """What each phase did."""
        host = self.attribution.open_time[["node", "host_wall_ns"]]
        return phase_work(self.attribution, self.ops, host, self.events.axis)

    @computed_once
    def step_paths(self) -> StepPaths:
        """Which ranges are steps, or which processes have inferred ones."""
        if not self._paths_of_ranges.is_empty():
            return self._paths_of_ranges
        return inferred_paths(self.inferred_steps, self.options.step, self.trace.report)

    @computed_once
    def inferred_steps(self) -> InferredSteps:
        """The steps that are inferred from what repeats; none where ranges are steps."""
        if self._inferred is not None:
            return self._inferred
        known = not self._paths_of_ranges.is_empty()
        return INFERRED_STEPS.to_frame() if known else infer_steps(self.events)

    @computed_once
    def with_inferred(self) -> Attribution:
        """The phases, with the inferred steps among their ranges, as automatic steps are."""
        if self.inferred_steps.is_empty():
            return self.attribution
        known = self.attribution.ranges
        steps = as_ranges(self.inferred_steps, self.events, first_range=len(known))
        return replace(self.attribution, ranges=pl.concat([known, steps]))

    @computed_once
    def _paths_of_ranges(self) -> StepPaths:
        return step_paths(
            self.attribution,
            self.work,
            self.options.step,
            captures=self.trace.captures,
            ops=self.ops,
            axis=self.events.axis,
            report=self.trace.report,
        )

    @computed_once
    def loops(self) -> Loops:
        """What repeats: the steps, and the other loops beside them."""
        return find_loops(
            self.with_inferred, self.work, self.step_paths, self.ops, self.events.axis
        )

    @computed_once
    def step_of_ops(self) -> pl.Series:
        """The step in which each operation was launched, as `range`; null outside."""
        placed = self.loops.of_ops
        return placed.select(pl.when(pl.col("loop") == MAIN).then("range").alias("range"))["range"]

    @computed_once
    def launch_stacks(self) -> LaunchStacks:
        """Which code made each launch; None where the report does not say."""
        return launch_stacks(self.events, self.ops.with_columns(step=self.step_of_ops))

    @computed_once
    def instances(self) -> StepTimes:
        """When each step, and each instance of another loop, ran on each device."""
        return step_times(self.with_inferred, self._ops_of_steps)

    @computed_once
    def _ops_of_steps(self) -> pl.DataFrame:
        """The operations, with what `find_steps` asks of them."""
        ops = self.ops.hstack(self.loops.of_ops.get_columns())
        early = early_in_step(ops, ended_unseen(self.bare_gaps, self.events))
        return ops.with_columns(early.alias("early"))

    def steps_with(self, ops: pl.DataFrame) -> StepBounds:
        """When each step runs with the operations, in their order, at these times."""
        rows = self.instances
        if ops is not self.events.ops:
            moved = self._ops_of_steps.with_columns(ops["start_ns"], ops["end_ns"])
            rows = find_steps(self.with_inferred, moved)
        return rows.filter(pl.col("loop") == MAIN)

    @computed_once
    def steps(self) -> Steps:
        """When each step ran on each device, and whether it is typical."""
        if self._steps is not None:
            return self._steps
        ops, wrong = self.events.ops, self.wrong_times.rows
        return with_kinds(
            self.instances.filter(pl.col("loop") == MAIN).drop("loop"),
            gaps=self.gap_causes.gaps,
            wrong=ops[["process", "device_no", "start_ns"]][wrong],
            compiling=compiling_ranges(self.attribution.ranges),
            looks=self.events.ranges.filter(is_look()),
            launches=self.launches_in_stretches,
            captured=self.trace.captures["process"],
            engines=self.engine_steps,
            communicating=ops.filter(pl.col("part") == "comm")["process"].unique(),
            skip=self.options.skip,
            axis=self.events.axis,
        )

    @computed_once
    def engine_steps(self) -> EngineSteps:
        """The steps that are a serving engine's, or one token of `generate`, with the numbers in
        their names."""
        of_steps = self.instances.filter(pl.col("loop") == MAIN)
        ranges = self.attribution.ranges.join(of_steps, on="range", how="semi")
        ours = self.events.ranges.filter(is_automatic())
        return pl.concat(
            [
                engine_steps(ranges, self.events.ranges),
                generated_steps(ranges.filter(is_step()), ours),
            ]
        )

    @computed_once
    def engine_spans(self) -> StepSpans:
        """When the host works on each step of a serving engine."""
        return step_spans(self.steps, self.engine_steps)

    @computed_once
    def token_waits(self) -> TokenWaits:
        """The calls at which the host of a serving engine waits for what a step computed."""
        named = self.engine_steps.filter(~pl.col("automatic"))
        return token_waits(step_spans(self.steps, named), self.events)

    @computed_once
    def launches(self) -> Launches:
        """The times of each launch."""
        return launches(self.events)

    @computed_once
    def lost_launches(self) -> lost.LostLaunches:
        """The launch calls without an operation."""
        return lost.lost_launches(self.events)

    @computed_once
    def launches_in_stretches(self) -> Annotated[pl.DataFrame | None, lost.MARKED_LAUNCHES]:
        """All kernel launches, and which lost operations in a row; None where none did."""
        return lost.launches_in_stretches(self.events, self.lost_launches)

    @computed_once
    def wrong_times(self) -> WrongTimes:
        """The operations of graphs whose times cannot be right."""
        return WrongTimes.of(self.events.ops)

    @computed_once
    def copies(self) -> Copies:
        """Every memcpy, with its label."""
        return copies(self.events)

    @computed_once
    def communication(self) -> Communication:
        """Every communication kernel, with NCCL's operation and message, and its phase."""
        kernels = communication_kernels(self.events, self.ops)
        return kernels.with_columns(self.attribution.name_of(kernels["node"]).alias("phase"))

    @computed_once
    def event_waits(self) -> EventWaits:
        """Who waits for which event."""
        return event_waits(self.events)

    @computed_once
    def producers(self) -> Producers:
        """Whom each operation waited for on the GPU."""
        return producers(self.events, self.event_waits)

    @computed_once
    def waited(self) -> WaitPieces:
        """The time without compute, by what was waited for."""
        return split_waits(self.events, self.producers.presumed)

    @computed_once
    def without_unwaited(self) -> "Timeline":
        """This timeline with communication and copies only while somebody waited for them, so that
        they hide no idle time; itself where they do not. Its steps are the same."""
        events = without_unwaited(self.events, self.waited, self.busy)
        if events is None:
            return self
        return Timeline(
            self.trace,
            self.options,
            events=events,
            steps=self.steps,
            inferred=self.inferred_steps,
            lacking=self.lacking_launches,
        )

    @computed_once
    def stalls(self) -> BlockingCalls:
        """Every call that blocks the host, with its phase and how long the GPUs were busy."""
        phase = self.attribution.name_of(self.attribution.placed["stalls"]["node"]).alias("phase")
        return with_gpu_busy(self.events, self._stall_calls.with_columns(phase), self.busy)

    @computed_once
    def _stall_calls(self) -> Calls:
        return stall_calls(self.events.calls)
