"""What a caller may change in a recorded program, and what that does to it (spec §14)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

import polars as pl

from nsysflow.analysis.events.classes import COPY, SYNC_AFTER_NS
from nsysflow.analysis.frames.columns import matching, median_ns, repeated
from nsysflow.analysis.frames.intervals import Axis, Cover
from nsysflow.analysis.replay.curve import Collectives
from nsysflow.analysis.replay.operations import OVERLAP_NS
from nsysflow.analysis.replay.replay import Program
from nsysflow.analysis.schema import CAUSE
from nsysflow.base.errors import SelectionError, nearest

KINDS: Final = {
    "sync": ("sync",),
    "alloc": ("alloc",),
    "copy": ("blocking_copy",),
    "all": ("sync", "alloc", "blocking_copy"),
    "retry": ("sync", "alloc", "blocking_copy"),
    "churn": ("alloc",),
    "loop": ("sync", "blocking_copy"),
}
"""The classes of calls (spec §3) that each kind of removal takes. `LOOP` takes more than these,
`retry` only those in retries of an allocator (spec §4.6), and `churn` only the others."""

IN_RETRIES: Final = {"retry": True, "churn": False}
"""Whether these kinds take calls in retries, or those outside."""

LOOP: Final = "loop"
"""Where waits stand in a loop that only reads values back, all of the loop goes."""


MOST_FACTOR: Final = 1e6
"""Nobody asks for code a million times slower; a factor above is a slip."""

MOST_PRINTED: Final = 4
"""So many kernels are printed at most: their names are long, and the first ones matter most."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Stalls that are not there any more.

    Attributes:
        kind: of `KINDS`.
        at: a source line, as tables print it, or a phase; None takes all.
    """

    kind: str
    at: str | None = None

    @classmethod
    def parse(cls, typed: str) -> Self:
        """`sync` or `sync@train.py:42` as a removal.

        Raises:
            SelectionError: there is no such kind, or no place follows the @.
        """
        kind, at, place = typed.partition("@")
        if kind not in KINDS:
            near = [f"Did you mean {name}?" for name in nearest(kind, KINDS, most=1)]
            raise SelectionError(" ".join([f"{kind!r} is not one of {', '.join(KINDS)}.", *near]))
        if at and not place:
            raise SelectionError(
                f"{typed!r} names no place: a source line (train.py:42) or a phase follows the @"
            )
        return cls(kind=kind, at=place or None)


def is_factor(value: float) -> bool:
    """Whether the time of a kernel or of host code can be multiplied by it."""
    return 0 <= value <= MOST_FACTOR


@dataclass(frozen=True)
class CallKey:
    """A single call, as a row of syncs.csv names it.

    Attributes:
        process: the system's id, or the report's key.
        thread: the same.
        start_ns: when it starts.
    """

    process: int
    thread: int
    start_ns: int


@dataclass(frozen=True, kw_only=True)
class Changes:
    """All that is changed together; by default nothing.

    Attributes:
        removed: kinds of stalls to remove.
        removed_calls: single calls to remove.
        graphs: phases whose launches become CUDA graphs.
        scaled: kernels by name, and the factor on their time; those that matter most come first.
        faster_host: phases, and the factor on the host's time in them.
        async_copies: copies that block the host do so no longer.
        no_profiler: the profiler's own work takes no time.
        no_gil: no thread waits for Python's lock while another one holds it.
        overlapped: the host of a serving engine prepares a step while the GPU runs the one before.
        even_ranks: every rank of a run computes as long as they do in the mean.
        unawaited: ranks of a run that the others do not wait for.
        collectives: what collectives take that launched nothing, as the report is of one rank.
    """

    removed: tuple[Removal, ...] = ()
    removed_calls: tuple[CallKey, ...] = ()
    graphs: tuple[str, ...] = ()
    scaled: tuple[tuple[str, float], ...] = ()
    faster_host: tuple[tuple[str, float], ...] = ()
    async_copies: bool = False
    no_profiler: bool = False
    no_gil: bool = False
    overlapped: bool = False
    even_ranks: bool = False
    unawaited: tuple[int, ...] = ()
    collectives: Collectives | None = None

    @classmethod
    def together(cls, parts: Iterable[Self]) -> Self:
        """All of these changes at once; of two factors for one name, the smaller one counts."""
        every = list(parts)
        return cls(
            removed=tuple(
                dict.fromkeys(removal for changes in every for removal in changes.removed)
            ),
            removed_calls=tuple(
                dict.fromkeys(call for changes in every for call in changes.removed_calls)
            ),
            graphs=tuple(dict.fromkeys(phase for changes in every for phase in changes.graphs)),
            scaled=_smallest(factor for changes in every for factor in changes.scaled),
            faster_host=_smallest(factor for changes in every for factor in changes.faster_host),
            async_copies=any(changes.async_copies for changes in every),
            no_profiler=any(changes.no_profiler for changes in every),
            no_gil=any(changes.no_gil for changes in every),
            overlapped=any(changes.overlapped for changes in every),
            even_ranks=any(changes.even_ranks for changes in every),
            unawaited=tuple(dict.fromkeys(rank for changes in every for rank in changes.unawaited)),
            collectives=next((one.collectives for one in every if one.collectives), None),
        )

    @property
    def of_calls(self) -> Self:
        """Those that decide which calls there are, and what they do: without changes of times."""
        return type(self)(
            removed=self.removed,
            removed_calls=self.removed_calls,
            graphs=self.graphs,
            async_copies=self.async_copies,
            overlapped=self.overlapped,
        )

    def options(self) -> Iterator[str]:
        """The changes as options of `nsysflow whatif`, word by word: of many kernels the first
        `MOST_PRINTED`. Single calls have none: they are in a file there."""
        for removal in self.removed:
            yield from ("--remove", f"{removal.kind}@{removal.at}" if removal.at else removal.kind)
        for phase in self.graphs:
            yield from ("--graph", phase)
        for kernel, factor in self.scaled[:MOST_PRINTED]:
            yield from ("--scale", f"{kernel}={factor:g}")
        for phase, factor in self.faster_host:
            yield from ("--faster-host", f"{phase}={factor:g}")
        if self.async_copies:
            yield "--async-copies"
        if self.no_profiler:
            yield "--no-profiler"
        if self.no_gil:
            yield "--no-gil"
        if self.overlapped:
            yield "--overlap-scheduling"


def _smallest(factors: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Each name with its smallest factor."""
    smallest: dict[str, float] = {}
    for name, factor in factors:
        smallest[name] = min(factor, smallest.get(name, factor))
    return tuple(smallest.items())


