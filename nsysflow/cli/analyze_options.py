"""How reports are looked at, as typed or as a settings file says; and the analysis itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsysflow.base.errors import SelectionError
from nsysflow.base.progress import progress
from nsysflow.cli.options import split_domains

if TYPE_CHECKING:
    from nsysflow.analysis.options import Options
    from nsysflow.report.results import Results
    from nsysflow.report.tables import GapsFormat


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions:
    """How a report is looked at.

    Attributes:
        options: what the analysis is narrowed to.
        top: rows of each list; None for each list's own number.
        at_least_ns: shorter gaps are left out of lists and files.
        gaps_format: the format of the file with all gaps.
    """

    options: "Options"
    top: int | None
    at_least_ns: int
    gaps_format: "GapsFormat"


def analyze_options_of(
    *,
    top: int | None,
    at_least_ns: int,
    gaps_format: "GapsFormat",
    classes: Path | None,
    domains: tuple[str, ...],
    **window: Any,
) -> AnalyzeOptions:
    """What was typed, as a `Look`.

    Raises:
        click.UsageError: the window ends before it starts.
        SettingsError: the file of kernel classes is wrong.
    """
    from nsysflow.analysis.options import Options
    from nsysflow.analysis.tables.kernel_classes import read_kernel_classes

    added, removed = split_domains(domains)
    rules = () if classes is None else read_kernel_classes(classes)
    try:
        options = Options(
            domains_added=added, domains_removed=removed, kernel_classes=rules, **window
        )
    except SelectionError as error:
        raise click.UsageError(str(error)) from error
    return AnalyzeOptions(
        options=options, top=top, at_least_ns=at_least_ns, gaps_format=gaps_format
    )


def analyze_with_options(
    reports: Sequence[Path],
    look: AnalyzeOptions,
    *,
    tables: Sequence[str],
    folder: Path | None,
    html: bool = False,
    **how: Any,
) -> "Results":
    """Analyse the reports of a run, and write the files to `folder` if one is named, with `html`
    also report.html. `how` is who does it, as for `analyze_reports`."""
    from nsysflow.runs.analyze import analyze_reports

    with progress("analysing") as work:
        if folder is not None:
            work.expect(1)
        results = analyze_reports(reports, look.options, tables=tables, progress=work, **how)
        if folder is not None:
            from nsysflow.runs.files import write_folder  # a page does not need it

            work.stage(f"writing {folder}")
            write_folder(
                results,
                folder,
                top=look.top,
                at_least_ns=look.at_least_ns,
                gaps_format=look.gaps_format,
                html=html,
            )
            work.done()
    return results
