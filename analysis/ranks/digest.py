"""What ranks exchange: the few columns of a report, and its program, that judge its run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import polars as pl

from nsysflow.analysis.frames.intervals import Cover, merge, on_axis, reached_before
from nsysflow.analysis.replay.replay import NEVER_NS, Program, network_of, recorded
from nsysflow.analysis.schema import Frame, os_pid
from nsysflow.analysis.selection.timeline import Communication, Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.accounting import ACCOUNTING, gpus_of
from nsysflow.analysis.tables.report_tables import ReportTables
from nsysflow.analysis.tables.steps import STEPS, timed_steps
from nsysflow.analysis.tables.validity import FailedCheck
from nsysflow.analysis.trace import Note

EXCHANGED: Final = Frame(
    """One row per communication kernel of the whole report, by device and start; sends and receives
    are among them. `step` is the one it starts in, null outside. `begun` and `judged` say whether
    it starts in what was selected and in what is judged. `…_before_ns` and `…_until_ns` are the
    exposed times of compute, communication and copies on its device, from the report's begin to its
    start and to its end: what lies between two kernels is a difference, and the rest is idle.
    `overlapped_ns` is its time while another communication kernel ran on its device. `node` is its
    number in BOUNDS; null if the report is not reduced.""",
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "name": pl.String(),
        "operation": pl.String(),
        "communicator": pl.UInt64(),
        "bytes": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "step": pl.Int64(),
        "begun": pl.Boolean(),
        "judged": pl.Boolean(),
        "compute_before_ns": pl.Int64(),
        "comm_before_ns": pl.Int64(),
        "copy_before_ns": pl.Int64(),
        "compute_until_ns": pl.Int64(),
        "comm_until_ns": pl.Int64(),
        "copy_until_ns": pl.Int64(),
        "overlapped_ns": pl.Int64(),
        "node": pl.UInt32(),
    },
)

BOUNDS: Final = Frame(
    """One row per node of a reduced program (`reduced.Reduced`) and source that it waits for.
    `slack_ns` is how much later the node was reached than this source alone required. If its
    sources come earlier, so does the node: by the least, over its sources, of how much earlier the
    source comes plus `slack_ns`.""",
    {"node": pl.UInt32(), "source": pl.UInt32(), "slack_ns": pl.Int64()},
)

STEP_NODES: Final = Frame(
    """One row per step that another step follows. The step begins at `node`, the next one at
    `next_node`.""",
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "step": pl.Int64(),
        "node": pl.UInt32(),
        "next_node": pl.UInt32(),
    },
)

JUDGED_STEPS: Final = Frame(
    """STEPS of what was selected, without what bounds them, and with `judged`: whether the step is
    judged.""",
    {
        **{name: of for name, of in STEPS.items() if not name.startswith("bound")},
        "judged": pl.Boolean(),
    },
)


ORIGIN: Final = 0
"""The node that is never earlier: the beginning of the report."""

_MOST_SOURCES: Final = 3
"""A time that depends on more nodes becomes a node itself. Results are the same with any number.
With this one there are few bounds (6,668 of a step of FSDP2 run 17 times; 7,742 with 2)."""

_NO_BOUND_NS: Final = -NEVER_NS // 2
"""More slack than this means that there is no bound: `NEVER_NS` was subtracted."""

Sources = dict[int, int]
"""The nodes that a time depends on, each with its slack."""


@dataclass(frozen=True)
class Reduced:
    """A program of few nodes. Each has a higher number than its sources.

    Attributes:
        bounds: `schema.BOUNDS`.
        met: by operation, the node at which each collective starts. As a source, this node stands
            for the collective's end.
        begun: by operation, the node at which each other operation starts that was asked for.
    """

    bounds: pl.DataFrame
    met: Mapping[int, int]
    begun: Mapping[int, int]

    @classmethod
    def nothing(cls) -> Self:
        """No nodes, for a report that is not reduced."""
        return cls(BOUNDS.to_frame(), {}, {})


def reduced(program: Program, met: Iterable[int], begun: Iterable[int]) -> Reduced:
    """A program reduced to the starts of some operations, and what these depend on.

    Args:
        program: of a whole report.
        met: the collectives: other ranks decide when they end.
        begun: other operations whose start is needed.
    """
    network = network_of(program)
    reached = pl.Series(network.reached_ns(), dtype=pl.Int64)
    bounds = network.bounds
    sides = []
    for side in ("a", "b"):
        slack = reached - reached[bounds[side]] - bounds[f"{side}_ns"]
        sides += [bounds[side].to_list(), slack.to_list()]
    place = network.ops.to_list()
    lasts_ns = program.ops["length_ns"].to_list()
    kept = {place[op]: (op, lasts_ns[op]) for op in met}
    return _Reduction(kept, {place[op]: op for op in begun}).over(*sides)


class _Reduction:
    """Goes through all nodes of a program and collects those of the reduced one.

    Attributes:
        sources: the sources of each new node, by its number.
        lasts_ns: how long each new node lasts: the length of a collective, else 0.
    """

    def __init__(self, met: Mapping[int, tuple[int, int]], begun: Mapping[int, int]) -> None:
        """Take the operations to keep by their places, collectives with their length in ns."""
        self.met, self.begun = met, begun
        self.sources: list[Sources] = [{}]
        self.lasts_ns: list[int] = [0]

    def over(self, a: list[int], a_ns: list[int], b: list[int], b_ns: list[int]) -> Reduced:
        """The reduced program.

        Args:
            a: per node, the place of its first source.
            a_ns: the slack of that bound.
            b: per node, the place of its second source.
            b_ns: the slack of that bound.
        """
        met: dict[int, int] = {}
        begun: dict[int, int] = {}
        found: list[Sources] = [{ORIGIN: 0}]
        nodes = zip(a, a_ns, b, b_ns, strict=True)
        next(nodes)
        kept = self.met.keys() | self.begun.keys()
        for place, (one, one_ns, other, other_ns) in enumerate(nodes, start=1):
            if one_ns == 0 and other_ns > _NO_BOUND_NS and place not in kept:
                found.append(found[one])  # true of most calls: saves a quarter of the time
                continue
            sources = _combined(found[one], one_ns, found[other], other_ns)
            if place in kept or len(sources) > _MOST_SOURCES:
                sources = self._that_matter(sources)
            if len(sources) > _MOST_SOURCES:
                sources = {self._new_node(sources): 0}
            if place in self.begun:
                begun[self.begun[place]] = self._new_node(sources)
            if place in self.met:
                op, lasts_ns = self.met[place]
                met[op] = self._new_node(sources, lasts_ns)
                sources = {met[op]: 0}
            found.append(sources)
        return Reduced(self._bounds({*met.values(), *begun.values()}), met, begun)

    def _new_node(self, sources: Sources, lasts_ns: int = 0) -> int:
        """The number of a new node with these sources. A collective lasts `lasts_ns`."""
        self.sources.append(sources)
        self.lasts_ns.append(lasts_ns)
        return len(self.sources) - 1

    def _that_matter(self, sources: Sources) -> Sources:
        """The sources that can be the one that limits how much earlier a time is.

        Let source B wait for source A. Then B ends earlier by at most what A does, plus the slack
        between them, plus B's length if it is a collective: all of that may be a wait. If A's slack
        is at least B's slack plus these two, B is always the limit, and A never matters.
        """
        if len(sources) == 1:
            return sources
        found, slack_of, of, lasts_ns = sources.copy(), sources.get, self.sources, self.lasts_ns
        for node in sorted(sources, reverse=True):
            if node in found:
                least_ns = sources[node] + lasts_ns[node]
                for before, ns in of[node].items():
                    if slack_of(before, -1) >= least_ns + ns:
                        found.pop(before, None)
        return found

    def _bounds(self, wanted: set[int]) -> pl.DataFrame:
        """BOUNDS of the nodes that are wanted, and of all that they depend on."""
        for number in range(len(self.sources) - 1, ORIGIN, -1):
            if number in wanted:
                wanted.update(self.sources[number])
        kept = sorted(wanted - {ORIGIN})
        each = [self.sources[number] for number in kept]
        return pl.DataFrame(
            {
                "node": [number for number in kept for _ in self.sources[number]],
                "source": [source for sources in each for source in sources],
                "slack_ns": [ns for sources in each for ns in sources.values()],
            },
            schema=BOUNDS,
        )


def _combined(one: Sources, one_ns: int, other: Sources, other_ns: int) -> Sources:
    """The sources of a node with two bounds: those of both, each with its bound's slack added.

    The origin is never earlier. So a time that depends on it is earlier by at most the slack to it,
    and a source with as much slack or more never matters.
    """
    if one_ns > other_ns:
        one, one_ns, other, other_ns = other, other_ns, one, one_ns
    if one_ns:
        one = {node: ns + one_ns for node, ns in one.items()}
    most_ns = one.get(ORIGIN, _NO_BOUND_NS)
    if other_ns >= most_ns or other is one:
        return one
    more = {
        node: ns + other_ns
        for node, ns in other.items()
        if ns + other_ns < most_ns and ns + other_ns < one.get(node, _NO_BOUND_NS)
    }
    if ORIGIN in more:
        one = {node: ns for node, ns in one.items() if ns <= more[ORIGIN]}
    return one | more if more else one


_STEP: Final = ["process", "device", "step"]

MOST_OPS: Final = 250_000
"""A report with more operations is not reduced: that takes a second for 100,000 kernels, and ten
for a million."""


@dataclass(frozen=True, kw_only=True)
class Digest:
    """What a run needs of one report; small, so that it can travel.

    Attributes:
        report: the report's name.
        source: what wrote it.
        gpus: `device`, `name` of the GPUs of what is judged.
        notes: what the reader should know of it.
        failed: the checks that it fails.
        step_name: the range that is one step; None without steps.
        collectives: `schema.EXCHANGED`.
        steps: `schema.JUDGED_STEPS`.
        accounting: the ACCOUNTING table of what is judged; empty where a rank has judged steps, as
            these are compared then.
        bounds: `schema.BOUNDS`; empty if the report is not reduced.
        step_nodes: `schema.STEP_NODES`.
    """

    report: str
    source: str
    gpus: pl.DataFrame
    notes: tuple[Note, ...]
    failed: tuple[FailedCheck, ...]
    step_name: str | None
    collectives: pl.DataFrame
    steps: pl.DataFrame
    accounting: pl.DataFrame
    bounds: pl.DataFrame = field(default_factory=BOUNDS.to_frame)
    step_nodes: pl.DataFrame = field(default_factory=STEP_NODES.to_frame)


def digest(tables: ReportTables) -> Digest:
    """The digest of one analysed report."""
    trace, judged = tables.trace, tables.judged
    keys = judged.step_keys if judged.view.of_steps else judged.step_keys.clear()
    steps = timed_steps(tables.view).join(
        keys.select(*_STEP, judged=pl.lit(value=True)),
        on=_STEP,
        how="left",
        maintain_order="left",
        nulls_equal=True,
    )
    steps = (
        steps.with_columns(
            pl.lit(trace.report).alias("report"), pl.col("judged").fill_null(value=False)
        )
        .select([*JUDGED_STEPS])
        .match_to_schema(JUDGED_STEPS)
    )
    begins = _begins(tables.timeline)
    program = _reduced(tables.timeline, begins)
    collectives = exchanged(tables.timeline, tables.view, judged.view, program)
    return Digest(
        report=trace.report,
        source=trace.source,
        gpus=gpus_of(judged.view)[["device", "name"]].sort("device"),
        notes=tables.notes,
        failed=tables.failed_checks,
        step_name=tables.step_name,
        collectives=collectives,
        steps=steps,
        accounting=(
            ACCOUNTING.to_frame() if _has_judged_steps(steps, collectives) else judged.accounting
        ),
        bounds=program.bounds,
        step_nodes=_step_nodes(begins, program),
    )


def _has_judged_steps(steps: pl.DataFrame, collectives: pl.DataFrame) -> bool:
    """Whether a rank has a judged step. Where there are collectives, only those who take part in
    them are ranks (`kernels.ranks_of`)."""
    judged, rank = steps.filter("judged"), ["process", "device"]
    if not collectives.is_empty():
        judged = judged.join(collectives, on=rank, how="semi", nulls_equal=True)
    return not judged.is_empty()


def _begins(timeline: Timeline) -> pl.DataFrame:
    """The operation with which each step begins: `process`, `device`, `step`, `op`."""
    key = ["process", "device_no", "start_ns"]
    ops = timeline.events.ops[[*key, "op"]].unique(key, keep="first", maintain_order=True)
    steps = timeline.steps[[*_STEP, "device_no", "start_ns"]]
    return steps.join(ops, on=key, nulls_equal=True).sort(_STEP)[[*_STEP, "op"]]


def _reduced(timeline: Timeline, begins: pl.DataFrame) -> Reduced:
    """The report's program, reduced to its collectives and the begins of its steps.

    A report without collectives, or with more than `MOST_OPS` operations, is not reduced.
    """
    met = timeline.communication["op"]
    if met.is_empty() or len(timeline.events.ops) > MOST_OPS:
        return Reduced.nothing()
    return reduced(recorded(timeline).program, met, begins["op"])


def _step_nodes(begins: pl.DataFrame, program: Reduced) -> pl.DataFrame:
    """STEP_NODES."""
    node = _nodes(begins["op"], program.begun)
    following = pl.col("node").shift(-1).over("process", "device").alias("next_node")
    return (
        begins.with_columns(node.alias("node"), os_pid(pl.col("process")).alias("process"))
        .with_columns(following)
        .drop_nulls(["node", "next_node"])
        .select([*STEP_NODES])
        .match_to_schema(STEP_NODES)
    )


def _nodes(ops: pl.Series, node_of: Mapping[int, int]) -> pl.Series:
    """The node of each operation; null where it has none."""
    return pl.Series([node_of.get(op) for op in ops], dtype=pl.UInt32)


def exchanged(timeline: Timeline, selected: View, judged: View, program: Reduced) -> pl.DataFrame:
    """EXCHANGED.

    Args:
        timeline: the whole report.
        selected: what was selected of it.
        judged: what is judged of it.
        program: the report's reduced program.
    """
    kernels = timeline.communication.sort("device", "op")
    begun = (kernels["op"].is_in(view.ops["op"].implode()) for view in (selected, judged))
    return (
        kernels.with_columns(
            pl.col("short_name").cast(pl.String).alias("name"),
            _step_of(kernels, timeline),
            *(rows.alias(name) for rows, name in zip(begun, ("begun", "judged"), strict=True)),
            *_exposed(kernels, timeline),
            _overlapped(kernels, timeline),
            _nodes(kernels["op"], program.met).alias("node"),
        )
        .with_columns(os_pid(pl.col("process")).alias("process"))
        .select([*EXCHANGED])
        .match_to_schema(EXCHANGED)
    )


def _step_of(kernels: Communication, timeline: Timeline) -> pl.Series:
    """The number of the step in which each kernel starts; null outside."""
    asked = kernels[["process", "device_no", "start_ns"]].with_row_index("row")
    found = asked.sort("start_ns").join_asof(
        timeline.steps.select("process", "device_no", "start_ns", "step", over_ns="end_ns").sort(
            "start_ns"
        ),
        on="start_ns",
        by=["process", "device_no"],
        check_sortedness=False,
    )
    inside = pl.when(pl.col("start_ns") < pl.col("over_ns")).then("step").alias("step")
    return found.sort("row").select(inside).to_series()


def _exposed(kernels: Communication, timeline: Timeline) -> list[pl.Series]:
    """The exposed time of each sort on the kernel's device, before its start and until its end."""
    busy, axis = timeline.busy, timeline.events.axis
    places = on_axis(kernels, axis)
    origin = pl.lit(axis.origin_ns)
    begin = kernels.select(axis.at(pl.col("device_no"), origin)).to_series()
    found = []
    for side, name in (("start", "before"), ("end", "until")):
        compute, with_comm, all_work = (
            cover.between(begin, places[side]) for cover in (busy.compute, busy.with_comm, busy.all)
        )
        found += [
            compute.alias(f"compute_{name}_ns"),
            (with_comm - compute).alias(f"comm_{name}_ns"),
            (all_work - with_comm).alias(f"copy_{name}_ns"),
        ]
    return found


def _overlapped(kernels: Communication, timeline: Timeline) -> pl.Series:
    """For how long another communication kernel ran on the kernel's device."""
    places = on_axis(kernels, timeline.events.axis)
    reached = reached_before(pl.col("end"))
    both = (
        places.sort("start")
        .select("start", pl.min_horizontal("end", reached).alias("end"), reached.alias("reached"))
        .filter(pl.col("start") < pl.col("reached"), pl.col("start") < pl.col("end"))
    )
    return Cover(merge(both)).between(places["start"], places["end"]).alias("overlapped_ns")
