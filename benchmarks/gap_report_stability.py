"""How much of gap-report.csv differs between captures, and what leads where the program changed.

    python -m benchmarks.gap_report_stability train-base-*.sqlite.xz train-new-*.sqlite.xz
    python -m benchmarks.gap_report_stability --change train-base train-new train-*.sqlite.xz

Captures of one program are named alike, but for a number at the end. A line is a row of the CSV
without its heading. Of a pair of captures, the share is that of the lines that `diff` prints, on
both sides, of all lines of both. The noise of a share is the standard deviation of its natural log.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import combinations, product
from math import floor, log, log10, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import TypeVar

import click

from nsysflow.analysis.options import Options
from nsysflow.report.gap_report import GapReport, Place, as_csv, gap_report, tracks_of
from nsysflow.runs.analyze import analyze_reports

T = TypeVar("T")
Lines = frozenset[str]
Shares = Mapping[Place, float]
"""The share of a step of each listed row, not rounded."""

_PER_DECADE = 3
"""Figures of a scale like 1, 2, 5 between a share and its tenfold."""
_SHIFTS = 10
_LAST_ROW = (None, 0)
"""What is not listed; its scale is so coarse that it stays."""


def report_of(path: Path) -> GapReport:
    """The gap report of a capture."""
    return gap_report(tracks_of(analyze_reports([path], Options(), tables=("steps", "step_parts"))))


def lines_of(report: GapReport) -> Lines:
    """The lines of the CSV without its heading."""
    return frozenset(as_csv(report).splitlines()[1:])


def program_of(path: Path) -> str:
    """The name of the program: `train-base` of `train-base-3.sqlite.xz`."""
    return re.sub(r"-\d+$", "", path.name.partition(".")[0])


def share_pct(one: Set[T], other: Set[T]) -> float:
    """The share of lines that differ; of two empty reports 0."""
    lines = len(one) + len(other)
    return 100 * len(one ^ other) / lines if lines else 0.0


def changes(base: Lines, new: Lines) -> dict[str, int]:
    """By how many percent of a step each row changed, of those that did."""
    before, after = _figures(base), _figures(new)
    found = {row: after.get(row, 0) - before.get(row, 0) for row in {*before, *after}}
    return {row: change for row, change in found.items() if change}


def _figures(lines: Lines) -> dict[str, int]:
    split = (line.rpartition(",") for line in lines)
    return {place.rstrip(","): int(pct) for place, _, pct in split}


def noise(captures: Sequence[Shares]) -> float:
    """By how much the share of a row differs between captures: the standard deviation of its log,
    in the quadratic mean over the rows that all captures list. 0 where there are none."""
    common = set[Place].intersection(*[{*each} for each in captures])
    variances = [variance([log(each[place]) for each in captures]) for place in common]
    return sqrt(fmean(variances)) if variances else 0.0


def shifted_pct(captures: Sequence[Shares]) -> float:
    """The mean share of differing lines if the figures of the scale were others, as far apart: it
    shows whether they lie luckily for these captures."""
    found = []
    for shift in range(_SHIFTS):
        rounded = [
            {
                _LAST_ROW,
                *((at, floor(_PER_DECADE * log10(each[at]) + shift / _SHIFTS)) for at in each),
            }
            for each in captures
        ]
        found += [share_pct(one, other) for one, other in combinations(rounded, 2)]
    return fmean(found)


def _stability(program: str, captures: Sequence[GapReport]) -> str:
    pairs = combinations(map(lines_of, captures), 2)
    differ = [share_pct(one, other) for one, other in pairs]
    rows = fmean(len(report.rows) for report in captures)
    shares = [
        {row.place: row.share for row in report.rows if row.place is not None}
        for report in captures
    ]
    figures = (fmean(differ), max(differ), shifted_pct(shares))
    shown = " | ".join(f"{figure:.1f}" for figure in figures)
    return f"| {program} | {len(captures)} | {rows:.1f} | {noise(shares):.2f} | {shown} |"


def _change(base: str, new: str, pairs: Iterable[tuple[Lines, Lines]]) -> str:
    found = [changes(*pair) for pair in pairs]
    directions: dict[tuple[str, bool], list[int]] = {}
    for each in found:
        for row, change in each.items():
            directions.setdefault((row, change > 0), []).append(change)
    if not directions:
        return f"| {base} → {new} | nothing |  | 0 of {len(found)} | 0 of {len(found)} |"
    row, grows = max(
        directions,
        key=lambda key: (len(directions[key]), sum(map(abs, directions[key])), key),
    )
    by = ", ".join(f"{change:+d}" for change in sorted({*directions[row, grows]}))
    leads = sum(abs(each.get(row, 0)) == max(map(abs, each.values())) for each in found if each)
    in_pairs = len(directions[row, grows])
    return (
        f"| {base} → {new} | {row} | {by} | {in_pairs} of {len(found)} | {leads} of {len(found)} |"
    )


@click.command()
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--change", nargs=2, multiple=True, help="Two programs, before and after a change.")
def main(reports: Sequence[Path], change: Sequence[tuple[str, str]]) -> None:
    """Print, as Markdown, how much of the gap reports of REPORTS differs."""
    programs: dict[str, list[GapReport]] = {}
    for path in sorted(reports):
        programs.setdefault(program_of(path), []).append(report_of(path))
    heads = ("captures", "rows", "noise of a share", "differ, mean %", "worst pair %", "shifted %")
    click.echo(f"| program | {' | '.join(heads)} |\n| --- |{' ---: |' * len(heads)}")
    for program, captures in programs.items():
        if len(captures) > 1:
            click.echo(_stability(program, captures))
    if change:
        click.echo(
            "\n| before → after | changed in most pairs | by, % of a step | in pairs | leads in |"
        )
        click.echo("| --- | --- | ---: | ---: | ---: |")
    for base, new in change:
        before, after = (map(lines_of, programs[name]) for name in (base, new))
        click.echo(_change(base, new, product(before, after)))


if __name__ == "__main__":
    main()
