"""Files that `analyze` writes for other programs and for papers: SARIF, Perfetto, figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from nsysflow.base.errors import not_installed
from nsysflow.cli.options import Decorated, add_options, option

if TYPE_CHECKING:
    from nsysflow.compare.comparison import Comparison
    from nsysflow.report.pictures import DrawnFigures
    from nsysflow.report.results import Results


def check_folder(folder: Path, subject: Literal["run", "comparison"]) -> None:
    """Refuse, before any work is done, a folder that cannot take the figures.

    Args:
        folder: where they go.
        subject: what they show.

    Raises:
        NsysflowError: it cannot, or matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise not_installed("matplotlib", "figures")
    from nsysflow.report.figures.drawing import OF_COMPARISON, OF_RUN
    from nsysflow.runs.files import check_figures

    check_figures(folder, (OF_RUN if subject == "run" else OF_COMPARISON).files)


def write_of_run(results: "Results", folder: Path) -> None:
    """Draw and write the figures of a run."""
    from nsysflow.report.figures.drawing import OF_RUN

    _write(OF_RUN.draw(results), folder)


def write_of_comparison(comparison: "Comparison", folder: Path) -> None:
    """Draw and write the figures of a comparison."""
    from nsysflow.report.figures.drawing import OF_COMPARISON

    _write(OF_COMPARISON.draw(comparison), folder)


def _write(drawn: "DrawnFigures", folder: Path) -> None:
    from nsysflow.runs.files import write_figures

    if drawn.files:
        write_figures(drawn, folder)
        click.echo(f"wrote {folder}: {', '.join(drawn.names)}, as SVG and PNG", err=True)
    for name, why in drawn.empty.items():
        click.echo(f"not drawn: {name} ({why})", err=True)


_PATH: Final = click.Path(path_type=Path)

_OPTIONS: Final = (
    option(
        "--sarif",
        section="What to write",
        type=_PATH,
        metavar="FILE",
        help="Also write the findings to FILE as SARIF, for editors and code scanning.",
    ),
    option(
        "--perfetto",
        section="What to write",
        type=_PATH,
        metavar="FILE",
        help="Also write the whole trace to FILE, for ui.perfetto.dev: gaps by cause, and arrows"
        " from launches to their kernels.",
    ),
    option(
        "--figures",
        section="What to write",
        type=_PATH,
        metavar="DIR",
        help="Also draw the figures for papers and reviews, as SVG and PNG in DIR.",
    ),
)


def export_options(command: Decorated) -> Decorated:
    """Add the options that name these files."""
    return add_options(_OPTIONS, command)


@dataclass(frozen=True, kw_only=True)
class Exports:
    """The files that are asked for.

    Attributes:
        sarif: for the findings.
        perfetto: for the trace.
        figures: the folder for the figures.
    """

    sarif: Path | None
    perfetto: Path | None
    figures: Path | None

    @property
    def tables(self) -> tuple[str, ...]:
        """What is read and computed for them: findings, and with them the grids of kernels."""
        return ("findings",) if self.sarif or self.perfetto else ()

    @property
    def asked(self) -> bool:
        """Whether any file is asked for."""
        return any(file is not None for file in (self.sarif, self.perfetto, self.figures))

    def check(self) -> None:
        """Refuse, before any work is done, what cannot be written.

        Raises:
            NsysflowError: the package `perfetto` is not installed.
            OutputError: matplotlib is not, or the folder cannot take the figures.
        """
        if self.perfetto is not None:
            from nsysflow.report.perfetto.packets import protos

            protos()
        if self.figures is not None:
            check_folder(self.figures, "run")

    def write(self, results: "Results", reports: Sequence[Path]) -> None:
        """Write them."""
        if self.sarif is not None:
            _write_sarif(results, self.sarif, reports)
        if self.perfetto is not None:
            _write_perfetto(results, self.perfetto, reports)
        if self.figures is not None:
            write_of_run(results, self.figures)


def _write_sarif(results: "Results", target: Path, reports: Sequence[Path]) -> None:
    from nsysflow.cli.check import file_in_repository
    from nsysflow.report.sarif import sarif_json
    from nsysflow.runs.files import write_text

    write_text(sarif_json(results, file_in_repository), target, reports)
    click.echo(f"wrote {target}: {len(results.found.valued)} findings", err=True)


def _write_perfetto(results: "Results", target: Path, reports: Sequence[Path]) -> None:
    from nsysflow.runs.files import write_perfetto

    slices = write_perfetto(results, target, reports)
    click.echo(f"wrote {target}: {slices} slices; open it in ui.perfetto.dev", err=True)
