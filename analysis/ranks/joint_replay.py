"""The ranks of a run replayed together: in a collective each waits for the last one (spec §14.18).

The programs of the ranks become one list of nodes. The end of each kernel of a collective is a
transfer's time after the last rank has arrived. Of ranks whose program is not known, an *outline*
takes part: what they compute between two collectives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.replay.replay import (
    KINDS_OF_NODES,
    NODES,
    Nodes,
    Program,
    Times,
    in_order,
    longest_paths,
    nodes_of,
)

MEETINGS: Final = pl.Schema(
    {
        "collective": pl.Int64(),
        "rank": pl.Int64(),
        "pair": pl.Boolean(),
        "program": pl.Int64(),
        "op": pl.UInt32(),
    }
)
"""The kernels of collectives: `program` is the place of the rank's program, `op` a row of it."""

OUTLINES: Final = pl.Schema(
    {
        "rank": pl.Int64(),
        "collective": pl.Int64(),
        "pair": pl.Boolean(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "before": pl.Int64(),
        "since_ns": pl.Int64(),
        "awaited": pl.Int64(),
        "since_awaited_ns": pl.Int64(),
    }
)
"""The kernels of collectives of ranks without a program, by rank and start, on the first report's
clock. `since_ns` is what the rank computed since its kernel of `before` started, and
`since_awaited_ns` what since its kernel of `awaited` ended; null without one. A rank's first kernel
has neither."""

_LEVELS: Final = 1 << 12
"""So many nodes of one instant can be told apart: more than a run has ranks."""

_LAST: Final = _LEVELS - 1


@dataclass(frozen=True, kw_only=True)
class RunChange:
    """What is different in a run beside its programs.

    Attributes:
        unawaited: ranks that no other rank waits for, except in sends and receives.
        compute: the factor on the compute of ranks without a program.
    """

    unawaited: frozenset[int] = frozenset()
    compute: Mapping[int, float]


QUEUED_NS: Final = 10_000
"""A kernel that starts so soon after the one before it on its stream was queued behind it
(`queue_delay`, spec §3.4): it did not wait for what its rank computed meanwhile."""


def outlines_of(kernels: pl.DataFrame) -> pl.DataFrame:
    """OUTLINES.

    Args:
        kernels: rows of `arrivals.aligned`.
    """
    rows = kernels.sort("rank", "start_ns", "collective")
    behind, lane = pl.col("start_ns") - pl.col("end_ns").shift(1), ["rank", "stream"]
    queued = (behind.over(lane) <= QUEUED_NS).fill_null(value=False)
    computed = pl.col("compute_before_ns")
    rows = rows.with_columns(
        queued.alias("queued"), pl.col("collective").shift(1).over(lane).alias("ahead")
    )
    own = pl.when(~pl.col("queued"))
    rows = rows.with_columns(
        own.then("collective").forward_fill().shift(1).over("rank").alias("before"),
        own.then(computed).forward_fill().shift(1).over("rank").alias("computed_ns"),
    )
    ends = rows.filter(pl.col("awaited_ns") > 0).select(
        "rank", "end_ns", awaited="collective", until_ns="compute_until_ns"
    )
    rows = rows.sort("start_ns", maintain_order=True).join_asof(
        ends.sort("end_ns"),
        left_on="start_ns",
        right_on="end_ns",
        by="rank",
        check_sortedness=False,
        suffix="_awaited",
    )
    return (
        rows.sort("rank", "start_ns", "collective")
        .with_columns(
            own.then("before"),
            own.then(computed - pl.col("computed_ns")).alias("since_ns"),
            own.then("awaited").otherwise("ahead").alias("awaited"),
            own.then(computed - pl.col("until_ns")).otherwise(0).alias("since_awaited_ns"),
        )
        .select([*OUTLINES])
        .match_to_schema(OUTLINES)
    )


class JointReplay:
    """The recorded programs of some ranks, and the collectives in which they meet."""

    def __init__(
        self,
        programs: Sequence[Program],
        clocks_ns: Sequence[int],
        meetings: pl.DataFrame,
        outlines: pl.DataFrame,
    ) -> None:
        """Take them as recorded.

        Args:
            programs: of the reports.
            clocks_ns: how far the clock of each is ahead.
            meetings: MEETINGS.
            outlines: OUTLINES of the same collectives.
        """
        self._clocks_ns = clocks_ns
        self._outlines = outlines
        ops = [_lengths(program).select(pl.all().exclude("op")) for program in programs]
        clocks = pl.Series([clocks_ns[number] for number in meetings["program"]], dtype=pl.Int64)
        met = meetings.with_columns(clocks.alias("clock_ns"))
        rows = [
            met.filter(pl.col("program") == number).hstack(
                ops[number][met.filter(pl.col("program") == number)["op"]]
            )
            for number in range(len(programs))
        ]
        self._met = pl.concat(rows).sort("collective", "rank")
        arrived = self._arrivals()
        ended = pl.col("start_ns") + pl.col("length_ns") - pl.col("clock_ns")
        self._met = self._met.join(arrived, on="collective", maintain_order="left").with_columns(
            (ended - pl.col("arrived_ns")).alias("transfer_ns")
        )
        self._transfers = outlines.join(arrived, on="collective").select(
            "rank", "collective", (pl.col("end_ns") - pl.col("arrived_ns")).alias("transfer_ns")
        )

    def _arrivals(self) -> pl.DataFrame:
        """`collective`, `arrived_ns`: when the last rank arrives in the unchanged replay. A rank
        without a program comes no later than it did, as its host takes no time."""
        begun = pl.col("start_ns") - pl.col("clock_ns")
        own = self._met.group_by("collective").agg(begun.max().alias("arrived_ns"))
        last = dict(own.iter_rows())
        ended: dict[tuple[int, int], int] = {}
        begun_ns: dict[tuple[int, int], int] = {}
        for row in self._outlines.iter_rows(named=True):
            rank, collective = row["rank"], row["collective"]
            bounds = []
            if row["before"] is not None:
                bounds.append(begun_ns[rank, row["before"]] + row["since_ns"])
            if row["awaited"] is not None:
                bounds.append(ended[rank, row["awaited"]] + row["since_awaited_ns"])
            at = max(bounds, default=row["start_ns"])
            begun_ns[rank, collective], ended[rank, collective] = at, row["end_ns"]
            last[collective] = max(last[collective], at)
        return pl.DataFrame(
            {"collective": [*last], "arrived_ns": [*last.values()]},
            schema={"collective": pl.Int64(), "arrived_ns": pl.Int64()},
        )

    def replay(self, programs: Sequence[Program], change: RunChange) -> list[Times]:
        """When everything happens in each program, on its own clock.

        Args:
            programs: as recorded, or changed.
            change: what else is different.
        """
        rows, blocks = self._side_by_side(programs)
        met = self._met_now(programs, blocks)
        first_start = len(rows)
        first_outline = first_start + len(met)
        first_link = first_outline + len(self._outlines)
        links = self._links(rows, met, first_start, first_outline, change).with_columns(
            (pl.int_range(pl.len(), dtype=pl.Int64) + first_link).alias("row")
        )
        last = dict(links.group_by("collective").agg(pl.col("row").max()).iter_rows())
        begin = pl.int_range(pl.len(), dtype=pl.Int64) + first_start
        own_key = rows["key"].gather(met["row"]).alias("own_key")
        ends = self._ends(met.with_columns(begin.alias("start_row"), own_key), links, last, change)
        every = pl.concat(
            [
                _replaced(rows, met["row"], ends),
                self._starts(rows, met),
                self._outline_starts(first_outline, last, change),
                self._link_nodes(links),
            ]
        )
        bounds, place = in_order(every.drop("level"), _order(every))
        reached = pl.Series(longest_paths(bounds), dtype=pl.Int64)
        begun = reached[place.slice(first_start, len(met))]
        return [
            _times(program, block, reached[place.slice(block.first, block.length)], of, begun)
            for program, block, of in zip(
                programs, blocks, self._rows_of(met, len(programs)), strict=True
            )
        ]

    @staticmethod
    def _rows_of(met: pl.DataFrame, programs: int) -> list[pl.DataFrame]:
        """Per program `op` of its kernels, and their places in `met`."""
        placed = met[["program", "op"]].with_row_index("at")
        return [placed.filter(pl.col("program") == number) for number in range(programs)]

    def _side_by_side(self, programs: Sequence[Program]) -> tuple[pl.DataFrame, list["_Block"]]:
        """The nodes of all programs on one clock, and where those of each are."""
        frames, blocks, offset = [], [], 0
        for program, clock_ns in zip(programs, self._clocks_ns, strict=True):
            nodes = nodes_of(program)
            moved = (pl.col(side).cast(pl.Int64) + offset for side in ("a", "b"))
            frames.append(
                nodes.rows.with_columns(
                    pl.col("key") - clock_ns * KINDS_OF_NODES,
                    *(side.cast(pl.UInt32) for side in moved),
                    level=pl.lit(0, pl.Int64),
                )
            )
            blocks.append(_Block(nodes=nodes, first=offset))
            offset += len(nodes.rows)
        return pl.concat(frames), blocks

    def _met_now(self, programs: Sequence[Program], blocks: Sequence["_Block"]) -> pl.DataFrame:
        """The kernels of collectives with their `row` and length in these programs; a transfer is
        as much shorter as its kernel."""
        parts = []
        for number, (program, block) in enumerate(zip(programs, blocks, strict=True)):
            mine = self._met.filter(pl.col("program") == number)
            length = program.ops["length_ns"][mine["op"]]
            parts.append(
                mine.with_columns(
                    (pl.col("op").cast(pl.Int64) + block.first_op).alias("row"),
                    length.alias("now_ns"),
                )
            )
        share = pl.col("now_ns") / pl.col("length_ns")
        transfer = pl.when(pl.col("length_ns") == pl.col("now_ns")).then("transfer_ns")
        less = (pl.col("transfer_ns") * share).round().cast(pl.Int64)
        return (
            pl.concat(parts)
            .sort("collective", "rank")
            .with_columns(transfer.otherwise(less).alias("transfer_ns"))
        )

    @staticmethod
    def _starts(rows: pl.DataFrame, met: pl.DataFrame) -> pl.DataFrame:
        """When each kernel of a collective starts: what was its end, less its length."""
        begun = [pl.col(name) - pl.lit(met["now_ns"]) for name in ("a_ns", "b_ns", "recorded_ns")]
        return rows[met["row"]].with_columns(begun)

    def _links(
        self,
        rows: pl.DataFrame,
        met: pl.DataFrame,
        first_start: int,
        first_outline: int,
        change: RunChange,
    ) -> pl.DataFrame:
        """The ranks that each collective waits for: `collective`, `start_row`, `lag_ns`, `key`."""
        place = pl.int_range(pl.len(), dtype=pl.Int64)
        arriving = pl.concat(
            [
                met.select(
                    "collective",
                    "rank",
                    "pair",
                    (place + first_start).alias("start_row"),
                    (-pl.col("clock_ns")).alias("lag_ns"),
                    rows["key"].gather(met["row"]).alias("key"),
                ),
                self._outlines.select(
                    "collective",
                    "rank",
                    "pair",
                    (place + first_outline).alias("start_row"),
                    pl.lit(0, pl.Int64).alias("lag_ns"),
                    (pl.col("start_ns") * KINDS_OF_NODES).alias("key"),
                ),
            ]
        ).with_columns(pl.col("key").max().over("collective"))
        ignored = pl.Series([*change.unawaited], dtype=pl.Int64).implode()
        awaited = pl.col("pair") | ~pl.col("rank").is_in(ignored)
        return arriving.filter(awaited).sort("collective", "rank")

    @staticmethod
    def _link_nodes(links: pl.DataFrame) -> pl.DataFrame:
        """One node after the other, each the later of a rank's arrival and of the node before."""
        same = (pl.col("collective") == pl.col("collective").shift(1)).fill_null(value=False)
        number = pl.int_range(pl.len(), dtype=pl.Int64).over("collective")
        return _nodes(
            links,
            key=pl.col("key"),
            a=pl.col("start_row"),
            a_ns=pl.col("lag_ns"),
            b=pl.when(same).then(pl.col("row") - 1),
            b_ns=pl.when(same).then(0),
            level=1 + pl.min_horizontal(number, _LAST - 2),
        )

    @staticmethod
    def _ends(
        met: pl.DataFrame, links: pl.DataFrame, last: Mapping[int, int], change: RunChange
    ) -> pl.DataFrame:
        """When each kernel of a collective ends; one that nobody waits for waits for itself, alone
        where no rank is awaited.

        Args:
            met: with `start_row`, and `own_key`, that of the node itself.
            links: of `_links`.
            last: per collective the row of its last link.
            change: who is not awaited.
        """
        key = links.group_by("collective").agg(pl.col("key").first())
        lonely = pl.Series(
            [
                rank in change.unawaited and not pair
                for rank, pair in zip(met["rank"], met["pair"], strict=True)
            ],
            dtype=pl.Boolean,
        )
        return _nodes(
            met.join(key, on="collective", how="left", maintain_order="left"),
            key=pl.coalesce("key", "own_key"),
            a=pl.col("collective").replace_strict(last, default=None, return_dtype=pl.Int64),
            a_ns=pl.col("clock_ns") + pl.col("transfer_ns"),
            b=pl.when(pl.lit(lonely)).then("start_row"),
            b_ns=pl.when(pl.lit(lonely)).then("transfer_ns"),
            level=pl.lit(_LAST),
        )

    def _outline_starts(
        self, first_outline: int, last: Mapping[int, int], change: RunChange
    ) -> pl.DataFrame:
        """When ranks without a program arrive: after what they compute since they were there
        before, and since the end of what they waited for."""
        transfers = self._transfers.rename({"collective": "awaited"})
        rows = self._outlines.join(
            transfers, on=["rank", "awaited"], how="left", maintain_order="left"
        )
        factor = pl.col("rank").replace_strict(change.compute, default=1.0, return_dtype=pl.Float64)
        since, awaited = (
            (pl.col(name) * factor).round().cast(pl.Int64)
            for name in ("since_ns", "since_awaited_ns")
        )
        place = pl.int_range(pl.len(), dtype=pl.Int64) + first_outline
        placed = self._outlines.select("rank", before="collective", before_row=place)
        rows = rows.join(placed, on=["rank", "before"], how="left", maintain_order="left")
        return _nodes(
            rows,
            key=pl.col("start_ns") * KINDS_OF_NODES,
            a=pl.col("before_row"),
            a_ns=since,
            b=pl.col("awaited").replace_strict(last, default=None, return_dtype=pl.Int64),
            b_ns=pl.col("transfer_ns") + awaited,
            recorded_ns=pl.col("start_ns"),
        )


def _lengths(program: Program) -> pl.DataFrame:
    return program.ops[["op", "start_ns", "length_ns"]]


def _nodes(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """NODES and `level`, the order of nodes with one key."""
    none: dict[str, pl.Expr] = {name: pl.lit(None, dtype) for name, dtype in NODES.items()}
    none["level"] = pl.lit(0)
    schema = {**NODES, "level": pl.Int64()}
    return frame.select(
        expr.cast(schema[name]).alias(name) for name, expr in (none | columns).items()
    )


def _replaced(rows: pl.DataFrame, at: pl.Series, by: pl.DataFrame) -> pl.DataFrame:
    """`rows` with some of them replaced."""
    return rows.with_columns(rows[name].scatter(at, by[name]) for name in rows.columns)


def _order(nodes: pl.DataFrame) -> pl.Series:
    """The nodes in the order of time, the origins first."""
    since = pl.col("key") - pl.col("key").min()
    key = (since * _LEVELS + pl.col("level")).fill_null(-1)
    return nodes.select(key.arg_sort()).to_series()


@dataclass(frozen=True, kw_only=True)
class _Block:
    """The nodes of one program among those of all, from row `first` on."""

    nodes: Nodes
    first: int

    @property
    def length(self) -> int:
        return len(self.nodes.rows)

    @property
    def first_op(self) -> int:
        """The row at which the first operation ends."""
        return self.first + self.nodes.first_op


def _times(
    program: Program, block: _Block, reached: pl.Series, met: pl.DataFrame, begun: pl.Series
) -> Times:
    """When calls and operations are; kernels of collectives start when they arrive.

    Args:
        program: as it was replayed.
        block: its nodes.
        reached: when each of them is reached.
        met: `op` of its kernels of collectives, and their places `at` in `begun`.
        begun: when the kernels of collectives of all programs start.
    """
    nodes, calls, ended = block.nodes, program.calls, reached.slice(block.nodes.first_op)
    called = reached.slice(1, len(calls))
    returned = reached.slice(nodes.first_return, len(nodes.held))
    start = (ended - program.ops["length_ns"]).scatter(met["op"], begun[met["at"]])
    return Times(
        calls=pl.DataFrame(
            {
                "start_ns": called,
                "end_ns": (called + calls["cost_ns"]).scatter(nodes.held, returned),
            }
        ),
        ops=pl.DataFrame({"start_ns": start, "end_ns": ended}),
    )
