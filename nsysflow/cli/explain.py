"""`nsysflow explain`: a finding in full, or a help page on a name."""

from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from nsysflow.base.errors import UnknownName
from nsysflow.cli import completion
from nsysflow.cli.analyze import options_of_settings
from nsysflow.cli.analyze_options import AnalyzeOptions, analyze_with_options
from nsysflow.cli.cache import cache_option
from nsysflow.cli.options import Command, flops_options, own_option, window_options
from nsysflow.runs.resources import use_one_core_for

if TYPE_CHECKING:
    from nsysflow.base.screen import Printout
    from nsysflow.report.explain.pages import Explained

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1


@click.command(cls=Command)
@click.argument("what", required=False, shell_complete=completion.explained)
@click.argument("reports", nargs=-1, type=_PATH, metavar="[REPORT]...")
@window_options
@flops_options
@own_option
@cache_option
@click.pass_context
def explain(
    ctx: click.Context, /, what: str | None, reports: tuple[Path, ...], **_window: Any
) -> None:
    """Explain a finding of a report, or a name.

    With a number, WHAT is that finding of the REPORT: what it saves, what it rests on, what to
    change. Without a REPORT, the newest run in this folder is taken, as analyze does; several are
    the ranks of one run.

    Else WHAT is a cause, a bound, a kind of finding, a table or a column. Without WHAT, all of them
    are listed.

    \b
    Example:
        nsysflow explain 1 report.sqlite
        nsysflow explain 1 report.sqlite --steps 2:
        nsysflow explain sync
        nsysflow explain scalar-readback
        nsysflow explain induced_idle_ns
    """
    if what is None:
        _list_names()
    elif what.isdecimal():
        _explain_finding(reports, int(what), options_of_settings(ctx))
    elif reports:
        msg = f"{what} needs no REPORT: nsysflow explain {what}"
        raise click.UsageError(msg)
    else:
        _explain_name(what)


def _list_names() -> None:
    from nsysflow.report.explain.pages import contents

    _printout([contents()]).show()


def _explain_name(typed: str) -> None:
    """Print the pages on a name.

    Raises:
        UnknownName: no page is on it.
    """
    from nsysflow.report.explain.finding import pages_asked_for
    from nsysflow.report.explain.pages import known_as

    if known_as(typed) is None and Path(typed).exists():
        seen = f"nothing is called {typed!r}"
        advice = "Before a report, name the number of its finding"
        raise UnknownName(seen, advice, f"nsysflow explain 1 {quote(typed)}")
    _printout(pages_asked_for(typed)).show()


def _explain_finding(reports: tuple[Path, ...], number: int, look: AnalyzeOptions) -> None:
    """Print one finding of a run.

    Raises:
        UnknownName: it has no finding of that number.
    """
    from nsysflow.cli.answers import ReportAnswers, finding_name
    from nsysflow.runs.sources import newest_run

    if not reports:
        reports = (newest_run(Path()),)
        click.echo(f"analysing {reports[0].absolute().name}, the newest run here", err=True)
    use_one_core_for(reports)  # before anything imports polars

    def explained() -> "Printout":
        from nsysflow.base.screen import line_width
        from nsysflow.report.explain.finding import numbered_finding

        # with kernels, their grids are read too: some rules need them
        results = analyze_with_options(reports, look, tables=("kernels",), folder=None)
        return _printout([numbered_finding(results, number, line_width())])

    ReportAnswers(reports, look).show(finding_name(number), explained)


def _printout(explained: "Iterable[Explained]") -> "Printout":
    from rich.text import Text

    from nsysflow.base.screen import Printout, line_width
    from nsysflow.report.explain.pages import set_explained

    lines: list[Text] = []
    for page in explained:
        lines += (
            [Text(), *set_explained(page, line_width())]
            if lines
            else set_explained(page, line_width())
        )
    return Printout(lines=lines)