ASYNC_COPY_NS: Final = 5_000
"""What launching a copy costs where a report has no asynchronous one to measure."""


def without_calls(program: Program, nodes: pl.Series) -> Program:
    """`program` in which the calls `nodes` take no time and wait for nothing.

    A blocking copy becomes an asynchronous one: its call costs what such a call does, and its
    operation follows as soon after it as any other. (From pageable memory the host copies first:
    100 us and more lie between the start of the call and that of the operation.)
    """
    gone = repeated(value=False, length=len(program.calls)).scatter(nodes, values=True)
    is_copy = matching(program.calls["name"], COPY)
    launched = program.calls.filter((pl.col("class") == "launch") & is_copy)
    usual = launched.select(median_ns(pl.col("cost_ns"))).item()
    launching = ASYNC_COPY_NS if usual is None else usual
    blocking = pl.col("class") == "blocking_copy"
    cost = pl.when(blocking).then(pl.min_horizontal("cost_ns", launching)).otherwise(0)
    removed, kept = pl.lit(gone), pl.lit(~gone)
    calls = program.calls.with_columns(
        pl.when(removed).then(cost).otherwise("cost_ns").alias("cost_ns"),
        pl.when(removed)
        .then(pl.when(blocking).then(pl.lit("launch")).otherwise(pl.lit("api")).cast(CAUSE))
        .otherwise("class")
        .alias("class"),
        *(pl.when(kept).then(name).alias(name) for name in ("after", "after_ns")),
    )
    copied = pl.col("node").is_in(program.calls.filter(removed & blocking)["node"].implode())
    soon = pl.min_horizontal("lag_ns", program.usual_lag_ns)
    ops = program.ops.with_columns(pl.when(copied).then(soon).otherwise("lag_ns").alias("lag_ns"))
    return replace(program, calls=calls, ops=ops)


