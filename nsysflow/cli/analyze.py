"""`nsysflow analyze`: reports in, a page or a table out, and the files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.catalog.one_of import OneOf
from nsysflow.cli.exports import Exports, export_options
from nsysflow.cli.look import Look, analyse, look_of
from nsysflow.cli.options import (
    Command,
    flops_options,
    microseconds,
    option,
    own_option,
    window_options,
)
from nsysflow.cli.settings import configured

if TYPE_CHECKING:
    from nsysflow.cli.one_table import Form, Style
    from nsysflow.report.results import Results

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1

_OUTPUT: Final = frozenset(
    [
        *("reports", "folder", "force", "no_files", "html"),
        *("full", "table", "columns", "wide", "form", "as_json", "gaps_csv", "flamegraph"),
        *("sarif", "perfetto", "figures"),
    ]
)
"""The parameters that say what is read and where results go; the others make a `Look`."""

_PRINT: Final = "What to print"
_WRITE: Final = "What to write"


class _Analyze(Command):
    """A command whose help page ends with a list of all tables."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Tables"):
            formatter.write_dl([(name, table.about) for name, table in TABLES.items()])


def _drawable(_ctx: click.Context, _param: click.Parameter, file: Path | None) -> Path | None:
    """A file whose ending says how to draw a flame graph."""
    if file is None or file.suffix in (".svg", ".json"):
        return file
    msg = (
        f"{file} ends neither in .svg nor in .json: type --flamegraph idle.svg for a browser, or"
        " --flamegraph idle.json for speedscope.app"
    )
    raise click.BadParameter(msg)


@click.command(cls=configured(_Analyze))
@click.argument("reports", nargs=-1, type=_PATH, metavar="[REPORT]...")
@option(
    "--full", section=_PRINT, is_flag=True, help="Print all findings and lists, not one screen."
)
@option(
    "--table",
    section=_PRINT,
    type=OneOf("table", TABLES),
    metavar="NAME",
    help="Print one table instead of the page; the tables are listed below.",
)
@option(
    "--columns",
    section=_PRINT,
    metavar="A,B,C",
    help="Print these columns of the table, named as in CSV files.",
)
@option("--wide", section=_PRINT, is_flag=True, help="Print all columns, and names in full.")
@option(
    "--top",
    section=_PRINT,
    type=click.IntRange(min=1),
    metavar="N",
    show_default="as many as a screen holds",
    help="Print the first N rows of the table, or of each list.",
)
@option(
    "--format",
    "form",
    section=_PRINT,
    type=click.Choice(["table", "csv", "md", "parquet"]),
    show_default="table",
    help="Print the table in this format.",
)
@option("--json", "as_json", section=_PRINT, is_flag=True, help="Print report.json.")
@option(
    "--gaps-csv",
    section=_PRINT,
    type=_PATH,
    metavar="FILE",
    help="Write every gap to FILE, and nothing else; - prints them.",
)
@option(
    "--flamegraph",
    section=_PRINT,
    type=_PATH,
    callback=_drawable,
    metavar="FILE",
    help="Draw what the host ran while the GPU waited, and nothing else: FILE.svg for a browser,"
    " FILE.json for speedscope.app.",
)
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
def analyze(
    reports: tuple[Path, ...],
    folder: Path | None,
    *,
    force: bool,
    no_files: bool,
    html: bool,
    full: bool,
    table: str | None,
    columns: str | None,
    wide: bool,
    form: "Form | None",
    as_json: bool,
    gaps_csv: Path | None,
    flamegraph: Path | None,
    sarif: Path | None,
    perfetto: Path | None,
    figures: Path | None,
    **view: Any,  # noqa: ANN401
) -> None:
    """Show what each GPU waited for in a report.

    A REPORT is an nsys export (.sqlite, also .xz, .gz or .zst; a parquetdir), an .nsys-rep, a
    torch.profiler trace, or the folder of a run. Without one, the newest run in this folder is
    taken. Several reports are the ranks of one run, and need -o.

    Prints a page, and writes all tables to REPORT.nsysflow/. With --table, --json, --gaps-csv or
    --flamegraph it gives that instead of the page, and writes the tables only with -o.

    \b
    Example:
        nsysflow analyze report.sqlite
        nsysflow analyze rank0.sqlite rank1.sqlite -o run1
        nsysflow analyze report.sqlite --table kernels --top 20
        nsysflow analyze report.sqlite --table gaps --columns duration_ns,cause,next_op
        nsysflow analyze report.sqlite --flamegraph idle.svg
        nsysflow analyze report.sqlite --figures figures
        nsysflow analyze report.sqlite --flops-per-step 4.1e12 --flops-dtype bf16
    """
    if table is None and (form is not None or columns is not None or wide):
        table = "gap_summary"
    alone = [table is not None, as_json, gaps_csv is not None, flamegraph is not None]
    _check_usage(folder, [*alone, full], no_files=no_files)
    written = not no_files and (folder is not None or not any(alone))
    if html and not written:
        _refuse_html(no_files=no_files)
    exports = Exports(sarif=sarif, perfetto=perfetto, figures=figures)
    exports.check()
    from nsysflow.cli.one_table import style_of
    from nsysflow.runs.files import output_folder
    from nsysflow.runs.sources import newest_run

    look = look_of(**view)
    style = style_of(table, columns=columns, wide=wide, form=form, top=look.top)
    if not reports:
        reports = (newest_run(Path()),)
        click.echo(f"analysing {reports[0].absolute().name}, the newest run here", err=True)
    if written and folder is None and len(reports) > 1:
        msg = "several reports need -o DIR for the files, or --no-files"
        raise click.UsageError(msg)
    chosen = output_folder(reports, folder, force=force) if written else None
    tables = (*_wanted(table, whole=written or as_json, page=not any(alone)), *exports.tables)
    results = analyse(reports, look, tables=tables, folder=chosen, html=html)
    if gaps_csv is not None:
        _give_gaps(results, gaps_csv, reports, look.at_least_ns)
    elif flamegraph is not None:
        _draw(results, flamegraph, reports)
    else:
        _print(results, look, style, table=table, as_json=as_json, full=full)
    exports.write(results, reports)
    if chosen is not None:
        page = "report.html, " if html else ""
        wrote = f"{page}summary.md, report.json and {_tables_in(chosen)}"
        click.echo(f"wrote {chosen}: {wrote}", err=True)


