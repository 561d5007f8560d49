"""Per group, which rank held the others up, how often, what that cost and why (spec §9.13)."""

from itertools import pairwise
from typing import Any, Final

import polars as pl

from nsysflow.analysis.frames.columns import whole_ns
from nsysflow.analysis.ranks.groups import ALL_RANKS, GROUP_KIND, NumberedRanks, RunSteps
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

REASONS: Final = ("cost_work_ns", "cost_copy_ns", "cost_group_ns", "cost_host_ns")
"""Why a rank held up the others, in the order that breaks ties (spec §9)."""

RANK_GROUPS: Final = TableSchema(
    """One row per group of ranks that have collectives of their own, the largest cost first. `rank`
    is the group's straggler, which cost the others most; what follows it is of that rank in that
    group, `report` to `through`. `steps_last` counts the steps in which it cost the others more
    than 1 % of the step, of `steps`. `saved_step_ns` is how much shorter a step would be without
    waiting for it. `cost_work_ns` to `cost_host_ns` say why it cost the others time, and sum to
    `cost_ns`. `through` is the group in which it waited where that made it late. `bytes`,
    `waited_ns` and `overlapped_ns` are of all ranks of the group. The numbers of `PP` are of sends
    and receives.""",
    [
        Column("group", pl.Int64(), "the group's number"),
        Column(
            "kind",
            GROUP_KIND,
            "what the ranks share: all (every rank of the run), or TP, PP, DP or EP (tensor, "
            "pipeline, data or expert parallelism); empty where it cannot be told",
        ),
        Column("ranks", pl.Int64(), "how many ranks are in it"),
        Column(
            "members",
            pl.String(),
            "their numbers, as `0-7`, or `0,8,…,56` at equal distances",
        ),
        Column("collectives", pl.Int64(), "how many collectives the group had"),
        Column(
            "bytes",
            pl.Int64(),
            "the message sizes that NCCL states, summed; empty where it states none",
        ),
        Column("rank", pl.Int64(), "the straggler: the rank that cost the others most"),
        Column("report", pl.String(), "the straggler's report"),
        Column("device", pl.Int32(), "the straggler's GPU"),
        Column("times_last", pl.Int64(), "in how many of them the straggler came last"),
        Column("steps", pl.Int64(), "how many steps the straggler has"),
        Column(
            "steps_last",
            pl.Int64(),
            "in how many of these it cost the others more than 1 % of the step",
        ),
        *shared("cost_ns"),
        Column(
            "cost_step_ns",
            pl.Int64(),
            "`cost_ns` of the collectives in steps, per step; empty without steps",
        ),
        Column(
            "saved_step_ns",
            pl.Int64(),
            "how much shorter a step would be if nobody waited for the straggler, by a replay of "
            "the run; less than `cost_step_ns` if the others would wait for their own hosts "
            "instead; empty if the run was not replayed",
        ),
        *shared("late_ns cost_work_ns cost_copy_ns cost_group_ns cost_host_ns"),
        Column(
            "through",
            pl.Int64(),
            "the other group in which the straggler waited, where that made it late; empty where "
            "it did not",
        ),
        Column(
            "waited_ns",
            pl.Int64(),
            "how long the ranks of the group waited for the last one, all together",
        ),
        Column(
            "overlapped_ns",
            pl.Int64(),
            "how long other communication kernels ran on the same GPU beside the group's",
        ),
    ],
)


NOTICED: Final = 100
"""A rank is last in a step if that costs more than one part in this many of the step."""


SAVED: Final = pl.coalesce("saved_step_ns", "cost_step_ns")
"""How much shorter a step would be if nobody waited for the straggler. Where that is not known, it
is the most that it can be: what the others wait."""

PASSED_ON: Final = 2 * pl.col("cost_group_ns") > pl.col("cost_ns")
"""The straggler of the group holds it up because of another group, for the most part."""