def with_late_waits(program: Program, waits: pl.DataFrame) -> Program:
    """`program` in which the host waits for what a step computed only after it launched the next.

    The last wait of a step waits for what that of the step before waited for, the others for
    nothing. Copies block no longer. Calls that wait for nothing, such as removed ones, stay so.

    Args:
        program: what to change.
        waits: `node`, `process`, `range`, in the order of the steps.
    """
    calls = program.calls
    waits = waits.filter(calls["after"][waits["node"]].is_not_null()).with_columns(
        pl.col("range").ne_missing(pl.col("range").shift(-1)).alias("last")
    )
    blocking = waits.filter(calls["class"][waits["node"]] == "blocking_copy")["node"]
    program = without_calls(program, blocking)
    last = waits.filter("last").with_columns(calls["after"][waits.filter("last")["node"]])
    earlier = last.with_columns(pl.col("after").shift(1).over("process"))
    none = waits.filter(~pl.col("last")).select("node", after=pl.lit(None, pl.UInt32))
    moved = pl.concat([none, earlier.select("node", "after")])
    gone = moved.filter(pl.col("after").is_null())["node"]
    return_ns = calls["after_ns"].scatter(gone, None)
    return replace(
        program,
        calls=program.calls.with_columns(
            calls["after"].scatter(moved["node"], moved["after"]).alias("after"),
            return_ns.alias("after_ns"),
        ),
    )


def without_loops(program: Program, loops: pl.DataFrame, launched: pl.Series) -> Program:
    """`program` in which loops cost nothing: their calls, the host's work between these, and what
    they launch.

    Args:
        program: what to change.
        loops: `node`, `first`: their calls. The work before the first call of a loop stays.
        launched: the operations of these calls.
    """
    count = len(program.calls)
    inside = repeated(value=False, length=count).scatter(loops["node"], values=True)
    after_first = loops.filter(~pl.col("first"))["node"]
    behind = repeated(value=False, length=count).scatter(after_first, values=True)
    calls = program.calls.with_columns(
        pl.when(pl.lit(inside)).then(0).otherwise("cost_ns").alias("cost_ns"),
        pl.when(pl.lit(behind)).then(0).otherwise("work_ns").alias("work_ns"),
        *(pl.when(~pl.lit(behind)).then(name).alias(name) for name in ("batch_ns", "fed_after")),
        *(pl.when(~pl.lit(inside)).then(name).alias(name) for name in ("after", "after_ns")),
    )
    gone = pl.col("op").is_in(launched.implode())
    at_once = (
        pl.when(gone).then(pl.min_horizontal(name, 0)).otherwise(name).alias(name)
        for name in ("length_ns", "gap_ns")
    )
    lag = pl.when(gone).then(pl.min_horizontal("lag_ns", 0)).otherwise("lag_ns").alias("lag_ns")
    return replace(
        program,
        calls=calls,
        ops=program.ops.with_columns(*at_once),
        edges=program.edges.with_columns(lag),
    )


