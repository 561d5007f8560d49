"""Which phase each call belongs to, as paths of range names (spec §7)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import OPERATIONS
from nsysflow.analysis.events.graphs import CapturedNodes
from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.frames.intervals import Cover, merge
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.phases.graphs import CaptureRanges, GraphReplays
from nsysflow.analysis.phases.stacks import (
    NODES,
    Nodes,
    OpenRanges,
    PhaseRanges,
    StacksFound,
    place_stacks,
    with_inherited,
)
from nsysflow.analysis.schema import ATTRIBUTION

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
"""Distinct lists of range names: `joined` by `/`, `depth` 1 for a path of one name. Sorted by
`key`, a path comes before what is nested in it; siblings are in the order of their first
appearance."""
Paths = Annotated[pl.DataFrame, PATHS]

TREE: Final = pl.Schema({**NODES, "process": pl.Int64(), "path": pl.UInt32(), "depth": pl.Int64()})
"""Stacks of ranges, with inherited ones and start/end ranges; the row number is `node`."""
Tree = Annotated[pl.DataFrame, TREE]

OPEN_TIME: Final = pl.Schema(
    {"node": pl.UInt32(), "start_ns": pl.Int64(), "host_wall_ns": pl.Int64()}
)
"""When a node was a thread's current stack, and how long."""

PLACED_OPS: Final = pl.Schema(
    {**OPERATIONS, "node": pl.UInt32(), "how": ATTRIBUTION, "launch_node": pl.UInt32()}
)
"""The operations with the `node` of their phase (null: unattributed) and `how` it was found.
`launch_node` is that of the launch, which differs for work captured into a graph."""
PlacedOps = Annotated[pl.DataFrame, PLACED_OPS]

