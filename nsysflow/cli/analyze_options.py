"""How reports are looked at, as typed or as a settings file says; and the analysis itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsysflow.analysis.options import Options, StepPart
from nsysflow.base.errors import SelectionError
from nsysflow.base.peaks import Unit
from nsysflow.base.progress import progress
from nsysflow.cli.options import Workers, split_domains

if TYPE_CHECKING:
    from nsysflow.report.results import Results
    from nsysflow.report.tables import GapsFormat


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions:
    """What of a report is looked at and how it is judged, as typed.

    Attributes:
        top: rows of each list; None for each list's own number.
        at_least_ns: shorter gaps are left out of lists and files.
        gaps_format: the format of the file with all gaps.
        classes: a file with classes of kernels.
        domains: NVTX domains to add, or with `-` in front to leave out.

    The others are those of `Options`.
    """

    top: int | None
    at_least_ns: int
    gaps_format: "GapsFormat"
    classes: Path | None
    domains: tuple[str, ...]
    framework_gap_ns: int
    device: int | None
    range: str | None
    step: str | None
    steps: tuple[StepPart, ...]
    skip: int | None
    whole: bool
    from_ns: int | None
    to_ns: int | None
    flops_per_step: float | None
    flops_dtype: Unit | None
    own: tuple[str, ...]

    def options(self) -> Options:
        """What the analysis is narrowed to.

        Raises:
            click.UsageError: the window ends before it starts.
            SettingsError: the file of kernel classes is wrong.
        """
        added, removed = split_domains(self.domains)
        try:
            return Options(
                framework_gap_ns=self.framework_gap_ns,
                domains_added=added,
                domains_removed=removed,
                device=self.device,
                range=self.range,
                from_ns=self.from_ns,
                to_ns=self.to_ns,
                step=self.step,
                skip=self.skip,
                steps=self.steps,
                whole=self.whole,
                flops_per_step=self.flops_per_step,
                flops_dtype=self.flops_dtype,
                own=self.own,
                kernel_classes=self._kernel_classes(),
            )
        except SelectionError as error:
            raise click.UsageError(str(error)) from error

    def _kernel_classes(self) -> tuple[tuple[str, str], ...]:
        """Those of the file, if one is named."""
        if self.classes is None:
            return ()
        from nsysflow.analysis.events.kernel_classes import read_kernel_classes  # imports polars

        return read_kernel_classes(self.classes)


def analyze_with_options(
    reports: Sequence[Path],
    typed: AnalyzeOptions,
    *,
    tables: Sequence[str],
    folder: Path | None,
    html: bool = False,
    workers: Workers | None = None,
) -> "Results":
    """Analyse the reports of a run, and write the files to a folder if one is named.

    Args:
        reports: of the run.
        typed: how they are looked at.
        tables: what to compute now, on all cores.
        folder: where the files go; None writes none.
        html: whether report.html is one of them.
        workers: who analyses many reports; processes if None.
    """
    from nsysflow.runs.analyze import analyze_reports

    workers = workers or Workers()
    with progress("analysing") as work:
        if folder is not None:
            work.expect(1)
        results = analyze_reports(
            reports,
            typed.options(),
            tables=tables,
            choice=workers.choice(),
            strict=workers.strict,
            low_memory=workers.low_memory,
            progress=work,
        )
        if folder is not None:
            from nsysflow.runs.files import write_folder  # a page does not need it

            work.stage(f"writing {folder}")
            write_folder(
                results,
                folder,
                top=typed.top,
                at_least_ns=typed.at_least_ns,
                gaps_format=typed.gaps_format,
                html=html,
            )
            work.done()
    return results