def blocking_copies(program: Program) -> pl.Series:
    """The nodes of copies that block the host: by themselves, or by a sync right after them."""
    copying = program.ops.filter(pl.col("kind") == "memcpy")["node"].drop_nulls().unique()
    copies = pl.col("node").is_in(copying.implode()).shift(1)
    behind = pl.col("thread_no") == pl.col("thread_no").shift(1)
    soon = pl.col("start_ns") - pl.col("end_ns").shift(1) <= SYNC_AFTER_NS
    waits = (pl.col("class") == "sync") & behind & soon & copies
    blocks = (pl.col("class") == "blocking_copy") | waits.fill_null(value=False)
    return program.calls.filter(blocks)["node"]


def with_less_work(program: Program, where: Cover, axis: Axis, *, factor: float) -> Program:
    """`program` with the host's time between its calls times `factor` in the intervals `where`. Of
    what was recorded there, as much counts as earlier changes left. A wait for a batch in them is
    the host's time as any other, and no longer ends as recorded; batches that come in them are
    made so much faster.

    Args:
        program: what to change.
        where: on the thread axis.
        axis: of threads.
        factor: 0 for none at all.
    """
    calls = program.calls
    inside_ns = _before_calls(calls, where, axis)
    fed = _inside(calls, calls["asked_ns"], calls["fed_ns"], where, axis) > 0
    faster_ns = (pl.col("feed_ns") * factor).round().cast(pl.Int64)
    return replace(
        program,
        calls=calls.with_columns(
            _work_left(inside_ns > 0, inside_ns, factor),
            calls["batch_ns"].set(inside_ns > 0, None),
            pl.when(pl.lit(fed)).then(faster_ns).otherwise("feed_ns").alias("feed_ns"),
        ),
    )


def _work_left(inside: pl.Series, most_ns: pl.Series, factor: float) -> pl.Expr:
    """`work_ns` of calls with the host's time before them times `factor`.

    Args:
        inside: before which calls there is less work: a wait for a batch there is work as well.
        most_ns: how much of the time before each call is multiplied.
        factor: 0 for none at all.
    """
    waited_ns = pl.when(pl.lit(inside)).then("batch_ns").fill_null(0)
    work_ns = pl.col("work_ns") + waited_ns
    multiplied_ns = pl.min_horizontal(pl.lit(most_ns), work_ns.clip(lower_bound=0))
    less_ns = (multiplied_ns * (1 - factor)).round().cast(pl.Int64)
    return (work_ns - less_ns).clip(lower_bound=0).alias("work_ns")


def with_cheaper_calls(program: Program, where: Cover, axis: Axis) -> Program:
    """`program` with what its calls cost in the intervals `where` gone."""
    calls = program.calls
    inside = _inside(calls, calls["end_ns"] - calls["cost_ns"], calls["end_ns"], where, axis)
    return replace(program, calls=calls.with_columns(pl.col("cost_ns") - pl.lit(inside)))


def _before_calls(calls: pl.DataFrame, where: Cover, axis: Axis) -> pl.Series:
    """How much of the host's time before each call was recorded in the intervals."""
    return _inside(calls, calls["start_ns"] - calls["span_ns"], calls["start_ns"], where, axis)


def _inside(
    calls: pl.DataFrame, begin_ns: pl.Series, end_ns: pl.Series, where: Cover, axis: Axis
) -> pl.Series:
    """How much of `[begin_ns, end_ns)` of each call lies in the intervals."""
    spans = pl.DataFrame({"thread_no": calls["thread_no"], "begin": begin_ns, "end": end_ns})
    first = pl.max_horizontal("begin", axis.origin_ns)
    at = spans.select(
        axis.at(pl.col("thread_no"), first).alias("begin"),
        axis.at(pl.col("thread_no"), pl.max_horizontal("end", first)).alias("end"),
    )
    return where.between(at["begin"], at["end"])


GRAPH_LAUNCH_NS: Final = 8_000
"""What launching a graph costs the host."""