def _tables_in(folder: Path) -> str:
    """The kinds of files that the tables became."""
    from nsysflow.report.tables import GAPS_PARQUET

    large = (folder / GAPS_PARQUET).is_file()
    return f"the tables as CSV{f', all gaps as {GAPS_PARQUET}' if large else ''}"


def look_of_settings(ctx: click.Context, **typed: Any) -> Look:  # noqa: ANN401
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
    return look_of(**{name: value for name, value in params.items() if name not in _OUTPUT})


def _check_usage(folder: Path | None, alone: list[bool], *, no_files: bool) -> None:
    """Refuse options that cannot be combined.

    Raises:
        click.UsageError: they were.
    """
    if sum(alone) > 1:
        msg = "--full, --table, --json, --gaps-csv and --flamegraph cannot be combined"
        raise click.UsageError(msg)
    if no_files and folder is not None:
        msg = "-o DIR and --no-files cannot be combined"
        raise click.UsageError(msg)


def _refuse_html(*, no_files: bool) -> None:
    """Refuse --html where no files are written.

    Raises:
        click.UsageError: always.
    """
    instead = "leave out --no-files" if no_files else "name a folder with -o DIR"
    msg = f"--html writes report.html beside the other files: {instead}"
    raise click.UsageError(msg)


def _wanted(table: str | None, *, whole: bool, page: bool) -> tuple[str, ...]:
    """The tables to compute at once: all, the one that is printed, or those of the page."""
    if whole:
        return tuple(TABLES)
    if table is not None:
        return (table,)
    from nsysflow.runs.analyze import PAGE

    return PAGE if page else ()


def _print(
    results: "Results",
    look: Look,
    style: "Style",
    *,
    table: str | None,
    as_json: bool,
    full: bool,
) -> None:
    from nsysflow.cli.one_table import show_table
    from nsysflow.cli.output import show_json, show_page

    if table is not None:
        show_table(results, table, style, at_least_ns=look.at_least_ns)
    elif as_json:
        show_json(results)
    else:
        show_page(results, full=full, top=look.top, at_least_ns=look.at_least_ns)


def _give_gaps(results: "Results", target: Path, reports: Sequence[Path], at_least_ns: int) -> None:
    """Write every gap to a file, or print them."""
    from nsysflow.cli.output import show_gaps
    from nsysflow.runs.files import write_gaps

    if target == Path("-"):
        show_gaps(results, at_least_ns=at_least_ns)
        return
    rows = write_gaps(results, target, reports, at_least_ns=at_least_ns)
    click.echo(f"wrote {target}: {rows} gaps", err=True)


def _draw(results: "Results", target: Path, reports: Sequence[Path]) -> None:
    """Write the idle flame graph."""
    from nsysflow.report.flamegraph.draw import draw
    from nsysflow.runs.files import write_text

    write_text(draw(results, target), target, reports)
    opened = "speedscope.app" if target.suffix == ".json" else "a browser"
    click.echo(f"wrote {target}: open it in {opened}", err=True)
