"""The page of `nsysflow check`: plain text, the worst budget first, the outcome last."""

from collections.abc import Iterator, Sequence
from typing import Final

from nsysflow.base.names import printable
from nsysflow.budgets.culprit import Culprit
from nsysflow.budgets.figures import ranks_of
from nsysflow.budgets.judging import Judged
from nsysflow.budgets.shown.words import (
    interval_text,
    limit_text,
    margin_text,
    measured_text,
    outcome,
    verdict_text,
)
from nsysflow.compare.captures import Capture
from nsysflow.compare.runs import RUNS_NEEDED

_HEADS: Final = ("budget", "measured", "interval (95 %)", "limit", "margin", "verdict")


def page(judged: Sequence[Judged], captures: Sequence[Capture]) -> Iterator[str]:
    """The page, line by line.

    Args:
        judged: the budgets, the worst first.
        captures: what was judged.
    """
    yield from map(printable, _lines(judged, captures))


def _lines(judged: Sequence[Judged], captures: Sequence[Capture]) -> Iterator[str]:
    yield _about(captures)
    yield ""
    yield from _table([_HEADS, *(_row(each, len(captures)) for each in judged)])
    yield ""
    where = [*_where(judged)]
    if where:
        yield from where
        yield ""
    if len(captures) < RUNS_NEEDED and any(each.measured for each in judged):
        yield "hint: runs differ by more than steps do; give three captures: nsysflow check A B C"
    yield outcome([*judged])


def _about(captures: Sequence[Capture]) -> str:
    """What was judged: the captures, their GPU and how many steps."""
    names = ", ".join(each.name for each in captures)
    tracks = [track for each in captures for track in each.tracks if track.has_steps]
    if not tracks:
        return names
    ranks = len(ranks_of(captures[0]))
    gpu = tracks[0].gpu or "unknown GPU"
    steps = [len(ranks_of(each)[0].steps) for each in captures if _has_steps(each)]
    counted = f"{' + '.join(map(str, steps))} step{'s' * (steps != [1])}"
    slowest = " of the slowest rank" if ranks > 1 else ""
    return f"{names} · {f'{ranks} x ' if ranks > 1 else ''}{gpu} · {counted}{slowest}"


def _has_steps(capture: Capture) -> bool:
    return any(track.has_steps for track in capture.tracks)


def _row(judged: Judged, captures: int) -> tuple[str, ...]:
    measured = judged.measured
    return (
        judged.budget.text,
        measured_text(judged, captures),
        interval_text(measured),
        limit_text(measured),
        margin_text(measured),
        verdict_text(judged),
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns, without a column that is empty."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _where(judged: Sequence[Judged]) -> Iterator[str]:
    """Where most of it is lost, of the budgets that are not kept; those with the same places
    together."""
    together: dict[tuple[Culprit, ...], list[Judged]] = {}
    for each in judged:
        if each.culprits and each.verdict != "within":
            together.setdefault(each.culprits, []).append(each)
    for culprits, alike in together.items():
        names = ", ".join(each.budget.name for each in alike)
        yield f"{names}: most idle time" if alike[0].measured else f"{names}:"
        yield from (f"  {culprit.what}" for culprit in culprits)