NODE_GAP_NS: Final = 500
"""Between operations of a graph (five real graphs: spec §5)."""


AROUND_LAUNCH_NS: Final = 25_000
"""What Python does around the launch of a graph that is a whole phase, e.g. it looks whether a
capture is on: 9 to 37 us a step in four samples (steps 2 to 4 of trainstep, launch_bound,
trainforward and rolloutcopy, 2026-11-20)."""


@dataclass(frozen=True, kw_only=True)
class GraphRows:
    """The rows of launches in instances of a phase, each of which becomes a graph: whatever times
    the program has.

    Attributes:
        first_call: of each call in a row, the first one of its row; null outside.
        launcher: of each operation in a row, the first call of its row; null outside.
        follows: of each operation, whether the one before it on its stream is in the same row.
        near: of each edge, whether both its operations are in the same row.
        whole: of each call, whether the host's time before it is in an instance that one graph can
            stand for.
        whole_ns: how much of that time goes.
    """

    first_call: pl.Series
    launcher: pl.Series
    follows: pl.Series
    near: pl.Series
    whole: pl.Series
    whole_ns: pl.Series


def graph_rows(program: Program, instance_of_op: pl.Series, whole: Cover, axis: Axis) -> GraphRows:
    """The rows of a program. A row ends at a wait or an allocation, and where another instance
    begins.

    Args:
        program: what to change.
        instance_of_op: for each operation the instance (a number) that it was launched in, or null.
        whole: when instances are open that one graph can stand for, on the thread axis.
        axis: of threads.
    """
    calls, ops, edges = program.calls, program.ops, program.edges
    row = _rows(program, instance_of_op)
    first_call = _first_of_rows(calls, row)
    row_of_op = row[ops["node"]]
    inside_ns = _before_calls(calls, whole, axis)
    kept_ns = repeated(0, len(calls), pl.Int64)
    kept_ns = kept_ns.scatter(_first_launches(program, instance_of_op), AROUND_LAUNCH_NS)
    return GraphRows(
        first_call=first_call,
        launcher=first_call[ops["node"]],
        follows=(row_of_op == row_of_op[ops["prev"]]).fill_null(value=False),
        near=(row_of_op[edges["op"]] == row_of_op[edges["source"]]).fill_null(value=False),
        whole=inside_ns > 0,
        whole_ns=(inside_ns - kept_ns).clip(lower_bound=0),
    )


def with_graphs(program: Program, rows: GraphRows) -> Program:
    """`program` with every row of launches as one graph. The host's time between its launches is
    gone, as are their own costs; in whole instances all but a little of its time is, apart from
    waits for batches."""
    calls = _launched_once(program.calls, rows.first_call)
    near = pl.min_horizontal("lag_ns", NODE_GAP_NS)
    lag_ns = pl.when(pl.lit(rows.near)).then(near).otherwise("lag_ns").alias("lag_ns")
    return replace(
        program,
        calls=calls.with_columns(_work_left(rows.whole, rows.whole_ns, factor=0)),
        ops=_following(program.ops, rows),
        edges=program.edges.with_columns(lag_ns),
    )


def in_no_graph() -> pl.Expr:
    """Whether a call cannot be in a CUDA graph: it waits, or it allocates memory."""
    waits = pl.col("after").is_not_null() & (pl.col("class") != "launch")
    return waits | (pl.col("class") == "alloc")


def _launches(program: Program, instance_of_op: pl.Series) -> pl.DataFrame:
    """Each launch (`node`) with the instance that it is in."""
    instances = pl.DataFrame({"node": program.ops["node"], "instance": instance_of_op})
    return instances.drop_nulls("node").unique("node", keep="first")


def _first_launches(program: Program, instance_of_op: pl.Series) -> pl.Series:
    """The first launch of each instance."""
    launches = _launches(program, instance_of_op).drop_nulls("instance")
    begun = program.calls["start_ns"][launches["node"]]
    in_order = launches.with_columns(begun).sort("start_ns", "node")
    return in_order.unique("instance", keep="first")["node"]