PATH_SPANS: Final = pl.Schema({"process": pl.Int64(), "path": pl.UInt32(), "span_ns": pl.Int64()})
"""How long the instances of each path ran."""
PathSpans = Annotated[pl.DataFrame, PATH_SPANS]


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The phase of everything that was asked for.

    Attributes:
        ranges: the ranges that can be phases, numbered `range`.
        nodes: their stacks.
        paths: the names of these.
        placed: per question, row by row, `node` (null: unattributed) and `how`; of operations also
            `launch_node`, that of the launch, which differs for work captured into a graph.
        open_time: when each node was a thread's current stack.
        grafted: nodes of a thread's outermost own range whose parent is inherited.
    """

    ranges: PhaseRanges
    nodes: Tree
    paths: Paths
    placed: dict[str, pl.DataFrame]
    open_time: Annotated[pl.DataFrame, OPEN_TIME]
    grafted: pl.Series

    def path_of(self, node: pl.Series) -> pl.Series:
        """Path number of each node."""
        return self.nodes["path"][node]

    def name_of(self, node: pl.Series) -> pl.Series:
        """Joined path of each node; empty where unattributed."""
        return self.paths["joined"][self.path_of(node)].fill_null("")

    @computed_once
    def by_name(self) -> pl.Series:
        """The rank of each path among all, compared name by name; the first is 1."""
        names = self.paths.select(pl.col("names").list.join("\0").alias("by_name"))
        return names["by_name"].rank("ordinal")

    def within(self, paths: pl.DataFrame) -> pl.DataFrame:
        """Every node inside an instance of `paths` (`process`, `path`): `node`, `range`.

        `range` is the instance, the outermost one where instances nest.
        """
        named = self.nodes.join(paths[["process", "path"]], on=["process", "path"], how="semi")
        instances = named.select("node", pl.col("range").alias("instance"))
        nodes = self.nodes[["node", "parent", "depth"]].join(instances, on="node", how="left")
        members = [pl.DataFrame(schema={"node": pl.UInt32(), "range": pl.UInt32()})]
        for depth in range(1, greatest(nodes["depth"]) + 1):
            above = members[-1].rename({"node": "parent"})
            here = nodes.filter(pl.col("depth") == depth).join(above, on="parent", how="left")
            inside = here.select("node", pl.coalesce("range", "instance").alias("range"))
            members.append(inside.drop_nulls())
        return pl.concat(members)

    def projected(self, paths: pl.DataFrame) -> pl.DataFrame:
        """Like `within`, with a row for each instance that contains the node."""
        named = self.nodes.join(paths[["process", "path"]], on=["process", "path"], how="semi")
        nodes = self.nodes[["node", "parent", "depth"]]
        members = named[["node", "range"]]
        for depth in range(2, greatest(nodes["depth"]) + 1):
            here = nodes.filter(pl.col("depth") == depth)
            inside = here.join(members.rename({"node": "parent"}), on="parent")
            members = pl.concat([members, inside[["node", "range"]]])
        return members

    @computed_once
    def ancestors(self) -> list[pl.Series]:
        """For each depth of the tree, from the deepest: the ancestor of each path at that depth.

        It is the path itself if that has this depth, and null if it has less.
        """
        parent, depths = self.paths["parent_path"], self.paths["depth"]
        at, found = self.paths["path"], []
        for depth in range(greatest(depths), 0, -1):
            found.append(at.set(depths < depth, None).alias("path"))
            at = parent[at].zip_with(depths >= depth, at)
        return found

    def levels(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """`rows` (with `path`) for each depth of the tree, from the deepest.

        Each frame has all rows at that depth or below it, with their path at that depth.
        """
        for ancestor in self.ancestors:
            path = ancestor[rows["path"]]
            level = rows.with_columns(path)
            yield level.drop_nulls("path") if path.null_count() else level


def attribute(
    open_ranges: OpenRanges,
    stacks: dict[str, StacksFound],
    captured: CapturedNodes,
    listed: CaptureRanges,
) -> Attribution:
    """The phase of everything that was asked for.

    Args:
        open_ranges: of the trace.
        stacks: by the question's name, what `open_ranges` found at its (thread, instant) pairs;
            `ops` are the launches of the operations, `captures` the rows of `captured`.
        captured: the nodes of graphs that were captured while the report recorded.
        listed: the ranges of captures from before.
    """
    ranges, slots = open_ranges.ranges, open_ranges.slots
    stacks = stacks | {"slots": open_ranges.stacks_at(slots)}
    nodes, composed = with_inherited(open_ranges.nodes, list(stacks.values()))
    placed = {name: place_stacks(frame, composed) for name, frame in stacks.items()}
    ops = placed["ops"].with_columns(pl.col("node").alias("launch_node"))
    captured = captured.with_columns(placed.pop("captures")["node"])
    captures = CaptureRanges.at(captured, nodes, ranges).and_those(listed)
    tree, paths = _with_paths(nodes, ranges)
    if not captures.stacks.is_empty():
        names = paths["names"][tree["path"]]
        replays = GraphReplays.of(open_ranges, names, ops["node"], captures, first_node=len(nodes))
        ranges = pl.concat([ranges, replays.ranges])
        tree, paths = _with_paths(pl.concat([nodes, replays.nodes]), ranges)
        ops = _with_captured(ops, replays.node_of_op)
    roots = composed.filter(nodes["parent"][composed["own"]].is_null())
    return Attribution(
        ranges=ranges,
        nodes=tree,
        paths=paths,
        open_time=_open_time(slots, placed.pop("slots"), ranges, tree),
        placed=placed | {"ops": ops},
        grafted=roots["node"],
    )


def _open_time(
    slots: pl.DataFrame, placed: pl.DataFrame, ranges: PhaseRanges, nodes: Tree
) -> pl.DataFrame:
    """`Attribution.open_time`: the slots of threads, and whole start/end ranges."""
    length = pl.col("end_ns") - pl.col("start_ns")
    spans = ranges.filter(pl.col("kind") == "start_end").select(
        "range", "start_ns", length.alias("host_wall_ns")
    )
    return pl.concat(
        [
            slots.select(placed["node"], pl.col("time_ns").alias("start_ns"), "host_wall_ns"),
            nodes.join(spans, on="range")[["node", "start_ns", "host_wall_ns"]],
        ]
    )


def _with_captured(ops: pl.DataFrame, captured: pl.Series) -> pl.DataFrame:
    """`ops` with the node in which they were captured, where there is one."""
    node = pl.col("captured")
    how = pl.when(node.is_not_null()).then(pl.lit("captured", ATTRIBUTION)).otherwise("how")
    node = pl.coalesce(node, "node").alias("node")
    return ops.with_columns(captured.alias("captured")).select(
        node, how.alias("how"), "launch_node"
    )


def _with_paths(nodes: Nodes, ranges: PhaseRanges) -> tuple[Tree, Paths]:
    """The nodes with their paths: names interned level by level."""
    nodes = nodes.with_columns(*(ranges[name][nodes["range"]] for name in _OF_RANGE))
    here = nodes.filter(pl.col("parent").is_null()).with_columns(
        pl.lit(None, pl.UInt32).alias("parent_path")
    )
    paths, placed = [PATHS.to_frame()], [TREE.to_frame()]
    while not here.is_empty():
        level = _level_of_paths(here, paths[-1], first_path=sum(map(len, paths)))
        key = ["parent_path", "name"]
        here = here.join(level[["path", "depth", *key]], on=key, nulls_equal=True)
        paths.append(level)
        placed.append(here.select(TREE.names()).match_to_schema(TREE))
        above = here.select(pl.col("node").alias("parent"), pl.col("path").alias("parent_path"))
        here = nodes.join(above, on="parent")
    return pl.concat(placed).sort("node"), pl.concat(paths)


_OF_RANGE: Final = ("name", "process", "start_ns", "captured_ns")


def _level_of_paths(here: pl.DataFrame, outer: Paths, *, first_path: int) -> Paths:
    """`PATHS` one level below `outer`, siblings in the order of their first appearance."""
    above = outer.select(pl.col("path").alias("parent_path"), pl.col("joined", "names", "key"))
    number = pl.col("path").cast(pl.String).str.zfill(9)
    return (
        here.group_by("parent_path", "name")
        .agg(pl.col("start_ns", "captured_ns").min())
        .sort("parent_path", "start_ns", "captured_ns", "name")
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


def instance_spans(attribution: Attribution, ops: PlacedOps) -> pl.DataFrame:
    """From the first operation of each instance to the end of its last one, on each device.

    Returns:
        `process`, `path`, `range`, `device_no`, `start_ns`, `end_ns`, including what is nested.

    Args:
        attribution: nodes and paths.
        ops: operations with `node`.
    """
    nodes = attribution.nodes[["node", "parent", "range", "process", "path", "depth"]]
    spans = (
        ops.drop_nulls("node")
        .group_by("node", "device_no")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .join(nodes, on="node")
    )
    inner, levels = spans.clear(), [spans.clear()]
    for depth in range(greatest(nodes["depth"]), 0, -1):
        here = pl.concat([spans.filter(pl.col("depth") == depth), inner])
        levels.append(here)
        outer = here.select("device_no", "start_ns", "end_ns", pl.col("parent").alias("node"))
        inner = outer.drop_nulls("node").join(nodes, on="node").select(spans.columns)
    return _hulls(pl.concat(levels), ["process", "path", "range", "device_no"])


def span_inside(attribution: Attribution, ops: PlacedOps, windows: pl.DataFrame) -> PathSpans:
    """How much of the spans of each path's instances lies in a window of any device.

    Args:
        attribution: nodes and paths.
        ops: all operations, with `node`.
        windows: `windows.WINDOWS`.
    """
    spans = _hulls(instance_spans(attribution, ops), ["process", "path", "range"])
    time = windows.select(pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))
    inside_ns = Cover(merge(time)).between(spans["start_ns"], spans["end_ns"])
    return (
        spans.with_columns(inside_ns.alias("span_ns"))
        .group_by("process", "path")
        .agg(pl.col("span_ns").sum())
    )


def _hulls(spans: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    return spans.group_by(key).agg(pl.col("start_ns").min(), pl.col("end_ns").max())
