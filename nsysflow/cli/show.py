"""`nsysflow show`: a run in the browser."""

import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import click

from nsysflow.cli.analyze import options_of_settings
from nsysflow.cli.analyze_options import analyze_with_options

if TYPE_CHECKING:
    from nsysflow.runs.page_file import RunPage

_PATH: Final = click.Path(path_type=Path, readable=False)  # the loader says it better: exit code 1

_SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Where none of these is set, Linux has no screen, or the user named no browser: what Python's
webbrowser finds there is a text browser, which cannot show the page."""


@click.command()
@click.argument("run", required=False, type=_PATH)
@click.option("--no-browser", is_flag=True, help="Only write the page, and print where it is.")
@click.pass_context
def show(ctx: click.Context, /, run: Path | None, *, no_browser: bool) -> None:
    """Open a report in the browser: its timeline, findings and tables.

    RUN is a report, the folder of a run, or a folder that analyze wrote. Without it, the newest run
    in this folder is taken. The page, report.html, needs no network and can be sent to others. It
    is written first where it is missing, or older than the report or this nsysflow.

    \b
    Example:
        nsysflow show report.sqlite
        nsysflow show
    """
    from nsysflow.runs.page_file import page_file_of

    shown = page_file_of(run)
    if not shown.is_current:
        _write(ctx, shown)
    click.echo(shown.page)
    if not no_browser and not _open_in_browser(shown.page):
        click.echo(_how_to_copy(shown.page), err=True)


def _write(ctx: click.Context, shown: "RunPage") -> None:
    """Analyse the reports and write all files."""
    from nsysflow.analysis.tables.index import ABOUT

    analyze_with_options(
        shown.reports,
        options_of_settings(ctx),
        tables=tuple(ABOUT),
        folder=shown.page.parent,
        html=True,
    )


def _open_in_browser(page: Path) -> bool:
    """Whether a browser was started with the page."""
    import webbrowser

    has_screen = sys.platform != "linux" or any(os.environ.get(name) for name in _SCREENS)
    return has_screen and webbrowser.open(page.absolute().as_uri())


def _how_to_copy(page: Path) -> str:
    """How to see the page on another machine."""
    import platform
    from getpass import getuser

    place = f"{getuser()}@{platform.node()}:{quote(str(page.absolute()))}"
    return f"no browser can be opened here; on your own machine, type: scp {place} ."
