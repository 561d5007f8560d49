"""`nsysflow analyze`: reports in, a page or a table out, and the files."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.cli.analyze_options import AnalyzeOptions, analyze_options_of, analyze_with_options
from nsysflow.cli.cache import cache_option
from nsysflow.cli.exports import Exports, export_options
from nsysflow.cli.options import (
    Command,
    Workers,
    flops_options,
    microseconds,
    option,
    own_option,
    pop_fields,
    window_options,
    worker_options,
)
from nsysflow.cli.printed import Printed, print_options
from nsysflow.cli.settings import configured

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1

_OUTPUT: Final = frozenset(
    [
        *("reports", "folder", "force", "no_files", "html", "low_memory"),
        *(field.name for kind in (Printed, Exports, Workers) for field in fields(kind)),
    ]
)
"""The parameters that say what is read and where results go; the others make a `Look`."""

_WRITE: Final = "What to write"


class _Analyze(Command):
    """A command whose help page ends with a list of all tables."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Tables"):
            formatter.write_dl([(name, table.about) for name, table in TABLES.items()])


@click.command(cls=configured(_Analyze))
@click.argument("reports", nargs=-1, type=_PATH, metavar="[REPORT]...")
@print_options
@option(
    "-o",
    "--output",
    "folder",
    section=_WRITE,
    type=_PATH,
    metavar="DIR",
    show_default="REPORT.nsysflow, or the run's folder",
    help="Write the files to DIR.",
)
@option("--no-files", section=_WRITE, is_flag=True, help="Write no files.")
@option(
    "--force", section=_WRITE, is_flag=True, help="Write into a folder that nsysflow did not make."
)
@option(
    "--html",
    section=_WRITE,
    is_flag=True,
    help="Also write report.html, for a browser: the timeline, findings and tables.",
)
@option(
    "--gaps-format",
    section=_WRITE,
    type=click.Choice(["auto", "csv", "parquet"]),
    default="auto",
    help="Write the file of all gaps in this format; auto takes Parquet above 50 MB.",
)
@export_options
@window_options
@cache_option
@option(
    "--low-memory",
    section="What to look at",
    is_flag=True,
    help="Keep large tables on disk instead of in memory.",
)
@option(
    "--min-gap-us",
    "at_least_ns",
    section="What to look at",
    callback=microseconds,
    default="0",
    metavar="US",
    help="Leave gaps shorter than this out of lists and files; sums keep them.",
)
@flops_options
@own_option
@option(
    "--kernel-classes",
    "classes",
    section="How to judge it",
    type=_PATH,
    metavar="FILE",
    help="Sort kernels by the classes in this TOML file, before the built-in ones.",
)
@worker_options
def analyze(
    reports: tuple[Path, ...],
    folder: Path | None,
    *,
    force: bool,
    no_files: bool,
    html: bool,
    low_memory: bool,
    **others: Any,
) -> None:
    """Show what each GPU waited for in a report.

    A REPORT is an nsys export (.sqlite, also .xz, .gz or .zst; a parquetdir), an .nsys-rep, a
    torch.profiler trace, or the folder of a run. Without one, the newest run in this folder is
    taken. Several reports are the ranks of one run, and need -o: name them, a folder that holds
    them, or a pattern in quotes.

    Prints a page, and writes all tables to REPORT.nsysflow/. With --table, --json, --gaps-csv or
    --flamegraph it gives that instead of the page, and writes the tables only with -o.

    \b
    Example:
        nsysflow analyze report.sqlite
        nsysflow analyze rank0.sqlite rank1.sqlite -o run1
        nsysflow analyze 'runs/*/rank*.sqlite' -o run1
        nsysflow analyze report.sqlite --table kernels --top 20
        nsysflow analyze report.sqlite --table gaps --columns duration_ns,cause,next_op
        nsysflow analyze report.sqlite --flamegraph idle.svg
        nsysflow analyze report.sqlite --figures figures
        nsysflow analyze report.sqlite --flops-per-step 4.1e12 --flops-dtype bf16
    """
    printed, exports = pop_fields(Printed, others), pop_fields(Exports, others)
    how = pop_fields(Workers, others).how()
    printed.check()
    written = not no_files and (folder is not None or not printed.alone)
    _check_written(folder, html=html, no_files=no_files, written=written)
    exports.check()
    from nsysflow.cli.printed import print_page
    from nsysflow.runs.analyze import PAGE
    from nsysflow.runs.paths import is_pattern
    from nsysflow.runs.sources import newest_run

    look = analyze_options_of(**others)
    if not reports:
        reports = (newest_run(Path()),)
        click.echo(f"analysing {reports[0].absolute().name}, the newest run here", err=True)
    if written and folder is None and (len(reports) > 1 or is_pattern(reports[0])):
        msg = "several reports need -o DIR for the files, or --no-files"
        raise click.UsageError(msg)
    chosen = _folder_of(reports, folder, force=force) if written else None
    # summary.md is a page: its tables of judged steps are computed on all cores too
    tables = (*TABLES, *PAGE) if written else (*printed.tables, *exports.tables)
    how |= {"low_memory": low_memory, "html": html}
    analysed = partial(analyze_with_options, reports, look, tables=tables, folder=chosen, **how)
    if not (written or printed.alone or exports.asked):
        print_page(reports, look, analysed, full=printed.full)
        return
    results = analysed()
    printed.show(results, look, reports)
    exports.write(results, reports)
    if chosen is not None:
        click.echo(f"wrote {chosen}: {_files_in(chosen, html=html)}", err=True)


def _folder_of(reports: Sequence[Path], folder: Path | None, *, force: bool) -> Path:
    """Where the files go. Imported late: a page needs nothing that writes files."""
    from nsysflow.runs.files import output_folder

    return output_folder(reports, folder, force=force)


def _files_in(folder: Path, *, html: bool) -> str:
    """What was written: `summary.md, report.json and the tables as CSV`."""
    from nsysflow.report.tables import GAPS_PARQUET

    page = "report.html, " if html else ""
    large = f", all gaps as {GAPS_PARQUET}" if (folder / GAPS_PARQUET).is_file() else ""
    return f"{page}summary.md, report.json and the tables as CSV{large}"


def look_of_settings(ctx: click.Context, **typed: Any) -> AnalyzeOptions:
    """How `[analyze]` of a settings file wants reports looked at: as `analyze` does where nothing
    is typed.

    Args:
        ctx: of the command that asks.
        typed: options of that command that `analyze` has too; those that were typed count.

    Raises:
        SettingsError: the file is wrong.
    """
    params = analyze.make_context("analyze", ["REPORT"], parent=ctx).params
    params |= {
        name: value
        for name, value in typed.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    return analyze_options_of(
        **{name: value for name, value in params.items() if name not in _OUTPUT}
    )


def _check_written(folder: Path | None, *, html: bool, no_files: bool, written: bool) -> None:
    """Refuse options about files that cannot be combined.

    Raises:
        click.UsageError: they were.
    """
    if no_files and folder is not None:
        msg = "-o DIR and --no-files cannot be combined"
        raise click.UsageError(msg)
    if html and not written:
        instead = "leave out --no-files" if no_files else "name a folder with -o DIR"
        msg = f"--html writes report.html beside the other files: {instead}"
        raise click.UsageError(msg)
