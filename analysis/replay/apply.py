"""A recorded program with changes applied, and what the names in a change stand for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

import polars as pl

from nsysflow.analysis.events.retries import in_retries
from nsysflow.analysis.frames.intervals import Cover, between, merge, on_axis, overlaps
from nsysflow.analysis.frames.parallel import computed_once, once_for_each
from nsysflow.analysis.phases.automatic import step_at
from nsysflow.analysis.replay.changes import (
    IN_RETRIES,
    KINDS,
    LOOP,
    CallKey,
    Changes,
    GraphRows,
    Removal,
    blocking_copies,
    graph_rows,
    in_no_graph,
    with_cheaper_calls,
    with_graphs,
    with_late_waits,
    with_less_work,
    without_calls,
    without_loops,
)
from nsysflow.analysis.replay.collectives import on_ranks
from nsysflow.analysis.replay.read_loops import acting_calls, read_loops
from nsysflow.analysis.replay.replay import Program, Recorded
from nsysflow.analysis.schema import os_pid, os_tid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.steps.ranges import (
    automatic_steps_of,
    instance_of_ops,
    instance_ranges,
    paths_named,
)
from nsysflow.base.errors import UnknownName, near_or_all
from nsysflow.base.names import IN_FUNCTION, OUTSIDE

ITSELF: Final = "/."
"""`step/.` is the phase `step` without the phases inside it."""

_NAME: Final = ("short_name", "name")

_FAR: Final = 1 << 61
"""Beyond every place on an axis, and small enough that the length up to it is a number."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """A report's names. All methods raise UnknownName for one that is not there.

    What a name stands for is found once, for those who replay many changes.

    Attributes:
        timeline: the trace.
        recorded: its program.
    """

    timeline: Timeline
    recorded: Recorded

    @once_for_each
    def instances(self, phase: str) -> pl.Series:
        """Per operation the instance of the phase that it was launched in; null outside. `OUTSIDE`
        has one instance, with all that was launched in no range."""
        timeline, node = self.timeline, pl.col("launch_node")
        if phase == OUTSIDE:
            return timeline.ops.select(pl.when(node.is_null()).then(0)).to_series()
        paths, itself = self._named(phase)
        launched = timeline.ops.with_columns(node=node)
        every = instance_of_ops(timeline.with_inferred, paths, launched, timeline.events.axis)
        if not itself:
            return every
        own = node.is_in(self._nodes_of(paths)["node"].implode())
        return launched.select(pl.when(own).then(every)).to_series()

    @once_for_each
    def time_in(self, phase: str) -> Cover:
        """When the host was in the phase, on the axis of threads; `OUTSIDE`: in none."""
        attribution = self.timeline.attribution
        if phase == OUTSIDE:
            anywhen = pl.DataFrame({"start": [-_FAR], "end": [_FAR]})
            return Cover(overlaps(anywhen, between(self._stretches_of(attribution.nodes))))
        named, itself = self._named(phase)
        whole = self._stretches(named)
        if not itself:
            return Cover(whole)
        inside = attribution.nodes.join(attribution.within(named), on="node", how="semi")
        deeper = inside.join(named, on=["process", "path"], how="anti")
        return Cover(merge(overlaps(whole, between(self._stretches_of(deeper)))))

    @once_for_each
    def graph_rows(self, changes: Changes, program: Program) -> GraphRows:
        """The rows of the last of the graphs in `changes`, found once for all programs that differ
        only in their times.

        Args:
            changes: which calls go, and which graphs there are.
            program: with all of that but the last graph.
        """
        phase = changes.graphs[-1]
        whole = self._graphed_time_in(phase, program.calls.filter(in_no_graph()))
        return graph_rows(program, self.instances(phase), whole, self.timeline.events.axis)

    def _graphed_time_in(self, phase: str, waits: pl.DataFrame) -> Cover:
        """When instances of the phase were open that launch something and in which none of `waits`
        begins: those that one launch of a graph can stand for. `OUTSIDE` and `phase/.` have
        none."""
        if phase == OUTSIDE or phase.endswith(ITSELF):
            return Cover(pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64}))
        axis = self.timeline.events.axis
        ranges = self._launching_ranges(phase)
        place = axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("place")
        begun = waits.select(place).to_series().sort()
        holds = begun.search_sorted(ranges["end"]) > begun.search_sorted(ranges["start"])
        waiting = ranges["range"].filter(holds).unique()
        kept = ranges.filter(~pl.col("range").is_in(waiting.implode()))
        return Cover(merge(kept[["start", "end"]]))

    @once_for_each
    def _launching_ranges(self, phase: str) -> pl.DataFrame:
        """`range`, `start`, `end` of the phase's open ranges that launch something, on the axis of
        threads."""
        launching = self.instances(phase).drop_nulls().unique()
        named, _ = self._named(phase)
        ranges = self._open_ranges(named).filter(pl.col("range").is_in(launching.implode()))
        return ranges[["range"]].hstack(on_axis(ranges, self.timeline.events.axis, "thread_no"))

    @once_for_each
    def stalls(self, removal: Removal) -> pl.Series:
        """The calls that a removal takes: nodes of the program."""
        calls = self.recorded.program.calls
        kind = calls.filter(pl.col("class").is_in(KINDS[removal.kind]))["node"]
        if removal.kind in IN_RETRIES:
            events = self.timeline.events
            retried = in_retries(calls[kind], events.retries, events.axis)
            kind = kind.filter(retried == IN_RETRIES[removal.kind])
        if removal.at is None:
            return kind
        there = self._stalls_at(removal.at)
        return kind.filter(kind.is_in(there.implode()))

    @once_for_each
    def loops(self, removal: Removal) -> pl.DataFrame:
        """The loops that the stalls of a removal stand in: `node`, `first` of their calls."""
        calls, events = self.recorded.program.calls, self.timeline.events
        reads = calls["call"][self.stalls(removal)]
        acting = acting_calls(events, self.timeline.options.kernel_classes)
        loops = read_loops(acting, reads)
        return loops.select("first", self.recorded.node_of_call[loops["call"]].alias("node"))

    @computed_once
    def token_waits(self) -> pl.DataFrame:
        """`node`, `process`, `range` of the calls that wait for what a step of a serving engine
        computed, in the order of the steps; a call that another one made is part of that one."""
        timeline, calls = self.timeline, self.recorded.program.calls
        if timeline.engine_steps["automatic"].all():
            raise UnknownName(
                f"no step of a serving engine in {timeline.trace.report}",
                "Engines name their steps if they are told to: spec §23 has the names",
            )
        known = timeline.token_waits.with_columns(
            self.recorded.node_of_call[timeline.token_waits["call"]].alias("node")
        ).drop_nulls("node")
        known = known.unique("node", keep="last", maintain_order=True)
        return known.select("node", calls["process_no"][known["node"]].alias("process"), "range")

    def factors(self, scaled: Iterable[tuple[str, float]]) -> pl.Series:
        """What to multiply each operation's time with: kernels and copies of these names,
        short or full, by theirs (the smallest where several fit), others by 1."""
        ops = self.timeline.events.ops
        columns = {"asked": pl.String(), "factor": pl.Float64()}
        asked = pl.DataFrame(list(scaled), schema=columns, orient="row")
        places = self._spelled.join(asked, on="asked")
        missing = asked.join(places, on="asked", how="anti")
        if not missing.is_empty():
            names = ops["short_name"].unique().cast(pl.String).sort()
            raise self._unknown("kernel or copy", missing["asked"][0], names)
        smallest = places.group_by(_NAME).agg(pl.col("factor").min())
        of_each = ops.select(_NAME).join(smallest, on=_NAME, how="left", maintain_order="left")
        return of_each["factor"].fill_null(1.0)

    @computed_once
    def _spelled(self) -> pl.DataFrame:
        """`asked`, what a kernel or copy is called, short or full; with `short_name` and `name`."""
        known = self.timeline.events.ops.select(_NAME).unique()
        asked = (pl.col(name).cast(pl.String).alias("asked") for name in _NAME)
        return pl.concat([known.with_columns(spelling) for spelling in asked])

    def calls(self, asked: Iterable[CallKey]) -> pl.Series:
        """The rows of single calls in the events."""
        events = self.timeline.events
        keys = [(key.process, key.thread, key.start_ns) for key in asked]
        schema = dict.fromkeys(("p", "t", "start_ns"), pl.Int64)
        rows = pl.DataFrame(keys, schema=schema, orient="row")
        threads = events.threads[["thread_no", "process", "thread"]]
        calls = events.calls[["call", "thread_no", "start_ns"]].join(rows, on="start_ns")
        calls = calls.join(threads, on="thread_no")
        process, thread = pl.col("process"), pl.col("thread")
        mine = ((pl.col("p") == process) | (pl.col("p") == os_pid(process))) & (
            (pl.col("t") == thread) | (pl.col("t") == os_tid(thread))
        )
        chosen = calls.filter(mine)
        missing = rows.join(chosen, on=["p", "t", "start_ns"], how="anti")
        if not missing.is_empty():
            raise self._no_call(missing, len(rows))
        return chosen["call"].unique()

    def _no_call(self, missing: pl.DataFrame, asked: int) -> UnknownName:
        process, thread, start_ns = missing.row(0)
        report = self.timeline.trace.report
        return UnknownName(
            f"{len(missing)} of {asked} calls are not in {report}: the first is of process"
            f" {process}, thread {thread}, start_ns {start_ns}",
            "Take rows of its syncs.csv, with a column thread",
        )

    def _stalls_at(self, place: str) -> pl.Series:
        """The stalls at a source line (`train.py:42`, also with ` in step`), at a framework's, at
        both (`train.py:9 via lightning/loop.py:8`), or in a phase."""
        stalls = self.timeline.stalls
        source, via = pl.col("source").cast(pl.String), pl.col("via").cast(pl.String)
        line, inner = (text.str.replace(IN_FUNCTION, "$1") for text in (source, via))
        both = pl.format("{} via {}", line, inner)
        written = (source, via, line, inner, both, pl.format("{} via {}", line, via))
        at_line = stalls.filter(pl.any_horizontal(text == place for text in written))
        if at_line.is_empty():
            names = pl.concat([stalls.select(text.alias("line")) for text in (line, inner, both)])
            at_line = stalls.filter(self._in_phase(place, names.unique()))
        return self.recorded.node_of_call[at_line["call"]].drop_nulls().unique()

    def _in_phase(self, place: str, lines: pl.DataFrame) -> pl.Series:
        """Whether each stall is in a phase; in none for `OUTSIDE`."""
        node = self.timeline.attribution.placed["stalls"]["node"]
        if place == OUTSIDE:
            return node.is_null()
        named, itself = self._named(place, "source line or phase", lines.to_series().drop_nulls())
        inside = self._nodes_of(named) if itself else self.timeline.attribution.within(named)
        there = node.is_in(inside["node"].implode()).fill_null(value=False)
        return there | self._in_automatic_step(named)

    def _in_automatic_step(self, paths: pl.DataFrame) -> pl.Series:
        """Whether each stall is in one of the automatic steps that `paths` names, if it does."""
        timeline = self.timeline
        asked = timeline.stalls.select("process", pl.col("start_ns").alias("time_ns"))
        steps = automatic_steps_of(timeline.with_inferred, paths)
        return step_at(steps, asked, timeline.events.axis).is_not_null()

    def _named(
        self, phase: str, what: str = "phase", others: Iterable[str] = ()
    ) -> tuple[pl.DataFrame, bool]:
        """`process`, `path`, `name` of a phase, and whether only the phase itself is meant."""
        bare = phase.removesuffix(ITSELF)
        self._check_phase(bare, what, others)
        paths = paths_named(self.timeline.with_inferred, bare, self.timeline.trace.report)
        return paths[["process", "path", "name"]], bare != phase

    def _nodes_of(self, paths: pl.DataFrame) -> pl.DataFrame:
        """The nodes of these paths themselves."""
        return self.timeline.attribution.nodes.join(paths, on=["process", "path"], how="semi")

    def _open_ranges(self, paths: pl.DataFrame) -> pl.DataFrame:
        """`range`, `thread_no`, `start_ns`, `end_ns` of the paths' ranges: on their own thread,
        and on the threads that run backward for it."""
        events = self.timeline.events
        ranges = instance_ranges(self.timeline.with_inferred, paths)
        own = ranges[["range", "thread_no", "process", "start_ns", "end_ns"]]
        backward = events.threads.filter("autograd")[["process", "thread_no"]]
        helped = own.drop("thread_no").join(backward, on="process").select(own.columns)
        return pl.concat([own, helped]).drop("process")

    def _stretches_of(self, nodes: pl.DataFrame) -> pl.DataFrame:
        """When the ranges of the nodes' paths were open, on the axis of threads."""
        names = self.timeline.attribution.paths[["path", "name"]]
        return self._stretches(nodes.join(names, on="path"))

    def _stretches(self, paths: pl.DataFrame) -> pl.DataFrame:
        """When the paths' ranges were open, on the axis of threads."""
        return merge(on_axis(self._open_ranges(paths), self.timeline.events.axis, "thread_no"))

    def _check_phase(self, name: str, what: str = "phase", others: Iterable[str] = ()) -> None:
        paths = self.timeline.attribution.paths
        known = {*paths["name"], *paths["joined"], *self.timeline.step_paths["joined"]}
        if name not in known:
            raise self._unknown(what, name, [*known, *others])

    def _unknown(self, what: str, name: str, known: Iterable[str]) -> UnknownName:
        """The error that proposes the nearest names, or the first ones."""
        seen = f"no {what} {name!r} in {self.timeline.trace.report}"
        return UnknownName(seen, near_or_all(name, sorted({*known})))


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A program that changes are applied to.

    Attributes:
        names: of the recorded program.
        program: that, or the same with other times: without what recording costs, say.
    """

    names: Names
    program: Program

    @classmethod
    def as_recorded(cls, timeline: Timeline, recorded: Recorded) -> Self:
        """A trace's program as it was recorded."""
        return cls(names=Names(timeline=timeline, recorded=recorded), program=recorded.program)

    @once_for_each
    def graphed(self, changes: Changes) -> Program:
        """The program with what changes on the host, and then with each graph: a plan adds one
        after the other to the same changes, and scales kernels in between."""
        if not changes.graphs:
            return _on_host(self, changes)
        program = self.graphed(replace(changes, graphs=changes.graphs[:-1]))
        return with_graphs(program, self.names.graph_rows(changes.of_calls, program))


