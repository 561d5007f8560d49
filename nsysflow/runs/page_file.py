"""Where the page of a run is, and whether it is still right."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsysflow.base.errors import NotAReport
from nsysflow.base.names import FOLDER_ENDING, HTML_FILE
from nsysflow.report.html.document import GENERATOR
from nsysflow.runs.files import output_folder
from nsysflow.runs.manifest import is_run
from nsysflow.runs.sources import newest_run, sources_of

_HEAD_BYTES: Final = 1_000
"""The first bytes of a page name the program that wrote it."""


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """The page of a run.

    Attributes:
        page: its file, which may not be there yet.
        reports: what to analyse for it; none where its reports are not known or not there.
    """

    page: Path
    reports: tuple[Path, ...]

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to write: this version wrote the page, after its reports."""
        if not self.reports:
            return True
        return (
            self.page.is_file()
            and _written_by_us(self.page)
            and self.page.stat().st_mtime_ns >= _recorded_ns(self.reports)
        )


def page_file_of(run: Path | None) -> RunPage:
    """The page of a report, of a run's folder, or in a folder that `analyze` wrote.

    Args:
        run: which one; None takes the newest run in the current folder.

    Raises:
        NotAReport: there is no run here; or the folder holds no page, and its report is gone.
        OutputError: the page's folder cannot be written, or nsysflow did not make it.
    """
    run = newest_run(Path()) if run is None else run
    if run.is_file() or is_run(run) or not (run.is_dir() and _is_of_analyze(run)):
        return RunPage(page=output_folder([run], None, force=False) / HTML_FILE, reports=(run,))
    named = run if run.name not in ("", "..") else run.resolve()
    report = named.with_name(named.name.removesuffix(FOLDER_ENDING))
    there = report != named and report.exists()
    if not there and not (run / HTML_FILE).is_file():
        raise NotAReport(
            f"{run} holds no {HTML_FILE}, and the report it was made from is not beside it",
            "Name the report",
            "nsysflow show REPORT",
        )
    return RunPage(page=run / HTML_FILE, reports=(report,) if there else ())


def _is_of_analyze(folder: Path) -> bool:
    return folder.resolve().name.endswith(FOLDER_ENDING) or (folder / HTML_FILE).is_file()


def _written_by_us(page: Path) -> bool:
    with page.open("rb") as file:
        return GENERATOR.encode() in file.read(_HEAD_BYTES)


def _recorded_ns(reports: Sequence[Path]) -> int:
    return max(source.path.stat().st_mtime_ns for source in sources_of(reports))
