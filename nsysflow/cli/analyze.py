"""`nsysflow analyze`: reports in, a page or a table out, and the files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.cli.options import (
    flops_options,
    microseconds,
    split_domains,
    window_options,
)
from nsysflow.cli.settings import configured
from nsysflow.progress import progress

if TYPE_CHECKING:
    from nsysflow.analysis.options import Options

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1

_OUTPUT: Final = frozenset(
    {"reports", "folder", "force", "no_files", "table", "form", "as_json", "gaps_csv"}
)
"""The parameters that say what is read and where results go; the others make a `Look`."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a report is looked at.

    Attributes:
        options: what the analysis is narrowed to.
        top: rows of each list; None for each list's own number.
        at_least_ns: shorter gaps are left out of lists and files.
    """

    options: "Options"
    top: int | None
    at_least_ns: int


@click.command(cls=configured())
@click.argument("reports", nargs=-1, required=True, type=_PATH, metavar="REPORT...")
@click.option("-o", "--output", "folder", type=_PATH, metavar="DIR", help="Write the files here.")
@click.option("--force", is_flag=True, help="Write into a folder that nsysflow did not make.")
@click.option("--no-files", is_flag=True, help="Print only, write nothing.")
@click.option(
    "--table",
    type=click.Choice([*TABLES]),
    metavar="NAME",
    help=f"Print one table instead: {', '.join(TABLES)}.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "md", "parquet"]),
    help="How to print a table (default: gap_summary, as a table).",
)
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead.")
@click.option("--gaps-csv", type=_PATH, metavar="FILE", help="Write only gaps.csv; - is stdout.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Rows of each list.")
@click.option(
    "--min-gap-us",
    "at_least_ns",
    callback=microseconds,
    default="0",
    metavar="US",
    help="Leave shorter gaps out of lists and files; the sums keep them.",
)
@click.option(
    "--kernel-classes",
    "classes",
    type=_PATH,
    metavar="FILE",
    help="Classes of kernels of your own, tried before ours.",
)
@window_options
@flops_options
def analyze(
    reports: tuple[Path, ...],
    folder: Path | None,
    *,
    force: bool,
    no_files: bool,
    table: str | None,
    form: str | None,
    as_json: bool,
    gaps_csv: Path | None,
    **view: Any,  # noqa: ANN401
) -> None:
    """Say what each GPU waited for in REPORT.

    A REPORT is an nsys export (.sqlite, also .xz, .gz or .zst; a parquetdir), an .nsys-rep, or a
    trace of torch.profiler. Several are the ranks of one run, and need -o.

    Prints a page and writes the tables to REPORT.nsysflow/. With --table, --json or --gaps-csv it
    gives that instead, and the tables only with -o.

    \b
    Example:
        nsysflow analyze report.sqlite
        nsysflow analyze rank0.sqlite rank1.sqlite -o run1
        nsysflow analyze report.sqlite --table kernels --top 20
        nsysflow analyze report.sqlite --gaps-csv - --min-gap-us 100 | head
        nsysflow analyze report.sqlite --flops-per-step 4.1e12 --flops-dtype bf16
    """
    if form is not None and table is None:
        table = "gap_summary"
    alone = [table is not None, as_json, gaps_csv is not None]
    _check_usage(folder, alone, no_files=no_files)
    from nsysflow.cli import output as show
    from nsysflow.runs.analyze import PAGE, analyze_reports
    from nsysflow.runs.files import output_folder, write_folder, write_gaps

    written = not no_files and (folder is not None or not any(alone))
    if written and folder is None and len(reports) > 1:
        msg = "several reports need -o DIR for the files, or --no-files"
        raise click.UsageError(msg)
    chosen = output_folder(reports, folder, force=force) if written else None
    wanted = tuple(TABLES) if written or as_json else PAGE
    tables = (table,) if table is not None and not written else wanted
    look = _look(**view)
    with progress("analysing"):
        results = analyze_reports(reports, look.options, tables=tables)
    if chosen is not None:
        with progress(f"writing {chosen}"):
            write_folder(results, chosen, top=look.top, at_least_ns=look.at_least_ns)
    if table is not None:
        show.show_table(results, table, form or "table", top=look.top, at_least_ns=look.at_least_ns)
    elif as_json:
        show.show_json(results)
    elif gaps_csv == Path("-"):
        show.show_gaps(results, at_least_ns=look.at_least_ns)
    elif gaps_csv is not None:
        rows = write_gaps(results, gaps_csv, reports, at_least_ns=look.at_least_ns)
        click.echo(f"wrote {gaps_csv}: {rows} gaps", err=True)
    else:
        show.show_page(results, top=look.top, at_least_ns=look.at_least_ns)
    if chosen is not None:
        click.echo(f"wrote {chosen}: summary.md, report.json and the tables as CSV", err=True)


def look_of_settings(ctx: click.Context) -> Look:
    """How `[analyze]` of a settings file wants reports looked at: as `analyze` does where nothing
    is typed.

    Args:
        ctx: of the command that asks.

    Raises:
        SettingsError: the file is wrong.
    """
    params = analyze.make_context("analyze", ["REPORT"], parent=ctx).params
    return _look(**{name: value for name, value in params.items() if name not in _OUTPUT})


def _check_usage(folder: Path | None, alone: list[bool], *, no_files: bool) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: they do.
    """
    if sum(alone) > 1:
        msg = "--table, --json and --gaps-csv each want the output for themselves; choose one"
        raise click.UsageError(msg)
    if no_files and folder is not None:
        msg = "-o DIR and --no-files contradict each other"
        raise click.UsageError(msg)


def _look(
    *,
    top: int | None,
    at_least_ns: int,
    classes: Path | None,
    domains: tuple[str, ...],
    **window: Any,  # noqa: ANN401
) -> Look:
    from nsysflow.analysis.options import Options
    from nsysflow.analysis.tables.kernels.classes import read_kernel_classes

    added, removed = split_domains(domains)
    rules = () if classes is None else read_kernel_classes(classes)
    options = Options(domains_added=added, domains_removed=removed, kernel_classes=rules, **window)
    return Look(options=options, top=top, at_least_ns=at_least_ns)
