"""Which phase a call belongs to: its thread's ranges, or those it borrows (spec §7).

Backward's kernels are launched by autograd's own threads, on which nobody opened a range; by thread
alone they vanish. A thread without ranges borrows the main thread's, or those of the only other
thread that has any.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.intervals import Axis, flatten, greatest, last_at_or_before
from nsysflow.analysis.options import Options
from nsysflow.analysis.prepare import Prepared
from nsysflow.analysis.schema import ATTRIBUTION
from nsysflow.analysis.stacks import NODES, node_at, phase_ranges, thread_stacks

PATHS: Final = pl.Schema(
    {
        "path": pl.UInt32(),
        "parent_path": pl.UInt32(),
        "depth": pl.Int64(),
        "name": pl.String(),
        "joined": pl.String(),
        "names": pl.List(pl.String),
        "key": pl.String(),
    }
)
"""Distinct lists of range names; `joined` by `/`, `depth` 1 for a path of one name; sorted by `key`
a path comes before what is nested in it, and siblings in the order of their first appearance."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Who was where.

    Attributes:
        ranges: the ranges that can be phases, numbered `range`.
        nodes: `stacks.NODES` (with borrowed stacks and start/end ranges), plus `path`, `process`
            and `depth`; row number = `node`.
        paths: `PATHS`.
        placed: per question asked, row by row, `node` (null: unattributed) and `how`.
        open_time: `node`, `start_ns`, `host_wall_ns`: when a stack was a thread's innermost.
        lent: nodes of a borrowing thread's outermost own range, whose parent is the lender's.
    """

    ranges: pl.DataFrame
    nodes: pl.DataFrame
    paths: pl.DataFrame
    placed: dict[str, pl.DataFrame]
    open_time: pl.DataFrame
    lent: pl.Series

    def path_of(self, node: pl.Series) -> pl.Series:
        """Path number of each node."""
        return self.nodes["path"].gather(node)

    def name_of(self, node: pl.Series) -> pl.Series:
        """Joined path of each node; empty where unattributed."""
        return self.paths["joined"].gather(self.path_of(node)).fill_null("")

    def within(self, paths: pl.DataFrame) -> pl.DataFrame:
        """(`node`, `range`) of every node inside an instance of `paths` (`process`, `path`), with
        the instance: the outermost, where instances nest."""
        named = self.nodes.join(paths.select("process", "path"), on=["process", "path"], how="semi")
        instances = named.select("node", pl.col("range").alias("instance"))
        nodes = self.nodes.select("node", "parent", "depth").join(instances, on="node", how="left")
        found = [pl.DataFrame(schema={"node": pl.UInt32(), "range": pl.UInt32()})]
        for depth in range(1, greatest(nodes["depth"]) + 1):
            above = found[-1].rename({"node": "parent"})
            here = nodes.filter(pl.col("depth") == depth).join(above, on="parent", how="left")
            inside = here.select("node", pl.coalesce("range", "instance").alias("range"))
            found.append(inside.drop_nulls())
        return pl.concat(found)

    def projected(self, paths: pl.DataFrame) -> pl.DataFrame:
        """(`node`, `range`) of every node inside an instance of `paths`, for each such instance."""
        named = self.nodes.join(paths.select("process", "path"), on=["process", "path"], how="semi")
        nodes = self.nodes.select("node", "parent", "depth")
        found = named.select("node", "range")
        for depth in range(2, greatest(nodes["depth"]) + 1):
            here = nodes.filter(pl.col("depth") == depth)
            inside = here.join(found.rename({"node": "parent"}), on="parent")
            found = pl.concat([found, inside.select("node", "range")])
        return found

    def levels(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """`rows` (with `path`), level by level from the deepest: each time all rows of that depth
        or deeper, with the `path` of that depth that holds them."""
        paths = self.paths.select("path", "parent_path", "depth")
        rows = rows.join(paths, on="path")
        here = rows.clear()
        for depth in range(greatest(rows["depth"]), 0, -1):
            here = pl.concat([here, rows.filter(pl.col("depth") == depth)])
            yield here.drop("parent_path", "depth")
            lifted = here.drop("path", "depth").rename({"parent_path": "path"})
            here = lifted.join(paths, on="path").select(rows.columns)


def attribute(
    prepared: Prepared, options: Options, questions: dict[str, pl.DataFrame]
) -> Attribution:
    """Find the phase at each (thread, instant) asked for.

    Args:
        prepared: the trace.
        options: which domains' ranges count.
        questions: by name, frames of `thread_no` (null: no thread, no phase) and `time_ns`.
    """
    ranges = phase_ranges(prepared, options)
    nodes, history = thread_stacks(ranges.filter(pl.col("kind") == "push_pop"))
    slots = _slots(prepared, history)
    spans, span_nodes = _process_spans(prepared, ranges, first_node=len(nodes))
    nodes = pl.concat([nodes, span_nodes])
    asked = questions | {"slots": slots.select("thread_no", "time_ns")}
    lookup = _Lookup(prepared=prepared, history=history, slots=slots, spans=spans)
    found = {name: lookup.stacks_at(frame) for name, frame in asked.items()}
    nodes, composed = _with_borrowed(nodes, list(found.values()))
    placed = {name: _placed(frame, composed) for name, frame in found.items()}
    nodes, paths = _with_paths(nodes, ranges)
    roots = composed.filter(nodes["parent"].gather(composed["own"]).is_null())
    return Attribution(
        ranges=ranges,
        nodes=nodes,
        paths=paths,
        open_time=_open_time(slots, placed.pop("slots"), ranges, span_nodes),
        placed=placed,
        lent=roots["node"],
    )


def _open_time(
    slots: pl.DataFrame, placed: pl.DataFrame, ranges: pl.DataFrame, span_nodes: pl.DataFrame
) -> pl.DataFrame:
    """`Attribution.open_time`: threads' slots, and start/end ranges as a whole."""
    length = pl.col("end_ns") - pl.col("start_ns")
    spans = ranges.select("range", "start_ns", length.alias("host_wall_ns"))
    return pl.concat(
        [
            slots.select(placed["node"], pl.col("time_ns").alias("start_ns"), "host_wall_ns"),
            span_nodes.join(spans, on="range").select("node", "start_ns", "host_wall_ns"),
        ]
    )