def groups_table(
    groups: pl.DataFrame, rows: pl.DataFrame, steps: RunSteps, ranks: NumberedRanks
) -> pl.DataFrame:
    """RANK_GROUPS but for `saved_step_ns`.

    Args:
        groups: `group`, `kind`, `members` of each group.
        rows: of `costs.with_costs`, those to sum up.
        steps: of `steps_of`, those to count.
        ranks: of `ranks_of`.
    """
    times = rows.group_by("group").agg(
        pl.col("collective").n_unique().cast(pl.Int64).alias("collectives"),
        pl.col("waited_ns", "overlapped_ns").sum(),
    )
    sizes = rows.group_by("group", "collective").agg(pl.col("bytes").max())
    sizes = sizes.drop_nulls("bytes").group_by("group").agg(pl.col("bytes").sum())
    late = _of_stragglers(rows, steps)
    through = waited_through(rows, late[["group", "rank"]])
    return (
        _with_members(groups)
        .join(times, on="group")
        .join(sizes, on="group", how="left")
        .join(late, on="group")
        .join(through, on="group", how="left")
        .join(ranks[["rank", "report", "device"]], on="rank")
        .sort("cost_ns", "group", descending=[True, False])
    )


def _with_members(groups: pl.DataFrame) -> pl.DataFrame:
    """`group`, `kind`, `ranks` (how many) and `members` (as text) of each group."""
    members = [
        (group, kind, len(members), numbers(members))
        for group, kind, members in groups[["group", "kind", "members"]].iter_rows()
    ]
    schema = {name: RANK_GROUPS[name] for name in ("group", "kind", "ranks", "members")}
    return pl.DataFrame(members, schema=schema, orient="row")


def _of_stragglers(rows: pl.DataFrame, steps: RunSteps) -> pl.DataFrame:
    """Per `group` the `rank` that cost the others most, with how often, what and why."""
    key = ["group", "rank"]
    sums = rows.group_by(key).agg(
        pl.col("last").sum().cast(pl.Int64).alias("times_last"),
        pl.col("cost_ns", "late_ns", *REASONS).sum(),
    )
    most = sums.sort("cost_ns", "rank", descending=[True, False]).unique(
        "group", keep="first", maintain_order=True
    )
    lengths = steps[["rank", "step", "duration_ns"]]
    per_step = (
        rows.join(most, on=key, how="semi")
        .group_by(*key, "step")
        .agg(pl.col("cost_ns").sum())
        .join(lengths, on=["rank", "step"])
        .group_by(key)
        .agg(
            (NOTICED * pl.col("cost_ns") > pl.col("duration_ns"))
            .sum()
            .cast(pl.Int64)
            .alias("steps_last"),
            pl.col("cost_ns").sum().alias("in_steps_ns"),
        )
    )
    counted = lengths.group_by("rank").agg(pl.len().cast(pl.Int64).alias("steps"))
    return (
        most.join(counted, on="rank", how="left")
        .join(per_step, on=key, how="left")
        .with_columns(pl.col("steps", "steps_last", "in_steps_ns").fill_null(0))
        .with_columns(
            pl.when(pl.col("steps") > 0)
            .then(whole_ns(pl.col("in_steps_ns") / pl.col("steps")))
            .alias("cost_step_ns")
        )
    )