def changed(baseline: Baseline, changes: Changes) -> Program:
    """The program with all changes: the host's time first, then its calls, then the GPU's, and what
    other ranks add to it last.

    Args:
        baseline: what is changed.
        changes: what is different.

    Raises:
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    names = baseline.names
    program = baseline.graphed(replace(changes, scaled=(), collectives=None))
    for removal in changes.removed:
        if removal.kind == LOOP:
            loops = names.loops(removal)
            recorded_ops = names.recorded.program.ops
            launched = recorded_ops.filter(pl.col("node").is_in(loops["node"].implode()))["op"]
            program = without_loops(program, loops, launched)
    if changes.scaled:
        program = _scaled(program, names.factors(changes.scaled))
    if changes.collectives is not None:
        program = on_ranks(program, names.timeline.events, changes.collectives)
    return program


def _on_host(baseline: Baseline, changes: Changes) -> Program:
    """The program with less of the host's time, and without the calls that go."""
    names, program = baseline.names, baseline.program
    events = names.timeline.events
    axis = events.axis
    if changes.no_profiler:
        own = Cover(merge(on_axis(events.overhead, axis, "thread_no")))
        program = with_less_work(program, own, axis, factor=0)
        program = with_cheaper_calls(program, own, axis)
    lock = names.timeline.lock_waits if changes.no_gil else None
    if lock is not None and not lock.estimated:
        locked = Cover(lock.waits[["start", "end"]])
        program = with_less_work(program, locked, axis, factor=0)
    for phase, factor in changes.faster_host:
        program = with_less_work(program, names.time_in(phase), axis, factor=factor)
    program = _without(program, names, changes)
    return with_late_waits(program, names.token_waits) if changes.overlapped else program


def _without(program: Program, names: Names, changes: Changes) -> Program:
    """Without the calls that a change removes. One that the replay counts as the host's work is
    taken out of that."""
    gone = [names.stalls(removal) for removal in changes.removed]
    if changes.async_copies:
        gone.append(blocking_copies(program))
    if changes.removed_calls:
        rows = names.calls(changes.removed_calls)
        nodes = names.recorded.node_of_call[rows]
        gone.append(nodes.drop_nulls())
        events = names.timeline.events
        others = events.calls[rows.filter(nodes.is_null())]
        where = Cover(merge(on_axis(others, events.axis, "thread_no")))
        program = with_less_work(program, where, events.axis, factor=0)
    return without_calls(program, pl.concat(gone).unique()) if gone else program


def _scaled(program: Program, factors: pl.Series) -> Program:
    """With the time of each operation times its factor."""
    scaled = (pl.col("length_ns") * factors).round().cast(pl.Int64).alias("length_ns")
    return replace(program, ops=program.ops.with_columns(scaled))