def _slots(prepared: Prepared, history: pl.DataFrame) -> pl.DataFrame:
    """The stretches of a thread's history in which a stack was open: `thread_no`, `time_ns`,
    `host_wall_ns` (how long), `place`."""
    axis = prepared.axis
    length = pl.col("place").shift(-1) - pl.col("place")
    return (
        history.with_columns(length.alias("host_wall_ns"))
        .filter(pl.col("node").is_not_null())
        .select(
            axis.track(pl.col("place")).cast(pl.UInt32).alias("thread_no"),
            axis.time_ns(pl.col("place")).alias("time_ns"),
            "host_wall_ns",
            "place",
        )
    )


def _process_spans(
    prepared: Prepared, ranges: pl.DataFrame, *, first_node: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Start/end ranges: which one covers each instant of a process (the last in stack order), on
    the process axis; and a node for each."""
    axis = prepared.axis
    spans = ranges.filter(pl.col("kind") == "start_end").with_row_index("node", offset=first_node)
    process = prepared.threads["process_no"].gather(spans["thread_no"])
    claims = spans.select(
        axis.at(pl.lit(process), pl.col("start_ns")).alias("start"),
        axis.at(pl.lit(process), pl.col("end_ns")).alias("end"),
        "node",
        "row",
    )
    nodes = spans.select("node", pl.lit(None, pl.UInt32).alias("parent"), "range")
    return flatten(claims.sort("start"), rank=_latest_first, keep=["node"]), nodes.match_to_schema(
        NODES
    )


def _latest_first(claims: pl.DataFrame) -> pl.DataFrame:
    return claims.select(-pl.col("start"), "end", -pl.col("row").cast(pl.Int64))


@dataclass(frozen=True, kw_only=True)
class _Lookup:
    """What was open where, by thread, by process, and on the only thread that had a range."""

    prepared: Prepared
    history: pl.DataFrame
    slots: pl.DataFrame
    spans: pl.DataFrame

    def stacks_at(self, asked: pl.DataFrame) -> pl.DataFrame:
        """Per row `own`, `lender` and `span`: the nodes that decide its phase, null where none."""
        threads, axis = self.prepared.threads, self.prepared.axis
        no = asked["thread_no"]
        time_ns = asked["time_ns"]
        own = node_at(self.history, _places(axis, no, time_ns))
        autograd = threads["autograd"].gather(no)
        borrows = (autograd | own.is_null()) & ~threads["main"].gather(no)
        asking = borrows.fill_null(value=False).arg_true()
        lender = pl.repeat(None, len(asked), dtype=pl.UInt32, eager=True)
        if not asking.is_empty():
            found = self._lender_at(no.gather(asking), time_ns.gather(asking))
            lender = lender.scatter(asking, found)
        lost = (own.is_null() & lender.is_null() & no.is_not_null()).arg_true()
        span = pl.repeat(None, len(asked), dtype=pl.UInt32, eager=True)
        if not lost.is_empty():
            process = threads["process_no"].gather(no.gather(lost))
            covering = _covering(self.spans, _places(axis, process, time_ns.gather(lost)))
            span = span.scatter(lost, covering)
        return pl.DataFrame({"own": own, "lender": lender, "span": span})

    def _lender_at(self, no: pl.Series, time_ns: pl.Series) -> pl.Series:
        """The main thread's node, else that of the only other thread with one."""
        threads, axis = self.prepared.threads, self.prepared.axis
        process = threads["process_no"].gather(no)
        main = threads.filter("main").select("process_no", pl.col("thread_no").alias("main_no"))
        main_no = process.to_frame().join(main, on="process_no", how="left", maintain_order="left")[
            "main_no"
        ]
        of_main = node_at(self.history, _places(axis, main_no, time_ns))
        only_no = self._only_thread_at(_places(axis, process, time_ns))
        of_only = node_at(self.history, _places(axis, only_no, time_ns))
        return pl.select(pl.coalesce(of_main, of_only)).to_series()

    def _only_thread_at(self, places: pl.Series) -> pl.Series:
        """The thread that has a range open where no other has, neither main nor autograd."""
        threads, axis = self.prepared.threads, self.prepared.axis
        lends = threads.filter(~pl.col("main") & ~pl.col("autograd"))
        slots = self.slots.join(lends.select("thread_no", "process_no"), on="thread_no")
        place = axis.at(pl.col("process_no"), pl.col("time_ns"))
        count, who = pl.lit(1, pl.Int64), pl.col("thread_no").cast(pl.Int64)
        edges = pl.concat(
            [
                slots.select(place.alias("place"), count.alias("count"), who.alias("who")),
                slots.select(
                    (place + pl.col("host_wall_ns")).alias("place"),
                    -count.alias("count"),
                    -who.alias("who"),
                ),
            ]
        )
        steps = edges.group_by("place").agg(pl.col("count", "who").sum()).sort("place")
        steps = steps.with_columns(pl.col("count", "who").cum_sum())
        only = steps.select(pl.when(pl.col("count") == 1).then(pl.col("who").cast(pl.UInt32)))
        return only.to_series().gather(last_at_or_before(steps["place"], places))


def _places(axis: Axis, track: pl.Series, time_ns: pl.Series) -> pl.Series:
    return pl.select(axis.at(pl.lit(track), pl.lit(time_ns))).to_series()


def _covering(spans: pl.DataFrame, places: pl.Series) -> pl.Series:
    at = last_at_or_before(spans["start"], places)
    inside = places < spans["end"].gather(at)
    node = spans["node"].gather(at)
    return pl.select(pl.when(inside).then(node)).to_series()


def _with_borrowed(
    nodes: pl.DataFrame, found: list[pl.DataFrame]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Nodes for own stacks on top of a lender's; and `lender`, `own`, `node` of each."""
    both = [f.filter(pl.col("own").is_not_null() & pl.col("lender").is_not_null()) for f in found]
    pairs = pl.concat([f.select("lender", "own") for f in both]).unique()
    known = [pairs]
    while not pairs.is_empty():
        pairs = pairs.select("lender", nodes["parent"].gather(pairs["own"]).alias("own"))
        pairs = pairs.drop_nulls().unique()
        known.append(pairs)
    composed = (
        pl.concat(known).unique().sort("lender", "own").with_row_index("node", offset=len(nodes))
    )
    outer = composed.select(
        "node",
        "lender",
        nodes["parent"].gather(composed["own"]).alias("own"),
        pl.col("own").alias("top"),
    ).join(
        composed.rename({"node": "outer"}), on=["lender", "own"], how="left", maintain_order="left"
    )
    added = outer.select(
        "node",
        pl.coalesce("outer", "lender").alias("parent"),
        nodes["range"].gather(outer["top"]).alias("range"),
    )
    return pl.concat([nodes, added.match_to_schema(NODES)]), composed


def _placed(found: pl.DataFrame, composed: pl.DataFrame) -> pl.DataFrame:
    """`node` and `how` from the stacks found."""
    own, lender, span = pl.col("own"), pl.col("lender"), pl.col("span")
    if not composed.is_empty():
        found = found.join(composed, on=["lender", "own"], how="left", maintain_order="left")
    else:
        found = found.with_columns(pl.lit(None, pl.UInt32).alias("node"))
    how = (
        pl.when(lender.is_not_null())
        .then(pl.lit("borrowed"))
        .when(own.is_not_null())
        .then(pl.lit("own"))
        .when(span.is_not_null())
        .then(pl.lit("process_range"))
        .cast(ATTRIBUTION)
    )
    return found.select(pl.coalesce("node", lender, own, span).alias("node"), how.alias("how"))


def _with_paths(nodes: pl.DataFrame, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`nodes` plus `path`, `process` and `depth`; and `PATHS`: names interned level by level."""
    nodes = nodes.with_columns(
        *(ranges[name].gather(nodes["range"]) for name in ("name", "process", "start_ns"))
    )
    here = nodes.filter(pl.col("parent").is_null()).with_columns(
        pl.lit(None, pl.UInt32).alias("parent_path")
    )
    paths, placed = [PATHS.to_frame()], [_PLACED.to_frame()]
    while not here.is_empty():
        found = _level_of_paths(here, paths[-1], first_path=sum(map(len, paths)))
        key = ["parent_path", "name"]
        here = here.join(found.select("path", "depth", *key), on=key, nulls_equal=True)
        paths.append(found)
        placed.append(here.select(_PLACED.names()).match_to_schema(_PLACED))
        above = here.select(pl.col("node").alias("parent"), pl.col("path").alias("parent_path"))
        here = nodes.join(above, on="parent")
    return pl.concat(placed).sort("node"), pl.concat(paths)


_PLACED: Final = pl.Schema(
    {**NODES, "process": pl.Int64(), "path": pl.UInt32(), "depth": pl.Int64()}
)


def _level_of_paths(here: pl.DataFrame, outer: pl.DataFrame, *, first_path: int) -> pl.DataFrame:
    """`PATHS` one level below `outer`, siblings in the order of their first appearance."""
    above = outer.select(pl.col("path").alias("parent_path"), pl.col("joined", "names", "key"))
    number = pl.col("path").cast(pl.String).str.zfill(9)
    return (
        here.group_by("parent_path", "name")
        .agg(pl.col("start_ns").min())
        .sort("parent_path", "start_ns", "name")
        .with_row_index("path", offset=first_path)
        .join(above, on="parent_path", how="left", maintain_order="left")
        .select(
            "path",
            "parent_path",
            (pl.col("names").list.len().fill_null(0).cast(pl.Int64) + 1).alias("depth"),
            "name",
            pl.concat_str("joined", "name", separator="/", ignore_nulls=True).alias("joined"),
            pl.concat_list(pl.col("names").fill_null([]), "name").alias("names"),
            pl.concat_str(pl.col("key").fill_null(""), number).alias("key"),
        )
        .match_to_schema(PATHS)
    )
