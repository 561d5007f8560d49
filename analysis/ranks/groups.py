"""The ranks of a run and their communication kernels, which ranks have collectives together, and
what these share (spec §9.4 to §9.7, §9.12, §9.15).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.frames.intervals import Axis, flatten, on_axis
from nsysflow.analysis.ranks.digest import EXCHANGED, JUDGED_STEPS, Digest

POINT_TO_POINT: Final = r"(?i)send|recv"
"""Matches the names of kernels in which two ranks take part, as a rule."""

ALL_TO_ALL: Final = r"(?i)all_?(?:to|2)_?all"
"""Matches names and operations in which each rank sends to each: some are sends and receives."""

NUMBERED_RANKS: Final = pl.Schema(
    {
        "rank": pl.Int64(),
        "report_no": pl.Int64(),
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
    }
)
"""A row per rank of a run, in the order of the reports; the row number is `rank`."""
NumberedRanks = Annotated[pl.DataFrame, NUMBERED_RANKS]

RUN_STEPS: Final = pl.Schema({**JUDGED_STEPS, "report_no": pl.Int64(), "rank": pl.Int64()})
"""A row per step of each rank."""
RunSteps = Annotated[pl.DataFrame, RUN_STEPS]

_RANK: Final = ["report_no", "process", "device"]
_BY_START: Final = ["start_ns", "end_ns", "stream"]


def ranks_of(digests: Sequence[Digest]) -> NumberedRanks:
    """The ranks of a run: of a report those with communication; of one without any, those with
    steps."""
    parts = []
    for number, digest in enumerate(digests):
        rows = digest.steps if digest.collectives.is_empty() else digest.collectives
        parts.append(
            rows.select(
                pl.lit(number, pl.Int64).alias("report_no"),
                pl.lit(digest.report).alias("report"),
                *("process", "device"),
            ).unique()
        )
    if not parts:
        return NUMBERED_RANKS.to_frame()
    ranks = pl.concat(parts).sort(_RANK)
    return ranks.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("rank"), pl.all())


def kernels_of(digests: Sequence[Digest], ranks: NumberedRanks) -> pl.DataFrame:
    """EXCHANGED of all reports by rank and start, plus `report_no`, `rank`, `point_to_point`,
    `exposed_ns`, and `lane`, `turn`: the kernel's number in its lane.

    A lane is the kernels of a name that a rank runs for one communicator, or on one stream where
    NCCL states none.
    """
    rows = _of_ranks([digest.collectives for digest in digests], EXCHANGED.to_frame(), ranks)
    unknown = pl.col("communicator").is_null()
    sends = pl.col("name").str.contains(POINT_TO_POINT)
    each_to_each = pl.col("operation").str.contains(ALL_TO_ALL).fill_null(value=False)
    rows = rows.sort("rank", *_BY_START)
    rows = rows.with_columns(
        exposed_of(rows),
        (sends & ~each_to_each).alias("point_to_point"),
        pl.when(unknown).then("stream").alias("on"),
    )
    key = ["rank", "name", "communicator", "on"]
    lanes = rows.select(key).unique().sort(key)
    lanes = lanes.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("lane"))
    rows = rows.join(lanes, on=key, nulls_equal=True, maintain_order="left").drop("on")
    return rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("lane").alias("turn"))


def exposed_of(rows: pl.DataFrame) -> pl.Series:
    """`exposed_ns` of each kernel: the exposed communication while it runs; where several run on a
    rank, of the one that started last, as compute waits for that.

    Args:
        rows: EXCHANGED by `rank` and start.
    """
    if rows.is_empty():
        return pl.Series("exposed_ns", [], dtype=pl.Int64)
    first_ns, last_ns = rows.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    axis = Axis.over(first_ns, last_ns, margin_ns=1)
    places = on_axis(rows, axis, "rank").with_row_index("row")
    pieces = flatten(places.sort("start", "row"), rank=_started_last, keep=["row"])
    spent = pl.concat(
        [
            pl.DataFrame({"place": places["start"], "spent_ns": rows["comm_before_ns"]}),
            pl.DataFrame({"place": places["end"], "spent_ns": rows["comm_until_ns"]}),
        ]
    ).unique("place")
    own = (
        pieces.join(spent, left_on="start", right_on="place")
        .join(spent, left_on="end", right_on="place", suffix="_until")
        .group_by("row")
        .agg((pl.col("spent_ns_until") - pl.col("spent_ns")).sum().alias("exposed_ns"))
    )
    joined = places.select("row").join(own, on="row", how="left", maintain_order="left")
    return joined["exposed_ns"].fill_null(0)


def _started_last(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of kernels that run together: last started first."""
    return claims.select(-pl.col("start"), -pl.col("row").cast(pl.Int64))


