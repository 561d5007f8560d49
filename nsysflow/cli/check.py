"""`nsysflow check`: captures and budgets in; what is within them, crossed or too noisy out."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

import click

from nsysflow.base.errors import CheckError, ExitCode, OutputError, SelectionError, WrongBudget
from nsysflow.base.progress import progress
from nsysflow.cli.options import Command, option, step_option
from nsysflow.cli.settings import configured, place_of

if TYPE_CHECKING:
    from nsysflow.compare.baseline import Baseline
    from nsysflow.compare.budgets import Budget
    from nsysflow.compare.captures import Capture
    from nsysflow.compare.judging import Judgement


_INSTALLED: Final = frozenset({"node_modules", "site-packages", "__pycache__"})
"""Folders whose files are not the program's own."""


def file_below(name: str) -> str | None:
    """The one file below the current folder whose path ends so, relative to it.

    Args:
        name: the file as a report names it: without the folders in front.

    Returns:
        None where there is no such file, or more than one.
    """
    matching = [path for path in _files(Path(name).name) if f"/{path}".endswith(f"/{name}")]
    return matching[0] if len(matching) == 1 else None


def file_in_repository(name: str) -> str | None:
    """The one file of the working tree that a report names, relative to the root of the repository;
    outside of a repository, to the current folder.

    Args:
        name: the whole path of the file, or the end of one below the current folder.

    Returns:
        None where there is no such file, or more than one.
    """
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    below = name if Path(name).is_absolute() else file_below(name)
    if below is None:
        return None
    file = (here / below).resolve()  # code scanning does not follow links
    inside = file.is_file() and file.is_relative_to(root)
    return file.relative_to(root).as_posix() if inside else None


def _files(name: str) -> Iterator[str]:
    """Files of a name below the current folder, outside of hidden and installed ones."""
    for folder, inside, names in os.walk("."):
        if "pyvenv.cfg" in names:
            inside.clear()
            continue
        inside[:] = [name for name in inside if not name.startswith(".") and name not in _INSTALLED]
        if name in names:
            yield Path(folder, name).as_posix()


_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1
_BUDGETS: Final = "What is allowed"
_PRINTED: Final = "What to print"


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """How the outcome is shown."""

    as_json: bool
    junit: Path | None
    github: bool


@click.command(cls=configured(Command))
@click.argument("reports", type=_PATH, nargs=-1, required=True, metavar="REPORT...")
@option(
    "--max",
    "typed",
    section=_BUDGETS,
    multiple=True,
    metavar="NAME<=LIMIT",
    help="Limit a figure of a step ('step_ms<=5'), or forbid a finding"
    " ('finding:sync-in-loop=none'). Can be repeated. Replaces the budgets of the settings file.",
)
@option(
    "--baseline",
    "baselines",
    section=_BUDGETS,
    type=_PATH,
    multiple=True,
    metavar="FILE",
    help="Compare with this file, which --update-baseline wrote, or with this report. Repeat it for"
    " several captures.",
)
@option(
    "--update-baseline",
    "update",
    section=_BUDGETS,
    is_flag=True,
    help="Write the figures of REPORT to the --baseline file, and judge nothing.",
)
@step_option
@option("--json", "as_json", section=_PRINTED, is_flag=True, help="Print a JSON document.")
@option("--junit", section=_PRINTED, type=_PATH, metavar="FILE", help="Write JUnit XML to FILE.")
@option(
    "--github",
    section=_PRINTED,
    is_flag=True,
    help="Also print annotations of source lines for GitHub (with --json to stderr).",
)
@click.pass_context
def check(
    ctx: click.Context,
    reports: tuple[Path, ...],
    *,
    typed: tuple[str, ...],
    baselines: tuple[Path, ...],
    update: bool,
    step: str | None,
    as_json: bool,
    junit: Path | None,
    github: bool,
) -> None:
    """Check that a program is within its budgets.

    A REPORT is a report, the folder of a run, or its report.json. Several REPORTs are captures of
    one program. Give three of 40 steps each: runs differ by more than steps do.

    Type budgets with --max, or write them into [check] of nsysflow.toml: max = ["step_ms<=5"].
    They limit the step that analyze shows: the mean of all after start-up, of the slowest rank.

    \b
      step_ms                  the step; each time also as _us or _ns
      idle_ms, idle_pct        a part: also compute_, communication_ and copies_ (exposed)
      sync.idle_behind_ms      idle time by cause: also host, launch, ...; or _pct
      phase:backward.step_ms   a phase by path or last name; .busy_ms, .idle_ms, .kernel_ms
      kernel:NAME.ms           a kernel by its short name; .count
      class:matmul.ms          a class of kernels
      finding:sync-in-loop=none

    A limit is a number, `baseline`, or a factor of it: step_ms<=1.05*baseline. The exit code is 3
    if a budget is crossed, and 4 if none is crossed but one is too noisy to judge.

    \b
    Example:
        nsysflow check report.sqlite --max 'step_ms<=5' --max 'finding:sync-in-loop=none'
        nsysflow check a b c --baseline baseline.json --update-baseline
        nsysflow check d e f --baseline baseline.json --max 'step_ms<=1.05*baseline'
    """
    from nsysflow.compare.budgets import budget

    if update:
        _update(reports, baselines, step)
        return
    budgets = [budget(text, place_of(ctx, "typed", text)) for text in typed]
    if not budgets:
        advice = "Say what is allowed with --max, or with max in [check] of nsysflow.toml"
        raise WrongBudget("no budget is given", advice, _again(reports, "--max 'step_ms<=5'"))
    judged, captures = _judged(reports, budgets, baselines, step)
    _show(judged, captures, _Shown(as_json=as_json, junit=junit, github=github))
    codes = {"crossed": ExitCode.CROSSED, "too noisy": ExitCode.TOO_NOISY, "within": 0}
    sys.exit(codes[judged[0].verdict])


