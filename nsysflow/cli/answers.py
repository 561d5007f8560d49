"""Answers on reports: the kept one where it was made before, else a new one, which is kept."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text

    from nsysflow.cli.analyze_options import AnalyzeOptions
    from nsysflow.cli.output import Printout
    from nsysflow.report.results import Results
    from nsysflow.runs.cache import Answer

WORTH_S: Final = 1.0
"""An answer that takes less is not kept."""

PAGE: Final = "page"
"""The name of the page of one screen."""


def finding_name(number: int) -> str:
    """The name of the answer that explains a finding."""
    return f"explain {number}"


class ReportAnswers:
    """The kept answers about some reports, for one set of options.

    They depend on the reports, the options, the line's width, and on whether a terminal shows them.
    """

    def __init__(
        self, reports: Sequence[Path], look: "AnalyzeOptions", *, strict: bool = False
    ) -> None:
        """Identify the reports, before anything is read of them."""
        from nsysflow.runs.cache import Store

        self._reports = reports
        self._asked = (look, look.options(), strict)
        self._store = Store.here()
        self._key = self._made_key()
        self._begin_s = time.monotonic()

    def show(self, name: str, make: "Callable[[], Printout]") -> None:
        """Print the answer of that name: the kept one, or one that is made now, and is kept if that
        takes long."""
        kept = None
        if self._store is not None and self._key is not None:
            kept = self._store.answer(self._key, name)
        if kept is None:
            self._show_new(name, make())
            return
        from nsysflow.cli.output import Printout

        Printout(lines=kept.texts, remarks=kept.remarks).show()

    def keep(self, make: "Callable[[], Mapping[str, Answer]]") -> None:
        """Keep answers by name, if the work so far took long. They are made only then."""
        if self._store is None or self._key is None:
            return
        worth = time.monotonic() - self._begin_s >= WORTH_S
        if worth and self._key == self._made_key():  # did a report change meanwhile?
            self._store.keep(self._key, self._reports, make())

    def _show_new(self, name: str, printout: "Printout") -> None:
        from nsysflow.cli.output import Printout
        from nsysflow.runs.cache import Answer

        lines: list[Text] = []
        Printout(lines=_noting(printout.lines, lines), remarks=printout.remarks).show()
        self.keep(lambda: {name: Answer.of(lines, printout.remarks)})

    def _made_key(self) -> str | None:
        """The name of these answers among all; None where none are kept."""
        if self._store is None:
            return None
        from nsysflow.base.screen import console, line_width
        from nsysflow.runs.cache import answer_key
        from nsysflow.runs.costs import usual_pct
        from nsysflow.runs.sources import distinct_sources

        sources = distinct_sources(self._reports)
        shown_on = (line_width(), console().is_terminal)
        costs = [usual_pct(each.manifest) for each in sources if each.manifest is not None]
        asked = [sources, *self._asked, shown_on, Path.cwd(), costs]
        return answer_key([source.path for source in sources], asked)


def _noting(lines: "Iterable[Text]", noted: "list[Text]") -> "Iterator[Text]":
    """The lines; they are put into `noted`, as far as an answer of that length is kept."""
    from nsysflow.runs.cache import MOST_LINES

    for line in lines:
        if len(noted) <= MOST_LINES:
            noted.append(line)
        yield line


def likely_answers(results: "Results", look: "AnalyzeOptions") -> "dict[str, Answer]":
    """What is likely to be asked next of an analysis with all tables: its page, each finding in
    full, and each table but that with a row per gap."""
    from nsysflow.analysis.tables.index import ABOUT, declarations
    from nsysflow.base.screen import line_width
    from nsysflow.cli.one_table import Style, table_printout
    from nsysflow.cli.output import page_printout
    from nsysflow.report.explain.finding import explain_findings
    from nsysflow.report.explain.pages import set_explained
    from nsysflow.runs.cache import MOST_LINES, Answer

    width = line_width()
    page = page_printout(results, full=False, top=look.top, at_least_ns=look.at_least_ns)
    answers = {PAGE: Answer.of(page.lines)}
    for number, explained in explain_findings(results, width).items():
        answers[finding_name(number)] = Answer.of(set_explained(explained, width))
    style = Style(top=look.top)
    for table in declarations(ABOUT):
        if table.in_slices or len(results.table(table.name)) > MOST_LINES:
            continue
        printout = table_printout(results, table.name, style, at_least_ns=look.at_least_ns)
        answers[table_name(table.name, style)] = Answer.of(printout.lines, printout.remarks)
    return answers


def table_name(table: str, style: object) -> str:
    """The name of the answer that is a table."""
    return f"table {table} {style}"
