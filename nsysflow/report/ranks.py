"""The ranks of a run: who holds the others up, as sentences; the steps of all as a picture of
letters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.rules.communication import BECAUSE
from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.ranks.ranks import rank_names
from nsysflow.analysis.ranks.stragglers import PASSED_ON, REASONS, SAVED, follows, where_it_starts
from nsysflow.base.units import duration, number, share, size
from nsysflow.report.results import RunTables

Row = Mapping[str, Any]

FROM: Final = {
    "cost_work_ns": "more compute",
    "cost_copy_ns": "copies",
    "cost_group_ns": "another group",
    "cost_host_ns": "host",
}
"""Why a rank comes late, in a cell."""

_MOST: Final = 0.9
"""A reason with this share is the only one said."""

_LEAST: Final = 0.1
"""A reason below this share is not said."""


def rank_namer(results: RunTables) -> Callable[[object, object], str]:
    """A function from a report and a device to what their rank is called."""
    names = rank_names(results.table("ranks"))
    return lambda report, device: names(str(report), int(str(device)))


def group_name(row: Row) -> str:
    """What a group is called: `TP 8-15`, `all 64 ranks`."""
    if row["kind"] == "all":
        return f"all {number(row['ranks'])} ranks"
    return f"{row['kind'] or 'ranks'} {row['members']}"


def group_names(groups: pl.DataFrame) -> dict[int, str]:
    """What each group of RANK_GROUPS is called, by its number."""
    return {row["group"]: group_name(row) for row in groups.iter_rows(named=True)}


def reasons(row: Row, words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Why a rank is late, and the share of each reason, the largest first; one alone where it is
    nearly all."""
    whole = sum(row[reason] or 0 for reason in REASONS)
    if not whole:
        return []
    found = sorted(REASONS, key=lambda reason: -(row[reason] or 0))
    found = [reason for reason in found if (row[reason] or 0) >= _LEAST * whole]
    if row[found[0]] >= _MOST * whole:
        found = found[:1]
    return [(words[reason], share(row[reason], whole)) for reason in found]


WORTH: Final = 0.01
"""A cost below this share of a step is not said: ranks vary as much by themselves."""


@dataclass(frozen=True, kw_only=True)
class RankSummary:
    """What the ranks of a run tell.

    Attributes:
        first: who or what holds the others up, or that nobody does; empty for nothing to say.
        more: why, and what else, a sentence each.
        remarks: two sentences of each rank that may be late only because it is recorded; they
            stand behind the verdict.
    """

    first: str = ""
    more: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LateRank:
    """What the finding on a late rank adds to the tables of ranks.

    Attributes:
        undisturbed_ns: what it costs a step at most without the profiler; None where recording made
            the step hardly longer.
        code: what its host runs longer than the others': a function, such as
            `augment (train.py:53)`, or a phase; empty where neither is known.
        by_recording: whether recording alone may make it late.
    """

    undisturbed_ns: int | None
    code: str
    by_recording: bool = False


def summarize_ranks(
    results: RunTables, late: Mapping[str, LateRank] = MappingProxyType({})
) -> RankSummary:
    """What the ranks of a run tell; nothing of a single rank, nor of few of which nobody is late.

    Args:
        results: the judged part of a run.
        late: of `findings.late_ranks`.
    """
    groups = results.table("rank_groups")
    if groups.is_empty() and results.table("bandwidth").is_empty() and not results.whole.many:
        return RankSummary()
    step_ns = typical_step_ns(results)
    link = _slow_link(results, groups, step_ns)
    found = stragglers(groups, step_ns)
    if link:
        found = found.filter(~follows(link.group))
    slower = found.filter(
        pl.col("report").is_in([name for name, about in late.items() if about.by_recording]),
        ~PASSED_ON,
    )
    found = found.filter(
        ~pl.col("rank").is_in(slower["rank"].implode()), ~follows(*slower["group"])
    )
    remarks = tuple(_slower_hosts(results, slower, groups, step_ns, late))
    straggler = _straggler(results, found, groups, step_ns, late)
    delays = sorted(filter(None, [straggler, link]), key=lambda delay: -delay.cost_ns)
    sentences = [sentence for delay in delays for sentence in delay.sentences]
    if not sentences and results.whole.many:
        nobody = _nobody(results, groups, step_ns)
        sentences = [next(nobody)] if remarks else [*nobody]
    first, more = (sentences[0], tuple(sentences[1:])) if sentences else ("", ())
    return RankSummary(first=first, more=more, remarks=remarks)