def _rows(program: Program, instance_of_op: pl.Series) -> pl.Series:
    """Per call the number of the row of launches that it is in, null outside; other calls between
    two launches of a row are in it too, unless no graph can contain them."""
    launches = _launches(program, instance_of_op)
    line = (
        program.calls.select("node", "team", "start_ns", "class", in_no_graph().alias("waits"))
        .join(launches.with_columns(launches=True), on="node", how="left")
        .sort("team", "start_ns", "node")
    )
    stands = pl.col("launches").fill_null(value=False) | pl.col("waits")
    inside = pl.when(~pl.col("waits")).then("instance")
    marks = line.filter(stands).select("node", "team", inside.alias("instance"))
    changes = (pl.struct("team", "instance") != pl.struct("team", "instance").shift(1)).fill_null(
        value=True
    )
    marks = marks.with_columns(
        pl.when(pl.col("instance").is_not_null()).then(changes.cum_sum()).alias("row")
    )
    marks = marks.with_columns(
        pl.when(pl.len().over("row") > 1).then("row").alias("row"), marked=True
    )
    line = line.join(marks[["node", "row", "marked"]], on="node", how="left")
    # -1 keeps what lies between two rows from joining them
    known = pl.when("marked").then(pl.col("row").cast(pl.Int64).fill_null(-1))
    before, behind = known.forward_fill(), known.backward_fill()
    line = line.select(
        "node", pl.when((before == behind) & (before >= 0)).then(before).alias("row")
    )
    return line.sort("node")["row"]


def _first_of_rows(calls: pl.DataFrame, row: pl.Series) -> pl.Series:
    """Of each call in a row, the first one of its row."""
    order = calls.select("node", "start_ns", row.alias("row")).drop_nulls("row")
    order = order.sort("start_ns", "node")
    first = order.select("node", pl.col("node").first().over("row").alias("first"))
    return repeated(None, len(calls), pl.UInt32).scatter(first["node"], first["first"])


def _launched_once(calls: pl.DataFrame, first_call: pl.Series) -> pl.DataFrame:
    """`calls` with one call per row that costs anything."""
    leads = (first_call == calls["node"]).fill_null(value=False)
    follows = pl.lit(first_call.is_not_null() & ~leads)
    inside = pl.lit(first_call.is_not_null())
    cost = pl.when(pl.lit(leads)).then(GRAPH_LAUNCH_NS).when(follows).then(0).otherwise("cost_ns")
    return calls.with_columns(
        cost.alias("cost_ns"),
        pl.when(follows).then(pl.lit("api", CAUSE)).otherwise("class").alias("class"),
        pl.when(follows).then(0).otherwise("work_ns").alias("work_ns"),
        *(pl.when(~inside).then(name).alias(name) for name in ("after", "after_ns")),
    )


def _following(ops: pl.DataFrame, rows: GraphRows) -> pl.DataFrame:
    """`ops` launched by the first call of their row, at a graph's distance from each other."""
    launcher = rows.launcher
    graphed = pl.lit(launcher.is_not_null())
    leads = pl.lit((launcher == ops["node"]).fill_null(value=False))
    usual = pl.lit(ops.filter(leads).select(median_ns(pl.col("lag_ns"))).item(), pl.Int64)
    return ops.with_columns(
        pl.when(graphed).then(pl.lit(launcher)).otherwise("node").alias("node"),
        pl.when(graphed & ~leads)
        .then(pl.min_horizontal("lag_ns", usual))
        .otherwise("lag_ns")
        .alias("lag_ns"),
        pl.when(pl.lit(rows.follows) & (pl.col("gap_ns") >= -OVERLAP_NS))
        .then(NODE_GAP_NS)
        .otherwise("gap_ns")
        .alias("gap_ns"),
    )