def _judged(
    reports: Sequence[Path],
    budgets: "Sequence[Budget]",
    baselines: Sequence[Path],
    step: str | None,
) -> "tuple[list[Judgement], list[Capture]]":
    """The budgets, judged, and the captures that they were judged by."""
    from nsysflow.compare.budgets import figures_of, limits_of, refuse_rules
    from nsysflow.compare.judging import judge

    of_findings = [budget for budget in budgets if budget.rule is not None]
    of_figures = [budget for budget in budgets if budget.rule is None]
    if of_findings:
        from nsysflow.analysis.findings.explanation import explanations

        refuse_rules(of_findings, explanations())
    captures = _captures(reports, step, findings=bool(of_findings))
    limits = limits_of(of_figures, figures_of(captures)) if of_figures else []
    baseline = None
    if any(budget.of_baseline for budget in budgets):
        baseline = _baseline(baselines, reports, captures, step)
    return judge(limits, of_findings, captures, baseline), captures


def _captures(
    reports: Sequence[Path], step: str | None, *, findings: bool = False
) -> "list[Capture]":
    """Captures of one program, each fit to be judged."""
    from nsysflow.compare.baseline import refuse_unlike
    from nsysflow.runs.captures import captures_of

    seen: set[Path] = set()
    for report in reports:
        if report.resolve() in seen:
            raise SelectionError(f"{report} was given twice", "Name each capture once")
        seen.add(report.resolve())
    with progress("analysing") as work:
        captures = captures_of(reports, step=step, findings=findings, progress=work)
    for capture in captures:
        if capture.invalid is not None:
            raise CheckError(f"{capture.name} cannot be judged: {capture.invalid.rstrip('.')}")
    refuse_unlike(captures[:1], captures[1:])
    return captures


def _baseline(
    files: Sequence[Path], reports: Sequence[Path], captures: "list[Capture]", step: str | None
) -> "Baseline | None":
    """What the captures are compared with; None where nothing was named."""
    from nsysflow.compare.baseline import baseline_of, is_baseline, read_baseline, refuse_unlike

    if not files:
        return None
    missing = next((file for file in files if not file.exists()), None)
    if missing is not None:
        advice = "Write it from captures of the program as it should be"
        raise CheckError(f"there is no {missing}", advice, _update_command(missing, reports, step))
    if is_baseline(files[0]) and len(files) == 1:
        return read_baseline(files[0], captures, _update_command(files[0], reports, step))
    before = _captures(files, step)
    refuse_unlike(before, captures)
    return baseline_of(before)


def _update(reports: Sequence[Path], files: Sequence[Path], step: str | None) -> None:
    """Write the baseline file."""
    from nsysflow.compare.baseline import baseline_json, is_baseline

    if len(files) != 1:
        msg = "--update-baseline writes one file: name it with --baseline FILE"
        raise click.UsageError(msg)
    (file,) = files
    if file.exists() and not is_baseline(file):
        advice = "--update-baseline replaces only what it wrote. Name another file, or remove it"
        raise OutputError(f"{file} is no baseline file", advice)
    captures = _captures(reports, step)
    _write(file, baseline_json(captures))
    counted = "1 capture" if len(captures) == 1 else f"{len(captures)} captures"
    click.echo(f"wrote {file}: the figures of {counted}")


def _show(judged: "list[Judgement]", captures: "list[Capture]", shown: _Shown) -> None:
    """Print the page or the document, the annotations, and write the JUnit file."""
    if shown.junit is not None:
        from nsysflow.compare.budget_pages import junit_xml

        _write(shown.junit, junit_xml(judged, captures))
    if shown.as_json:
        from nsysflow.compare.budget_pages import check_json

        click.echo(check_json(judged, captures))
    else:
        from nsysflow.compare.budget_pages import page

        for line in page(judged, captures, width=get_terminal_size((110, 0)).columns):
            click.echo(line)
    if shown.github:
        from nsysflow.compare.budget_pages import annotations

        for line in annotations(judged, len(captures), file_below):
            click.echo(line, err=shown.as_json)


def _write(file: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    from nsysflow.base.atomic import staged_file  # takes 10 ms, which -h has not

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with staged_file(file) as scratch:
            scratch.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write {file}: {error.strerror}; nothing was written",
            "Make room, or name another file",
        ) from error


def _update_command(file: Path, reports: Sequence[Path], step: str | None) -> str:
    """What to type for a new baseline file."""
    named = f" --step {quote(step)}" if step else ""
    return _again(reports, f"--baseline {quote(str(file))} --update-baseline{named}")


def _again(reports: Sequence[Path], options: str) -> str:
    """The command with the same reports."""
    return f"nsysflow check {' '.join(quote(str(report)) for report in reports)} {options}"
