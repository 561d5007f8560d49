"""Who holds the others up, as sentences: of the group where it starts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.rules.straggler import BECAUSE
from nsysflow.analysis.frames.lookup import greatest
from nsysflow.analysis.ranks.stragglers import PASSED_ON, SAVED, follows, where_it_starts
from nsysflow.base.units import duration, number, share, size
from nsysflow.report.ranks.names import group_name, group_names, rank_namer, reasons
from nsysflow.report.results import Results

WORTH: Final = 0.01
"""A cost below this share of a step is not said: ranks vary as much by themselves."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the ranks of a run tell.

    Attributes:
        first: who or what holds the others up, or that nobody does; empty for nothing to say.
        more: why, and what else, a sentence each.
    """

    first: str = ""
    more: tuple[str, ...] = ()


def told(results: Results) -> Told:
    """What the ranks of a run tell; nothing of a single rank, nor of few of which nobody is late.

    Args:
        results: the judged part of a run.
    """
    groups, step_ns = results.table("rank_groups"), typical_step_ns(results)
    link = _slow_link(results, groups, step_ns)
    found = stragglers(groups, step_ns)
    if link:
        found = found.filter(~follows(link.group))
    straggler = _straggler(results, found, groups, step_ns)
    delays = sorted(filter(None, [straggler, link]), key=lambda delay: -delay.cost_ns)
    sentences = [sentence for delay in delays for sentence in delay.sentences]
    if not sentences and results.many:
        sentences = [*_nobody(results, groups, step_ns)]
    return Told(first=sentences[0], more=tuple(sentences[1:])) if sentences else Told()


@dataclass(frozen=True, kw_only=True)
class _Delay:
    """What holds ranks up: the group where that starts, its cost per step, and what is said."""

    group: int
    cost_ns: int
    sentences: tuple[str, ...]


def typical_step_ns(results: Results) -> int:
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
    results: Results, found: pl.DataFrame, groups: pl.DataFrame, step_ns: int
) -> _Delay | None:
    """The straggler of the group where it starts."""
    if found.is_empty():
        return None
    row = found.row(0, named=True)
    mine = pl.col("rank") == row["rank"]
    if len(own := found.filter(mine, ~PASSED_ON)):
        row = where_it_starts(own, groups)
    name = rank_namer(results)(row["report"], row["device"])
    held = f"the other {number(row['ranks'] - 1)} ranks" if row["ranks"] > 2 else "the other rank"
    of = "" if row["kind"] == "all" else f" of {group_name(row)}"
    cost = f"{duration(row['lost_ns'])} a step{_of_step(row['lost_ns'], step_ns)}"
    sentences = [f"{name} holds up {held}{of}: {cost}, {_how_often(row)}"]
    if 2 * row["lost_ns"] < row["cost_step_ns"]:
        sentences.append(
            f"The others wait {duration(row['cost_step_ns'])} a step for it, but most of that time"
            " they would wait for their own hosts anyway"
        )
    if because := _because(row, group_names(groups)):
        sentences.append(f"{name} comes late because {because}")
    others = found.filter(pl.col("group") != row["group"])
    same = others.filter(mine | follows(*found.filter(mine)["group"]))
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
    found = reasons(row, BECAUSE)
    through = groups.get(row["through"], "")
    clauses = [
        (f"it waits for {through}" if through and clause == BECAUSE["cost_group_ns"] else clause)
        + (f" ({part})" if len(found) > 1 else "")
        for clause, part in found
    ]
    return " and ".join(clauses)


def _slow_link(results: Results, groups: pl.DataFrame, step_ns: int) -> _Delay | None:
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


def _nobody(results: Results, groups: pl.DataFrame, step_ns: int) -> Iterator[str]:
    """That nobody holds the others up, or that it cannot be told."""
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
                " hosts anyway"
            )
        else:
            yield f"{name} costs its group most: {waits}"
