"""Files that `analyze` writes for other programs and for papers: SARIF, Perfetto, figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from nsysflow.cli.figures import check_folder, write_of_run
from nsysflow.cli.options import Decorated, added, option

if TYPE_CHECKING:
    from nsysflow.report.results import Results


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
    return added(_OPTIONS, command)


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
        return any(each is not None for each in (self.sarif, self.perfetto, self.figures))

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
    from nsysflow.cli.working_tree import file_in_repository
    from nsysflow.report.sarif import sarif_json
    from nsysflow.runs.files import write_text

    write_text(sarif_json(results, file_in_repository), target, reports)
    click.echo(f"wrote {target}: {len(results.found.valued)} findings", err=True)


def _write_perfetto(results: "Results", target: Path, reports: Sequence[Path]) -> None:
    from nsysflow.runs.files import write_perfetto

    slices = write_perfetto(results, target, reports)
    click.echo(f"wrote {target}: {slices} slices; open it in ui.perfetto.dev", err=True)