def steps_of(digests: Sequence[Digest], ranks: NumberedRanks) -> RunSteps:
    """The steps of all ranks."""
    return _of_ranks([digest.steps for digest in digests], JUDGED_STEPS.to_frame(), ranks)


def _of_ranks(
    frames: Sequence[pl.DataFrame], blank: pl.DataFrame, ranks: NumberedRanks
) -> pl.DataFrame:
    """The rows of all reports, with `report_no` and `rank`; only those of ranks."""
    numbered = [
        frame.with_columns(pl.lit(number, pl.Int64).alias("report_no"))
        for number, frame in enumerate([blank, *frames], start=-1)
    ]
    keys = ranks[["rank", *_RANK]]
    return pl.concat(numbered).join(keys, on=_RANK, nulls_equal=True, maintain_order="left")


GROUP_KIND: Final = pl.Enum(["all", "TP", "PP", "DP", "EP"])
"""What a group of ranks shares: all ranks of the run, or by tensor, pipeline, data or expert
parallelism (spec §9)."""

ALL_RANKS: Final = "give the reports of all ranks: nsysflow analyze rank*.sqlite -o DIR"
"""What to do so that the tables of ranks have rows."""


TOGETHER: Final = 2
"""The ends of a collective differ by less than its shortest kernel divided by this. On two H200s,
they differed by 2 to 28 us, and the shortest kernel took 135 to 265 us."""

STRAYING: Final = 10
"""Less than one part in this many (by time) of a lane's collectives may end apart. Collectives of
a few us do so if clocks are 28 us off."""

SURE_NS: Final = 2_000
"""Without a communicator, groups that run alike could be taken for one. So from one collective to
the next, the difference of the ends changes by no more than this on the average …"""

AS_CLOSE: Final = 4
"""… or than this many times as much as with the closest rank (on two H200s, 1 to 10 us)."""

CUT_OFF: Final = 10
"""A recording may stop a moment later on one rank. So the lengths of two lanes may differ by one
part in this many: by 6 of 1,278 collectives on two H100s."""

_TIMES: Final = ["lane", "rank", "report_no", "turn", "start_ns", "end_ns"]