def waited_through(rows: pl.DataFrame, stragglers: pl.DataFrame) -> pl.DataFrame:
    """`group`, `through`: the other group in which a straggler waited longest in the stretches in
    which it held up the others because of other groups.

    Args:
        rows: of `costs.with_costs`.
        stragglers: `group`, `rank`.
    """
    key = ["group", "rank"]
    because = pl.col("cost_group_ns") > 0
    stretches = rows.filter(because).join(stragglers, on=key, how="semi").sort("own_end_ns")
    earliest = pl.col("begun_ns").cum_min(reverse=True).over(key)  # stretches of pairs may overlap
    stretches = stretches.select(*key, earliest, until_ns="own_end_ns")
    others = rows.filter(pl.col("waited_ns") > 0).select(
        "rank", "own_start_ns", "waited_ns", through="group"
    )
    waits = stragglers.join(others, on="rank").filter(pl.col("through") != pl.col("group"))
    return (
        waits.sort("own_start_ns")
        .join_asof(
            stretches,
            left_on="own_start_ns",
            right_on="until_ns",
            by=key,
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("own_start_ns") >= pl.col("begun_ns"))
        .group_by("group", "through")
        .agg(pl.col("waited_ns").sum())
        .sort("waited_ns", "through", descending=[True, False])
        .unique("group", keep="first", maintain_order=True)
        .select("group", "through")
    )


def follows(*groups: int) -> pl.Expr:
    """Whether one of these groups makes a straggler hold up its own."""
    return PASSED_ON & pl.col("through").is_in(groups).fill_null(value=False)


def where_it_starts(mine: pl.DataFrame, groups: pl.DataFrame) -> dict[str, Any]:
    """Of the groups that one rank holds up, the one that most other groups wait for; ties: the one
    that loses most.

    Args:
        mine: rows of RANK_GROUPS of one straggler, none of them `PASSED_ON`.
        groups: RANK_GROUPS.
    """
    through = groups.filter(follows(*mine["group"]))["through"].mode()
    starts = mine.filter(pl.col("group").is_in(through.implode()))
    dearest = (mine if starts.is_empty() else starts).sort(
        SAVED, descending=True, maintain_order=True
    )
    return dearest.row(0, named=True)


def waited_for(rows: pl.DataFrame, rank: int, ranks: NumberedRanks) -> pl.DataFrame:
    """`report`, `waited_ns` of each rank but one: how long it waited for that one alone.

    Args:
        rows: of `costs.with_costs`, of one group.
        rank: the one that is waited for.
        ranks: of `ranks_of`.
    """
    last_ones = rows.filter("last", pl.col("rank") == rank).select(
        "collective", alone_ns=pl.col("all_there_ns") - pl.col("second_last_ns")
    )
    others = rows.filter(pl.col("rank") != rank).join(last_ones, on="collective", how="left")
    return (
        others.group_by("rank")
        .agg(pl.col("alone_ns").sum().alias("waited_ns"))
        .join(ranks[["rank", "report"]], on="rank")
        .sort("rank")
    )


def numbers(members: list[int]) -> str:
    """The ranks of a group: `0-7`, or `0,8,…,56` at equal distances."""
    steps = {after - before for before, after in pairwise(members)}
    if steps == {1} and len(members) > 2:
        return f"{members[0]}-{members[-1]}"
    if len(steps) == 1 and len(members) > 4:
        return f"{members[0]},{members[1]},…,{members[-1]}"
    return ",".join(map(str, members))


_PARTS: Final = ("compute", "copy", "comm")