def _slower_hosts(
    results: RunTables,
    slower: pl.DataFrame,
    groups: pl.DataFrame,
    step_ns: int,
    late: Mapping[str, LateRank],
) -> Iterator[str]:
    """Two sentences on each rank that may be late only because it is recorded.

    Args:
        results: the judged part of a run.
        slower: of `stragglers`, the rows of these ranks.
        groups: RANK_GROUPS.
        step_ns: the median step.
        late: with what they cost without the profiler.
    """
    for rank in slower["rank"].unique(maintain_order=True):
        row = where_it_starts(slower.filter(pl.col("rank") == rank), groups)
        name = rank_namer(results)(row["report"], row["device"])
        costs = f"{duration(row['lost_ns'])} a step{_of_step(row['lost_ns'], step_ns)}"
        quiet_ns = min(late[row["report"]].undisturbed_ns or 0, row["lost_ns"])
        quiet = f"at most {duration(quiet_ns)}" if quiet_ns else "nothing"
        yield f"{name}'s host was slower while recorded, but does nothing more than the others"
        yield f"That cost {costs}; without the profiler it costs {quiet}"


@dataclass(frozen=True, kw_only=True)
class _Delay:
    """What holds ranks up: the group where that starts, its cost per step, and what is said."""

    group: int
    cost_ns: int
    sentences: tuple[str, ...]


def typical_step_ns(results: RunTables) -> int:
    """The median step of all ranks; 0 without steps."""
    median_ns = results.table("rank_steps")["duration_ns"].median()
    return round(median_ns) if isinstance(median_ns, float) else 0


def stragglers(groups: pl.DataFrame, step_ns: int) -> pl.DataFrame:
    """The groups whose straggler costs them enough to be worth saying, with that cost as `lost_ns`.

    Groups that only wait for another group come last, else the largest cost comes first.
    """
    lost = pl.when(PASSED_ON).then("cost_step_ns").otherwise(SAVED).alias("lost_ns")
    return (
        groups.with_columns(lost)
        .filter(pl.col("lost_ns") >= max(1, WORTH * step_ns))
        .sort(PASSED_ON, "lost_ns", descending=[False, True], maintain_order=True)
    )


def _straggler(
    results: RunTables,
    held_up: pl.DataFrame,
    groups: pl.DataFrame,
    step_ns: int,
    late: Mapping[str, LateRank],
) -> _Delay | None:
    """The straggler of the group where it starts."""
    if held_up.is_empty():
        return None
    row = held_up.row(0, named=True)
    of_rank = pl.col("rank") == row["rank"]
    if len(own := held_up.filter(of_rank, ~PASSED_ON)):
        row = where_it_starts(own, groups)
    name = rank_namer(results)(row["report"], row["device"])
    held = f"the other {number(row['ranks'] - 1)} ranks" if row["ranks"] > 2 else "the other rank"
    of = "" if row["kind"] == "all" else f" of {group_name(row)}"
    cost = f"{duration(row['lost_ns'])} a step{_of_step(row['lost_ns'], step_ns)}"
    sentences = [f"{name} holds up {held}{of}: {cost}, {_how_often(row)}"]
    about = late.get(row["report"])
    quiet_ns = about.undisturbed_ns if about else None
    if quiet_ns is not None and 2 * quiet_ns < row["lost_ns"]:
        sentences.append(f"Without the profiler it costs at most {duration(quiet_ns)} a step")
    if 2 * row["lost_ns"] < row["cost_step_ns"]:
        sentences.append(
            f"The others wait {duration(row['cost_step_ns'])} a step for it, but most of that time"
            " they would wait for their own hosts, which recording slows"
        )
    if because := _because(row, group_names(groups)):
        sentences.append(f"{name} comes late because {because}")
    if about and about.code:
        sentences.append(f"Its host spends more time in {about.code} than the others' hosts do")
    others = held_up.filter(pl.col("group") != row["group"])
    same = others.filter(of_rank | follows(*held_up.filter(of_rank)["group"]))
    sentences += _groups_that_wait(len(same), group_name(row))
    if left := len(others) - len(same):
        noun = "more group has a straggler" if left == 1 else "more groups have stragglers"
        sentences.append(f"{number(left)} {noun}: --table rank_groups")
    return _Delay(group=row["group"], cost_ns=row["lost_ns"], sentences=tuple(sentences))