def lanes_together(kernels: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    """`lane`, `kind`, `shared`: the lanes whose kernels are the same collectives; `kind` is the
    lowest of their lanes, `shared` how many kernels all of them have.

    Args:
        kernels: of `kernels_of`.
        clocks: of `clocks_of`; of two reports that it does not join, the lanes' own ends decide.
    """
    key = ["name", "communicator"]
    lanes = kernels.group_by("lane").agg(
        pl.col("name", "communicator", "rank").first(), pl.len().cast(pl.Int64).alias("length")
    )
    shared = lanes.filter(pl.col("rank").n_unique().over(key) > 1).drop("rank")
    times = kernels.select(_TIMES).join(clocks, on="report_no")
    rows = times.join(shared, on="lane").sort("lane", "turn")
    placed = [
        lane
        for (_, communicator), alike in rows.group_by(key)
        for lane in _placed(alike.drop(key), stated=communicator is not None)
    ]
    schema = {"lane": pl.Int64(), "kind": pl.Int64(), "shared": pl.Int64()}
    return pl.DataFrame(placed, schema=schema, orient="row").sort("lane")


def _placed(rows: pl.DataFrame, *, stated: bool) -> Iterator[tuple[int, int, int]]:
    """(lane, kind, shared) of the lanes that meet others; each kind's first lane is of its lowest
    rank."""
    while not rows.is_empty():
        first = rows.filter(pl.col("lane") == rows["lane"][0])
        kind, rank = first.row(0)[:2]
        rows = rows.filter(pl.col("lane") != kind)
        others = rows.filter(pl.col("rank") != rank)
        met = _meeting(first, others, stated=stated)
        if met:
            every = pl.concat([first, others.filter(pl.col("lane").is_in(met))])
            shared = every.select(pl.col("length").min()).item()
            yield from ((lane, kind, shared) for lane in (kind, *met))
            rows = rows.filter(~pl.col("lane").is_in(met))


def _meeting(first: pl.DataFrame, others: pl.DataFrame, *, stated: bool) -> list[int]:
    """The lanes of `others` that end together with `first`: of each rank the closest one. Lanes of
    the same length come before those of about that length."""
    length = first["length"][0]
    apart_by, longer = (pl.col("length") - length).abs(), pl.max_horizontal("length", length)
    others = others.filter(CUT_OFF * apart_by <= longer, pl.col("turn") < length)
    there = first.select(pl.all().name.suffix("_there"))[others["turn"]]
    ahead = pl.col("end_ns") - pl.col("end_ns_there")
    joined = pl.col("component") == pl.col("component_there")
    known = pl.col("clock_ns") - pl.col("clock_ns_there")
    apart = pl.col("ahead") - pl.when(joined).then(known).otherwise("own")
    shortest = pl.min_horizontal(_length(), _length("_there"))
    ends = pl.col("ahead").diff().abs().sum()
    stray = shortest.filter(TOGETHER * pl.col("apart") >= shortest).sum()
    tested = (
        others.hstack(there.get_columns())
        .with_columns(ahead.alias("ahead"))
        .with_columns(median_ns(pl.col("ahead")).over("lane").alias("own"))
        .with_columns(apart.abs().alias("apart"))
        .group_by("lane")
        .agg(
            pl.col("rank").first(),
            (pl.col("length").first() != length).alias("cut"),
            pl.len().cast(pl.Int64).alias("turns"),
            pl.col("apart").sum().alias("off"),
            ends.alias("ends"),
            (STRAYING * stray < shortest.sum()).alias("met"),
        )
        .filter("met")
    )
    sure = pl.max_horizontal(SURE_NS * (pl.col("turns") - 1), AS_CLOSE * pl.col("ends").min())
    alike = tested.filter(stated | (pl.col("ends") <= sure))
    return alike.sort("cut", "off", "lane").unique("rank", keep="first")["lane"].sort().to_list()


def _length(prefix: str = "") -> pl.Expr:
    return pl.col(f"end_ns{prefix}") - pl.col(f"start_ns{prefix}")


def kinds_of(kernels: pl.DataFrame, together: pl.DataFrame) -> pl.DataFrame:
    """`kind`, `members` (its ranks), `pair` (whether they are two that send and receive) and
    `party`, the lowest kind with the same members.

    Args:
        kernels: of `kernels_of`.
        together: of `lanes_together`.
    """
    lanes = kernels[["lane", "rank", "point_to_point"]].unique("lane")
    ranks = pl.col("rank").sort()
    kinds = (
        together.join(lanes, on="lane")
        .group_by("kind")
        .agg(
            ranks.alias("members"),
            ranks.cast(pl.String).str.join(",").alias("same"),
            (pl.col("point_to_point").first() & (pl.len() == 2)).alias("pair"),
        )
    )
    party = pl.col("kind").min().over("same", "pair").alias("party")
    return kinds.with_columns(party).drop("same").sort("kind")


def groups_of(kinds: pl.DataFrame) -> pl.DataFrame:
    """`party`, `group`, `members`, `pair`: the parties of collectives, the largest first, then
    pairs of ranks, which are one group where a chain joins them.

    Args:
        kinds: of `kinds_of`.
    """
    parties = kinds.filter(pl.col("kind") == pl.col("party"))
    ranks_of = dict(parties[["party", "members"]].rows())
    ranks_of |= _chains(dict(parties.filter("pair")[["party", "members"]].rows()))
    pairs = dict(parties[["party", "pair"]].rows())
    key = {party: (pairs[party], -len(ranks), *ranks) for party, ranks in ranks_of.items()}
    numbers = {name: number for number, name in enumerate(sorted({*key.values()}))}
    rows = [(party, numbers[key[party]], ranks, pairs[party]) for party, ranks in ranks_of.items()]
    schema = {
        "party": pl.Int64(),
        "group": pl.Int64(),
        "members": pl.List(pl.Int64()),
        "pair": pl.Boolean(),
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _chains(pairs: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Per pair of ranks, all ranks of the chain of pairs that it is in."""
    chain_of: dict[int, set[int]] = {}
    for ranks in pairs.values():
        chain = {member for rank in ranks for member in chain_of.get(rank, {rank})}
        chain_of |= dict.fromkeys(chain, chain)
    return {party: sorted(chain_of[ranks[0]]) for party, ranks in pairs.items()}


_ALL_REDUCE: Final = r"(?i)all_?reduce"
_SHARDED: Final = r"(?i)all_?gather|reduce_?scatter"

EARLY: Final = 4
"""Gradients exist only after the forward pass. An all-reduce in the first part in this many of a
step is of activations."""


def with_kind(groups: pl.DataFrame, rows: pl.DataFrame, steps: RunSteps) -> pl.DataFrame:
    """`groups` (a row per group) plus `kind`; null where it cannot be told.

    Args:
        groups: `group`, `members`, `pair`.
        rows: of `arrivals.aligned`, of whole reports.
        steps: of `steps_of`.
    """
    lasts = pl.col("end_ns") - pl.col("start_ns")
    half = lasts.sum() / 2
    exposed = pl.col("comm_until_ns") - pl.col("comm_before_ns")
    traits = rows.group_by("group").agg(
        (lasts.filter(_each_to_each()).sum() > half).alias("each_to_each"),
        (lasts.filter(_is(_ALL_REDUCE)).sum() > half).alias("reduces"),
        (lasts.filter(_is(_SHARDED)).sum() > half).alias("gathers"),
        (exposed.sum() >= half).alias("exposed"),
    )
    return (
        groups.join(traits, on="group", how="left")
        .join(_early(rows, steps), on="group", how="left")
        .select("group", "members", "pair", _kind(rows["rank"].n_unique()).alias("kind"))
        .sort("group")
    )


def _kind(ranks: int) -> pl.Expr:
    """The kind of a group, by its members and the traits of its collectives.

    Args:
        ranks: how many there are in the run.
    """
    members = pl.col("members")
    neighbours = members.list.last() - members.list.first() + 1 == members.list.len()
    early, exposed = pl.col("early"), pl.col("exposed")
    tensor = neighbours & ((pl.col("reduces") & early) | (pl.col("gathers") & exposed))
    data = pl.col("gathers") | (pl.col("reduces") & (~neighbours | ~early))
    kind = (
        pl.when("pair")
        .then(pl.lit("PP"))
        .when("each_to_each")
        .then(pl.lit("EP"))
        .when(members.list.len() == ranks)
        .then(pl.lit("all"))
        .when(tensor)
        .then(pl.lit("TP"))
        .when(data)
        .then(pl.lit("DP"))
    )
    return kind.cast(GROUP_KIND)


def _is(pattern: str) -> pl.Expr:
    """Whether the kernel's name or NCCL's operation matches."""
    return pl.any_horizontal(
        pl.col(name).str.contains(pattern).fill_null(value=False) for name in ("name", "operation")
    )


def _each_to_each() -> pl.Expr:
    """Whether each rank sends to each: sends and receives of pairs are groups of their own."""
    return _is(ALL_TO_ALL) | pl.col("name").str.contains(POINT_TO_POINT)


def _early(rows: pl.DataFrame, steps: RunSteps) -> pl.DataFrame:
    """`group`, `early`: whether its first all-reduce of a step comes early in it, in most steps."""
    when = steps.select("rank", "step", "duration_ns", begin_ns="start_ns")
    soon = EARLY * (pl.col("own_start_ns") - pl.col("begin_ns")) < pl.col("duration_ns")
    firsts = rows.filter(_is(_ALL_REDUCE)).group_by("group", "rank", "step")
    return (
        firsts.agg(pl.col("own_start_ns").min())
        .join(when, on=["rank", "step"])
        .group_by("group")
        .agg((2 * soon.sum() > pl.len()).alias("early"))
    )