def with_reasons(stretches: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`collective`, `rank`, `cost_ns`, REASONS and `begun_ns` of each stretch.

    Both ranks were in step when it began, and are when it ends. So what one did longer, the other
    spent in exposed communication of the group. What the other had done ahead, since the step
    began, is no reason: of what took longer in the stretch, no more counts than took longer since
    then.

    Args:
        stretches: of `arrivals.stretches_of`.
        rows: of `arrivals.aligned`.
    """
    order = ["party", "rank", "ended_ns", "collective"]
    ends = rows.sort(order).select(
        *("collective", "rank", pl.col("own_end_ns").alias("end_ns")),
        *(pl.col(f"{part}_until_ns").alias(part) for part in _PARTS),
        pl.col("exposed_ns").cum_sum().over("party", "rank").alias("own"),
    )
    stretches = stretches.join(
        _before_steps(rows), on=["collective", "rank"], how="left", maintain_order="left"
    )
    here = _longer(stretches, ends, "previous")
    since = _longer(stretches, ends, "before_step")
    begun = stretches.select("rank", collective="previous").join(
        ends, on=["collective", "rank"], how="left", maintain_order="left"
    )
    longer = [
        pl.min_horizontal(here[name], since[name]).clip(0).fill_null(0).alias(name)
        for name in REASONS
    ]
    return stretches.select(
        *("collective", "rank", "cost_ns", begun["end_ns"].alias("begun_ns")), *longer
    ).with_columns(_shares(pl.col("cost_ns")))


def _before_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """`collective`, `rank`, `before_step`: of each end at which ranks are in step, the last such
    end before the rank's step began; outside steps the end before it; the first end where there is
    none before.

    Args:
        rows: of `arrivals.aligned`.
    """
    ends = rows.filter("in_step").sort("party", "rank", "ended_ns", "collective")
    key = ("party", "rank")
    before, first = pl.col("collective").shift(1), pl.col("collective").first()
    new = pl.col("step").ne_missing(pl.col("step").shift(1)) | pl.col("step").is_null()
    return ends.select(
        "collective",
        "rank",
        pl.when(new | before.is_null())
        .then(before)
        .forward_fill()
        .fill_null(first)
        .over(key)
        .alias("before_step"),
    )


def _longer(stretches: pl.DataFrame, ends: pl.DataFrame, since: str) -> pl.DataFrame:
    """What the rank of each stretch did longer than the second one until its end, by the names of
    REASONS; negative where it was quicker, null where it is not known.

    Args:
        stretches: with `collective`, `rank` and `second`.
        ends: when a rank ended a collective, and what it had done until then.
        since: the column of the collective since whose end it counts.
    """
    mine, other = (_parts(stretches, ends, rank, since) for rank in ("rank", "second"))
    return mine.select(mine[name] - other[name] for name in REASONS)


def _parts(stretches: pl.DataFrame, ends: pl.DataFrame, rank: str, since: str) -> pl.DataFrame:
    """What a rank did, but for the collectives of the group, by the names of REASONS."""
    begin, end = (
        stretches.select(collective=at, rank=rank).join(
            ends, on=["collective", "rank"], how="left", maintain_order="left"
        )
        for at in (since, "collective")
    )
    compute, copies, comm, own, whole = (
        end[part] - begin[part] for part in (*_PARTS, "own", "end_ns")
    )
    did = (compute, copies, comm - own, whole - compute - copies - comm)
    return pl.DataFrame(dict(zip(REASONS, did, strict=True)))


def _shares(cost: pl.Expr) -> list[pl.Expr]:
    """`cost` shared in proportion to REASONS, by largest remainder; all of it is the host's where
    nothing took longer."""
    *_, host = REASONS
    total = pl.sum_horizontal(REASONS)
    weights = [
        pl.when(total == 0).then(int(name == host)).otherwise(name).cast(pl.Int128)
        for name in REASONS
    ]
    whole = pl.max_horizontal(total, 1)
    left = [cost * weight % whole for weight in weights]
    missing = pl.sum_horizontal(left) // whole
    shares = []
    for at, (name, weight) in enumerate(zip(REASONS, weights, strict=True)):
        ahead = pl.sum_horizontal(
            (other >= left[at]) if before < at else (other > left[at])
            for before, other in enumerate(left)
        )
        shares.append((cost * weight // whole + (ahead < missing)).cast(pl.Int64).alias(name))
    return shares


TABLES: Final = (
    Table(
        name="rank_groups",
        schema=RANK_GROUPS,
        scope="run",
        csv="with rows",
        json_key="rank_groups",
        page_rows=3,
        full_rows=64,
        filled_by=ALL_RANKS,
        shown=(
            "kind members rank cost_step_ns steps_last steps times_last collectives "
            "cost_work_ns cost_copy_ns cost_group_ns cost_host_ns through cost_ns waited_ns "
            "report device group"
        ),
    ),
)