def _groups_that_wait(count: int, name: str) -> list[str]:
    if not count:
        return []
    return [f"{number(count)} more {'group waits' if count == 1 else 'groups wait'} for {name}"]


def _of_step(ns: int, step_ns: int) -> str:
    return f" ({share(ns, step_ns)})" if step_ns else ""


def _how_often(row: dict[str, Any]) -> str:
    if row["steps_last"] and row["steps_last"] == row["steps"]:
        return "in every step"
    if row["steps"]:
        return f"in {number(row['steps_last'])} of {number(row['steps'])} steps"
    return f"in {number(row['times_last'])} of {number(row['collectives'])} collectives"


def _because(row: dict[str, Any], groups: dict[int, str]) -> str:
    late_reasons = reasons(row, BECAUSE)
    through = groups.get(row["through"], "")
    clauses = [
        (f"it waits for {through}" if through and clause == BECAUSE["cost_group_ns"] else clause)
        + (f" ({part})" if len(late_reasons) > 1 else "")
        for clause, part in late_reasons
    ]
    return " and ".join(clauses)


def _slow_link(results: RunTables, groups: pl.DataFrame, step_ns: int) -> _Delay | None:
    """The group whose transfers take longest beyond those of the others."""
    table = results.table("bandwidth")
    slow = table.filter(pl.col("slow_ns") > 0).sort("slow_ns", descending=True)
    if slow.is_empty():
        return None
    row = slow.row(0, named=True)
    lost_ns = sum(slow.filter(pl.col("group").eq_missing(row["group"]))["slow_ns"])
    steps = greatest(groups["steps"])
    cost_ns = round(lost_ns / max(1, steps))
    if cost_ns < WORTH * step_ns:
        return None
    name = group_names(groups).get(row["group"], "a group")
    cost = f"{duration(cost_ns)}{' a step' if steps else ''}"
    part = f" ({share(cost_ns, step_ns)})" if step_ns else ""
    sentences = [f"The link of {name} is slow: it costs up to {cost}{part}"]
    if row["bus_bytes_per_s"] is not None:
        sentences.append(_how_slow(row, table))
    waiting = stragglers(groups, step_ns).filter(follows(row["group"]))
    sentences += _groups_that_wait(len(waiting), name)
    return _Delay(group=row["group"], cost_ns=cost_ns, sentences=tuple(sentences))


def _how_slow(row: dict[str, Any], table: pl.DataFrame) -> str:
    """The speed of a link, and that of the middle one of the others."""
    what = " of ".join(filter(None, [row["operation"], size(row["bytes"])]))
    others = table.filter(
        pl.col("group") != row["group"],
        *(pl.col(key).eq_missing(row[key]) for key in ("kind", "operation", "size_bytes")),
    )["bus_bytes_per_s"].drop_nulls()
    usual = f", {_speed(others.sort()[len(others) // 2])} in the others" if len(others) else ""
    return f"{what} moves {_speed(row['bus_bytes_per_s'])} there{usual}"


def _speed(bytes_per_s: float) -> str:
    return f"{size(round(bytes_per_s))}/s"


