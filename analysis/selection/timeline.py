"""`Timeline`: a whole trace with its causes, phases and steps."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis.events.activity import (
    copies,
    launches,
    launches_in_stretches,
    lost_launches,
    stall_calls,
    with_gpu_busy,
)
from nsysflow.analysis.events.busy import Busy, communication_kernels
from nsysflow.analysis.events.events import Events, in_order
from nsysflow.analysis.events.graphs import WrongTimes, captured_before, node_origins
from nsysflow.analysis.events.waits import Producers, producers, split_waits, without_unwaited
from nsysflow.analysis.frames.lookup import scatter_table
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.idle.gaps import find_gaps, gap_places, host_questions
from nsysflow.analysis.idle.places import idle_parts, main_paths
from nsysflow.analysis.idle.run_ahead import GapCauses, find_causes, find_causes_in_slices
from nsysflow.analysis.idle.samples import has_host_stacks, host_instants
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.attribution import Attribution, attribute
from nsysflow.analysis.phases.automatic import is_step
from nsysflow.analysis.phases.graphs import listed_captures
from nsysflow.analysis.phases.inheritance import OpenRanges
from nsysflow.analysis.phases.work import phase_work
from nsysflow.analysis.steps.kinds import with_kinds
from nsysflow.analysis.steps.ranges import find_steps, instance_of_ops, step_paths
from nsysflow.analysis.trace import Trace


class Timeline:
    """A whole trace and everything computed from it. Each piece is computed when it is first read.

    Attributes:
        trace: the report; its rows are freed once `events` exist.
        options: the choices of the caller. The window is not applied here: `view` does that.
    """

    def __init__(self, trace: Trace, options: Options) -> None:
        self.trace = trace.without_rows()
        self.options = options
        self._rows = trace

    @property
    def scratch(self) -> Scratch | None:
        """Where large pieces are kept; None for memory."""
        return self.trace.scratch

    @computed_once
    def events(self) -> Events:
        """The rows of the trace, cleaned, numbered, sorted and joined."""
        events = in_order(self._rows, self.options)
        self._rows = self.trace
        return events

    @computed_once
    def busy(self) -> Busy:
        """When each device was busy."""
        return Busy.of(self.events.ops)

    @computed_once
    def bare_gaps(self) -> pl.DataFrame:
        """All gaps, without their causes."""
        return find_gaps(self.events)

    @computed_once
    def gap_causes(self) -> GapCauses:
        """All gaps with their causes, and the charges to each call."""
        reach_ns, keep_host_side = self.options.framework_gap_ns, has_host_stacks(self.trace)
        if self.scratch is not None and not keep_host_side:
            return find_causes_in_slices(
                self.events, self.bare_gaps, self.scratch, framework_gap_ns=reach_ns
            )
        return find_causes(
            self.events,
            self.bare_gaps,
            framework_gap_ns=reach_ns,
            keep_host_side=keep_host_side,
        )

    @computed_once
    def open_ranges(self) -> OpenRanges:
        """The ranges that can be phases, and when each was open."""
        return OpenRanges.of(self.events, self.options)

    @computed_once
    def attribution(self) -> Attribution:
        """The phase of each operation, of each stall and other call that idle time lies in, and of
        the host in each gap."""
        found = self._open_at_launches()  # while another thread explains the gaps
        calls = self._other_calls.select("thread_no", pl.col("start_ns").alias("time_ns"))
        found = found | {"calls": self.open_ranges.stacks_at(calls)}
        origins = self.node_origins.filter(pl.col("began_ns").is_null())
        listed = listed_captures(self.events.trace, origins, self.options)
        return attribute(self.open_ranges, found, self.captured_nodes, listed)

    @computed_once
    def node_origins(self) -> pl.DataFrame:
        """Where the nodes of CUDA graphs come from: `graph_nodes.NODE_ORIGINS`."""
        return node_origins(self.events)

    @computed_once
    def captured_nodes(self) -> pl.DataFrame:
        """Those that were captured while the report recorded, with `thread_no`."""
        captured = self.node_origins.filter(
            pl.col("began_ns").is_not_null(), pl.col("time_ns") <= self.events.last_ns
        )
        return captured.join(self.events.threads.select("thread", "thread_no"), on="thread")

    @computed_once
    def captured_before(self) -> int:
        """How many operations are of graphs captured before the recording, in unknown ranges."""
        return captured_before(self.events, self.node_origins)

    def _open_at_launches(self) -> dict[str, pl.DataFrame]:
        """What `attribution` needs, apart from the causes of the gaps."""
        launched = pl.col("launch_start_ns").alias("time_ns")
        called = pl.col("start_ns").alias("time_ns")
        questions = {
            "ops": self.events.ops.select("thread_no", launched),
            "hosts": host_questions(self.bare_gaps, self.events.ops),
            "stalls": self._stall_calls.select("thread_no", called),
            "captures": self.captured_nodes.select("thread_no", "time_ns"),
            "steps": self.open_ranges.ranges.filter(is_step()).select("thread_no", called),
        }
        return {name: self.open_ranges.stacks_at(asked) for name, asked in questions.items()}

    @computed_once
    def _other_calls(self) -> pl.DataFrame:
        """The calls that gaps contain and that neither stalled nor launched an operation."""
        calls = self.events.calls
        launched = self.events.ops.select("op", "call", "first").filter("first")
        first_op = scatter_table(len(calls), launched["call"], launched["op"])
        found = pl.concat([each.calls for each in self.gap_causes.in_calls.values()])
        return calls[found.filter(first_op.gather(found).is_null()).unique().sort()]

    @computed_once
    def ops(self) -> pl.DataFrame:
        """All operations, with `node` and `how` of their phase, and `launch_node`."""
        return self.events.ops.hstack(self.attribution.placed["ops"].get_columns())

    @computed_once
    def gap_places(self) -> pl.DataFrame:
        """The places of each gap, from `places`: the host, and the step and phase of its end."""
        hosts = self.attribution.placed["hosts"]["node"]
        return gap_places(self.bare_gaps, self.ops, hosts, self.steps, self.events.axis)

    @computed_once
    def gaps(self) -> pl.DataFrame:
        """All gaps, with their causes and places."""
        return self.gap_causes.gaps.hstack(self.gap_places.get_columns())

    @computed_once
    def idle_parts(self) -> dict[str, pl.DataFrame]:
        """All idle time by cause and place, as `idle_places.IDLE_PARTS`."""
        hosts, queues = (
            self.attribution.path_of(self.gap_places[name])
            for name in ("between_node", "queue_node")
        )
        begun_ns = self.events.calls["start_ns"]
        parts = idle_parts(self.gap_causes, hosts, queues, self._path_of_call, begun_ns)
        self.gap_causes = replace(self.gap_causes, in_calls={})  # nothing else is made of it
        return parts

    @computed_once
    def host_instants(self) -> pl.DataFrame | None:
        """What the host was running in the gaps that it kept waiting: `host_instants.INSTANTS`.
        None where the report does not say."""
        side = self.gap_causes.host_side
        if side is None:
            return None
        host_path = self.attribution.path_of(self.gap_places["between_node"])
        return host_instants(self.events, side, host_path, self._path_of_call)

    @computed_once
    def main_paths(self) -> pl.Series:
        """Per gap, the path of the place with most of its largest cause."""
        return main_paths(self.gap_causes.gaps, self.idle_parts, self.attribution.by_name)

    @computed_once
    def _path_of_call(self) -> pl.Series:
        """The path of each call that idle time lies in or is charged to."""
        placed = self.attribution.placed
        first = self.ops.select("call", "launch_node", "first").filter("first")
        first = first.select("call", node="launch_node")
        stalls = self._stall_calls.select("call", placed["stalls"]["node"])
        others = self._other_calls.select("call", placed["calls"]["node"])
        known = pl.concat([first, stalls, others])
        path = self.attribution.path_of(known["node"])
        return scatter_table(len(self.events.calls), known["call"], path)

    @computed_once
    def work(self) -> pl.DataFrame:
        """What each phase did."""
        host = self.attribution.open_time.select("node", "host_wall_ns")
        return phase_work(self.attribution, self.ops, host, self.events.axis)

    @computed_once
    def step_paths(self) -> pl.DataFrame:
        """Which ranges are steps: `process`, `path`, `joined`."""
        return step_paths(
            self.attribution,
            self.work,
            self.options.step,
            captures=self.trace.captures,
            ops=self.events.ops,
            axis=self.events.axis,
            report=self.trace.report,
        )

    @computed_once
    def step_of_ops(self) -> pl.Series:
        """The step in which each operation was launched, as `range`; null outside."""
        return instance_of_ops(self.attribution, self.step_paths, self.ops, self.events.axis)

    @computed_once
    def steps(self) -> pl.DataFrame:
        """When each step ran on each device, and whether it is `steady`: of `steps.with_kinds`."""
        ops, wrong = self.events.ops, self.wrong_times.rows
        return with_kinds(
            find_steps(self.attribution, self.ops.with_columns(self.step_of_ops)),
            gaps=self.gap_causes.gaps,
            wrong=ops.select("process", "device_no", "start_ns")[wrong],
            compiling=self.attribution.ranges.filter("compiling", pl.col("captured_ns") == 0),
            launches=self.launches_in_stretches,
            captured=self.trace.captures["process"],
            skip=self.options.skip,
            axis=self.events.axis,
        )

    @computed_once
    def launches(self) -> pl.DataFrame:
        """The times of each launch."""
        return launches(self.events)

    @computed_once
    def lost_launches(self) -> pl.DataFrame:
        """The launch calls without an operation."""
        return lost_launches(self.events)

    @computed_once
    def launches_in_stretches(self) -> pl.DataFrame | None:
        """All kernel launches, with `lost`: whether they lost their operations in a row. None where
        none did."""
        return launches_in_stretches(self.events, self.lost_launches)

    @computed_once
    def wrong_times(self) -> WrongTimes:
        """The operations of graphs whose times cannot be right."""
        return WrongTimes.of(self.events.ops)

    @computed_once
    def copies(self) -> pl.DataFrame:
        """Every memcpy, with its label."""
        return copies(self.events)

    @computed_once
    def communication(self) -> pl.DataFrame:
        """Every communication kernel, with NCCL's operation and message, and `phase`."""
        found = communication_kernels(self.events, self.ops)
        return found.with_columns(self.attribution.name_of(found["node"]).alias("phase"))

    @computed_once
    def producers(self) -> Producers:
        """Whom each operation waited for on the GPU."""
        return producers(self.events)

    @computed_once
    def waited(self) -> pl.DataFrame:
        """The time without compute by what was waited for: `split.PIECES`."""
        return split_waits(self.events, self.producers.latest)

    @computed_once
    def without_unwaited(self) -> "Timeline":
        """This timeline with communication and copies only while somebody waited for them, so that
        they hide no idle time; itself where they do not. Its steps are the same."""
        events = without_unwaited(self.events, self.waited, self.busy)
        if events is None:
            return self
        timeline = Timeline(self.trace, self.options)
        timeline.__dict__.update(events=events, steps=self.steps)
        return timeline

    @computed_once
    def stalls(self) -> pl.DataFrame:
        """Every call that blocks the host, with `phase` and how long the GPUs were busy."""
        phase = self.attribution.name_of(self.attribution.placed["stalls"]["node"]).alias("phase")
        return with_gpu_busy(self.events, self._stall_calls.with_columns(phase), self.busy)

    @computed_once
    def _stall_calls(self) -> pl.DataFrame:
        return stall_calls(self.events.calls)
