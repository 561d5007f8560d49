"""What a shell completes: workloads, ranges, names; and the script that makes it do so."""

import csv
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem, get_completion_class

from nsysflow.catalog.catalog import workloads as built_in

TYPED: Final = "nsysflow.typed"
"""Where a context keeps the words of its command: click has parsed none of them when an option
still lacks its value."""

_SHELLS: Final = ("bash", "zsh", "fish")

_SQL: Final = """
    SELECT DISTINCT coalesce(text, value)
    FROM (SELECT text, textId FROM NVTX_EVENTS WHERE eventType IN (59, 60) LIMIT 100000)
    LEFT JOIN StringIds ON id = textId
    LIMIT 500
"""
"""59 are ranges that were pushed, 60 are those that were started. The limits keep it fast."""

_NUMBER: Final = re.compile(r"\d")


def workloads(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The workloads that begin so."""
    return [
        CompletionItem(workload.name, help=workload.summary)
        for workload in built_in()
        if workload.name.startswith(typed)
    ]


def variants(ctx: click.Context, _param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The variants of the workload that was typed, which begin so."""
    return [
        CompletionItem(variant.name, help=variant.summary)
        for workload in built_in()
        if workload.name in ctx.meta[TYPED]
        for variant in workload.variants
        if variant.name.startswith(typed)
    ]


def ranges(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """The ranges of the reports that were typed, which begin so."""
    reports = [path for path in map(Path, ctx.meta[TYPED]) if path.exists()]
    names = {name for report in reports for name in range_names(report)}
    return sorted(name for name in names if name.startswith(typed))


def range_names(report: Path) -> list[str]:
    """The ranges of a report by name and path: as an earlier analysis wrote them, else as a plain
    SQLite export holds them. None where neither can be read, or the report is of another kind."""
    from nsysflow.runs.manifest import is_run

    folder = report if is_run(report) else Path(f"{report}.nsysflow")
    try:
        return sorted({*(_analysed(folder / "phases.csv") or _exported(report))})
    except (OSError, UnicodeDecodeError, KeyError, csv.Error, sqlite3.Error):
        return []


def _analysed(phases: Path) -> set[str]:
    """The names and paths in phases.csv; none without the file."""
    if not phases.is_file():
        return set()
    with phases.open(encoding="utf-8", newline="") as file:
        paths = {row["path"] for row in csv.DictReader(file)}
    return {name for path in paths for name in (path, path.rpartition("/")[2])}


def _exported(report: Path) -> Iterator[str]:
    """The names in an export; one with a number may be called otherwise by the analysis."""
    database = report / "report.sqlite" if report.is_dir() else report
    with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as open_report:
        for (name,) in open_report.execute(_SQL):
            if isinstance(name, str) and not _NUMBER.search(name):
                yield name


def explained(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """The names that `explain` has a page on, which begin so."""
    from nsysflow.report.explain.names import names_by_kind

    names = dict.fromkeys(name for group in names_by_kind().values() for name in group)
    return [name for name in names if name.startswith(typed)]


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes your shell complete names.

    These are commands, options, workloads, variants, tables, what explain has a page on, and the
    ranges of the report that was typed: of one that was analysed before, or a plain .sqlite.

    \b
    Example:
        eval "$(nsysflow completion bash)"      # put this line into ~/.bashrc
        eval "$(nsysflow completion zsh)"       # put this line into ~/.zshrc
        nsysflow completion fish > ~/.config/fish/completions/nsysflow.fish
    """
    completer = get_completion_class(shell)
    if completer is None:
        msg = f"this version of click completes nothing in {shell}"
        raise click.UsageError(msg)
    root = ctx.find_root()
    click.echo(completer(root.command, {}, "nsysflow", "_NSYSFLOW_COMPLETE").source())