def _nobody(results: RunTables, groups: pl.DataFrame, step_ns: int) -> Iterator[str]:
    """That nobody holds the others up, or that nothing tells who does."""
    matched = groups.filter(pl.col("collectives") > 0)
    if matched.is_empty():
        yield "The ranks have no collectives together, so nobody can be called late"
        return
    most = matched.sort("cost_step_ns", descending=True, nulls_last=True).row(0, named=True)
    yield "No rank holds the others up"
    if most["report"] is not None and most["cost_step_ns"]:
        name = rank_namer(results)(most["report"], most["device"])
        waits_ns = most["cost_step_ns"]
        waits = f"{duration(waits_ns)} a step{_of_step(waits_ns, step_ns)}"
        if most["saved_step_ns"] is not None and waits_ns >= WORTH * step_ns:
            yield (
                f"The others wait for {name} most, {waits}, but they would wait for their own"
                " hosts, which recording slows"
            )
        else:
            yield f"{name} costs its group most: {waits}"


LETTERS: Final = "·░▒▓█"
"""From as long as the median to much longer."""

LONGER_PCT: Final = (2, 5, 10, 20)
"""From so many percent of a step on, the next letter stands. Ranks differ by 1 % by themselves."""

KEY: Final = "  ".join(
    f"{letter} {pct} %" for letter, pct in zip(LETTERS[1:], LONGER_PCT, strict=True)
)
"""What the letters mean."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the picture: the ranks that it is of, and a letter per stretch of steps."""

    ranks: tuple[int, ...]
    letters: str


def own_ns() -> pl.Expr:
    """A rank's own time in a step, of RANK_STEPS."""
    return pl.col("duration_ns") - pl.col("comm_exposed_ns")


def longer_pct() -> pl.Expr:
    """How much longer a rank's own time is than the median rank's in that step, in percent of the
    median step."""
    own = own_ns()
    more = own - own.median().over("step")
    return 100 * more / pl.col("duration_ns").median().over("step")


def heat_map(rank_steps: pl.DataFrame, alone: Sequence[int], lines: int, width: int) -> list[Line]:
    """The picture in at most so many lines and letters; empty without steps.

    Args:
        rank_steps: RANK_STEPS.
        alone: ranks to show by themselves, first; the others are put together as needed.
        lines: at most this many.
        width: at most this many letters.
    """
    if rank_steps.is_empty():
        return []
    placed = _lines_of(rank_steps["rank"].unique().sort().to_list(), alone, lines)
    number = {rank: line for line, ranks in enumerate(placed) for rank in ranks}
    steps = rank_steps["step"].unique().sort()
    columns = min(len(steps), width)
    column = {step: place * columns // len(steps) for place, step in enumerate(steps)}
    cells = (
        rank_steps.select(
            pl.col("rank").replace_strict(number, return_dtype=pl.Int64).alias("line"),
            pl.col("step").replace_strict(column, return_dtype=pl.Int64).alias("column"),
            longer_pct().alias("pct"),
        )
        .group_by("line", "column")
        .agg(pl.col("pct").max())
    )
    letters = {(line, at): _letter(pct) for line, at, pct in cells.rows()}
    return [
        Line(ranks=ranks, letters="".join(letters.get((line, at), " ") for at in range(columns)))
        for line, ranks in enumerate(placed)
    ]


def _letter(pct: float | None) -> str:
    return LETTERS[sum((pct or 0) >= limit for limit in LONGER_PCT)]


def _lines_of(ranks: list[int], alone: Sequence[int], lines: int) -> list[tuple[int, ...]]:
    """The ranks of each line: those to show alone, then the others, 1, 2, 4, … neighbours each."""
    first = [rank for rank in alone if rank in ranks][: lines // 2]
    room, each = max(1, lines - len(first)), 1
    while len(ranks) > each * room:
        each *= 2
    near = [
        tuple(rank for rank in ranks[at : at + each] if rank not in first)
        for at in range(0, len(ranks), each)
    ]
    return [*((rank,) for rank in first), *filter(None, near)]
