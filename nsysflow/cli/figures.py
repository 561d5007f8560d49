"""`--figures DIR` of `analyze` and `diff`: draw, write, and say what was not drawn."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from nsysflow.base.errors import not_installed

if TYPE_CHECKING:
    from nsysflow.compare.comparison import Comparison
    from nsysflow.report.figures.drawing import Drawn
    from nsysflow.report.results import Results


def check_folder(folder: Path, of: Literal["run", "comparison"]) -> None:
    """Refuse, before any work is done, a folder that cannot take the figures.

    Args:
        folder: where they go.
        of: what they show.

    Raises:
        NsysflowError: it cannot, or matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise not_installed("matplotlib", "figures")
    from nsysflow.report.figures.drawing import OF_COMPARISON, OF_RUN
    from nsysflow.runs.files import check_figures

    check_figures(folder, (OF_RUN if of == "run" else OF_COMPARISON).files)


def write_of_run(results: "Results", folder: Path) -> None:
    """Draw and write the figures of a run."""
    from nsysflow.report.figures.drawing import OF_RUN

    _write(OF_RUN.draw(results), folder)


def write_of_comparison(found: "Comparison", folder: Path) -> None:
    """Draw and write the figures of a comparison."""
    from nsysflow.report.figures.drawing import OF_COMPARISON

    _write(OF_COMPARISON.draw(found), folder)


def _write(drawn: "Drawn", folder: Path) -> None:
    from nsysflow.runs.files import write_figures

    if drawn.files:
        write_figures(drawn, folder)
        click.echo(f"wrote {folder}: {', '.join(drawn.names)}, as SVG and PNG", err=True)
    for name, why in drawn.empty.items():
        click.echo(f"not drawn: {name} ({why})", err=True)
