"""`nsysflow analyze`: reports in, a page or a table out, and the files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from nsysflow.analysis.tables.index import ABOUT
from nsysflow.cli.analyze_options import AnalyzeOptions, analyze_with_options
from nsysflow.cli.answers import Printed, print_options
from nsysflow.cli.cache import cache_option
from nsysflow.cli.exports import Exports, export_options
from nsysflow.cli.options import (
    HOW_TO_RUN,
    Command,
    Workers,
    flops_options,
    from_params,
    microseconds,
    option,
    own_option,
    window_options,
    worker_options,
)
from nsysflow.cli.settings import configured
from nsysflow.runs.resources import use_one_core_for

if TYPE_CHECKING:
    from nsysflow.report.results import Results

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1

_WRITE: Final = "What to write"


class _Analyze(Command):
    """A command whose help page ends with a list of all tables."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Tables"):
            formatter.write_dl([*ABOUT.items()])


@dataclass(frozen=True, kw_only=True)
class AnalyzeCommand:
    """All that was typed after `nsysflow analyze`.

    Attributes:
        reports: as typed; empty for the newest run.
        folder: where the files go; None for beside the report, or nowhere.
        force: write into a folder that nsysflow did not make.
        no_files: write none.
        html: also write report.html.
        printed: what is printed.
        exports: the files for other programs.
        look: how the reports are looked at.
        workers: who analyses many.
    """

    reports: tuple[Path, ...]
    folder: Path | None
    force: bool
    no_files: bool
    html: bool
    printed: Printed
    exports: Exports
    look: AnalyzeOptions
    workers: Workers

    @classmethod
    def of(cls, typed: Mapping[str, Any]) -> "AnalyzeCommand":
        """The command from click's parameters."""
        return cls(
            reports=typed["reports"],
            folder=typed["folder"],
            force=typed["force"],
            no_files=typed["no_files"],
            html=typed["html"],
            printed=from_params(Printed, typed),
            exports=from_params(Exports, typed),
            look=from_params(AnalyzeOptions, typed),
            workers=from_params(Workers, typed),
        )

    @property
    def writes(self) -> bool:
        """Whether the tables are written."""
        return not self.no_files and (self.folder is not None or not self.printed.alone)

    def check(self) -> None:
        """Refuse, before any work is done, options that cannot be combined.

        Raises:
            click.UsageError: they were.
            NsysflowError: what a file needs is not installed, or it cannot be written.
        """
        self.workers.choice()
        self.printed.check()
        if self.no_files and self.folder is not None:
            msg = "-o DIR and --no-files cannot be combined"
            raise click.UsageError(msg)
        if self.html and not self.writes:
            instead = "leave out --no-files" if self.no_files else "name a folder with -o DIR"
            msg = f"--html writes report.html beside the other files: {instead}"
            raise click.UsageError(msg)
        self.exports.check()


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
    section=HOW_TO_RUN,
    is_flag=True,
    help="Keep large tables on disk instead of in memory.",
)
@option(
    "--min-gap-us",
    "at_least_ns",
    section=_WRITE,
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
def analyze(**typed: Any) -> None:
    """Show what each GPU waited for in a report.

    A REPORT is an nsys export (.sqlite, also .xz, .gz or .zst; a parquetdir or arrowdir), an
    .nsys-rep, a torch.profiler trace, or the folder of a run. Without one, the newest run in this
    folder is taken. Several reports are the ranks of one run, and need -o: name them, a folder
    that holds them, or a pattern in quotes.

    Prints a page, and writes all tables to REPORT.nsysflow/. With --table, --json, --gaps-csv or
    --flamegraph it gives only that, and writes the tables only with -o.

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
    command = AnalyzeCommand.of(typed)
    printed, exports, look = command.printed, command.exports, command.look
    use_one_core_for(command.reports)  # before anything imports polars
    command.check()
    from nsysflow.cli.answers import ReportAnswers, likely_answers
    from nsysflow.runs.paths import is_pattern
    from nsysflow.runs.sources import newest_run

    look.options()  # a mistake in them shows before anything is read
    reports = command.reports
    if not reports:
        reports = (newest_run(Path()),)
        use_one_core_for(reports)
        click.echo(f"analysing {reports[0].absolute().name}, the newest run here", err=True)
    if command.writes and command.folder is None and (len(reports) > 1 or is_pattern(reports[0])):
        msg = "several reports need -o DIR for the files, or --no-files"
        raise click.UsageError(msg)
    chosen = _folder_of(reports, command.folder, force=command.force) if command.writes else None

    answers = ReportAnswers(reports, look, strict=command.workers.strict)

    def analyzed() -> "Results":
        return analyze_with_options(
            reports,
            look,
            tables=_tables_of_files() if command.writes else (*printed.tables, *exports.tables),
            folder=chosen,
            html=command.html,
            workers=command.workers,
        )

    name = printed.answer_name(look)
    if name is not None and not (command.writes or exports.asked):
        answers.show(name, lambda: printed.answer(analyzed(), look))
        return
    results = analyzed()
    printed.show(results, look, reports)
    exports.write(results, reports)
    if chosen is not None:
        click.echo(f"wrote {chosen}: {_files_in(chosen, html=command.html)}", err=True)
        answers.keep(lambda: likely_answers(results, look))


def _tables_of_files() -> tuple[str, ...]:
    """What is computed on all cores where files are written. summary.md is a page: its tables of
    judged steps are among them."""
    from nsysflow.runs.analyze import PAGE

    return (*ABOUT, *PAGE)


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


def options_of_settings(ctx: click.Context) -> AnalyzeOptions:
    """How `[analyze]` of a settings file wants reports looked at: as `analyze` does where nothing
    is typed. Options that the command of `ctx` shares with `analyze` count if they were typed.

    Raises:
        SettingsError: the file is wrong.
    """
    params = analyze.make_context("analyze", ["REPORT"], parent=ctx).params
    typed = {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    return from_params(AnalyzeOptions, {**params, **typed})
