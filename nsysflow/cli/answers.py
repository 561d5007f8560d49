"""What `analyze` prints, and answers that are kept.

It prints the page, or one other thing instead. An answer that was made before is taken from the
cache; a new one is kept where it took long.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from nsysflow.analysis.tables.index import ABOUT
from nsysflow.catalog.options import OneOf
from nsysflow.cli.options import Decorated, Form, Style, add_options, option, style_of

if TYPE_CHECKING:
    from rich.text import Text

    from nsysflow.base.screen import Printout
    from nsysflow.cli.analyze_options import AnalyzeOptions
    from nsysflow.report.results import Results
    from nsysflow.runs.cache import Answer


WORTH_S: Final = 0.2
"""An answer that takes less is not kept: to print a kept one takes nearly as long."""

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
        from nsysflow.base.screen import Printout

        Printout(lines=kept.texts, remarks=kept.remarks).show()

    def keep(self, make: "Callable[[], Mapping[str, Answer]]") -> None:
        """Keep answers by name, if the work so far took long. They are made only then."""
        if self._store is None or self._key is None:
            return
        worth = time.monotonic() - self._begin_s >= WORTH_S
        if worth and self._key == self._made_key():  # did a report change meanwhile?
            self._store.keep(self._key, self._reports, make())

    def _show_new(self, name: str, printout: "Printout") -> None:
        from nsysflow.base.screen import Printout
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
    from nsysflow.cli.output import page_printout, table_printout
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


_PATH: Final = click.Path(path_type=Path)
_PRINT: Final = "What to print"


def _drawable(_ctx: click.Context, _param: click.Parameter, file: Path | None) -> Path | None:
    """A file whose ending says how to draw a flame graph."""
    if file is None or file.suffix in (".svg", ".json"):
        return file
    msg = (
        f"{file} ends neither in .svg nor in .json: type --flamegraph idle.svg for a browser, or"
        " --flamegraph idle.json for speedscope.app"
    )
    raise click.BadParameter(msg)


_OPTIONS: Final = (
    option(
        "--full", section=_PRINT, is_flag=True, help="Print all findings and lists, not one screen."
    ),
    option(
        "--table",
        section=_PRINT,
        type=OneOf("table", ABOUT),
        metavar="NAME",
        help="Print one table instead of the page; the tables are listed below.",
    ),
    option(
        "--columns",
        section=_PRINT,
        metavar="A,B,C",
        help="Print these columns of the table, named as in CSV files.",
    ),
    option("--wide", section=_PRINT, is_flag=True, help="Print all columns, and names in full."),
    option(
        "--top",
        section=_PRINT,
        type=click.IntRange(min=1),
        metavar="N",
        show_default="as many as a screen holds",
        help="Print the first N rows of the table, or of each list.",
    ),
    option(
        "--format",
        "form",
        section=_PRINT,
        type=click.Choice(["table", "csv", "md", "parquet"]),
        show_default="table",
        help="Print the table in this format.",
    ),
    option("--json", "as_json", section=_PRINT, is_flag=True, help="Print report.json."),
    option(
        "--gaps-csv",
        section=_PRINT,
        type=_PATH,
        metavar="FILE",
        help="Write every gap to FILE, and nothing else; - prints them.",
    ),
    option(
        "--flamegraph",
        section=_PRINT,
        type=_PATH,
        callback=_drawable,
        metavar="FILE",
        help="Draw what the host ran while the GPU waited, and nothing else: FILE.svg for a"
        " browser, FILE.json for speedscope.app.",
    ),
)


def print_options(command: Decorated) -> Decorated:
    """Add the options that say what is printed."""
    return add_options(_OPTIONS, command)


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What was asked for; without any, the page of one screen.

    Attributes:
        full: the page with all findings and lists.
        table: the name of a table.
        columns: of it, as typed.
        wide: all its columns.
        form: the format in which it is printed.
        as_json: report.json.
        gaps_csv: the file for every gap, or `-`.
        flamegraph: the file for the idle flame graph.
    """

    full: bool
    table: str | None
    columns: str | None
    wide: bool
    form: Form | None
    as_json: bool
    gaps_csv: Path | None
    flamegraph: Path | None

    @property
    def alone(self) -> bool:
        """Whether something is given instead of the page."""
        return any(self._instead)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables to compute at once: all, the one that is printed, or those of the page."""
        if self.as_json:
            return tuple(ABOUT)
        if self._table is not None:
            return (self._table,)
        from nsysflow.runs.analyze import PAGE

        return () if self.alone else PAGE

    def check(self) -> None:
        """Refuse options that cannot be combined.

        Raises:
            click.UsageError: they were, or the table has no such column.
        """
        if sum([*self._instead, self.full]) > 1:
            msg = "--full, --table, --json, --gaps-csv and --flamegraph cannot be combined"
            raise click.UsageError(msg)
        if self._table is not None:
            self._style(self._table, top=None)

    def answer_name(self, look: "AnalyzeOptions") -> str | None:
        """The name of the answer that it is; None for what is no text for people."""
        if self._table is not None:
            style = self._style(self._table, top=look.top)
            return table_name(self._table, style) if style.for_people else None
        if self.alone:
            return None
        return f"{PAGE} in full" if self.full else PAGE

    def answer(self, results: "Results", look: "AnalyzeOptions") -> "Printout":
        """The page or the table."""
        if self._table is not None:
            from nsysflow.cli.output import table_printout

            style = self._style(self._table, top=look.top)
            return table_printout(results, self._table, style, at_least_ns=look.at_least_ns)
        from nsysflow.cli.output import page_printout

        return page_printout(results, full=self.full, top=look.top, at_least_ns=look.at_least_ns)

    def show(self, results: "Results", look: "AnalyzeOptions", reports: Sequence[Path]) -> None:
        """Print it, or write the file that is given instead."""
        if self.gaps_csv is not None:
            _give_gaps(results, self.gaps_csv, reports, look.at_least_ns)
        elif self.flamegraph is not None:
            _draw(results, self.flamegraph, reports)
        elif self.as_json:
            from nsysflow.cli.output import show_json

            show_json(results)
        elif self.answer_name(look) is None and self._table is not None:
            from nsysflow.cli.output import print_for_programs

            style = self._style(self._table, top=look.top)
            print_for_programs(results, self._table, style, at_least_ns=look.at_least_ns)
        else:
            self.answer(results, look).show()

    @property
    def _instead(self) -> list[bool]:
        files = [choice is not None for choice in (self._table, self.gaps_csv, self.flamegraph)]
        return [*files, self.as_json]

    @property
    def _table(self) -> str | None:
        """The table that is printed; options of tables alone mean the gaps by place."""
        if self.table is None and (self.form is not None or self.columns is not None or self.wide):
            return "gap_summary"
        return self.table

    def _style(self, table: str, *, top: int | None) -> Style:
        return style_of(table, columns=self.columns, wide=self.wide, form=self.form, top=top)


def _give_gaps(results: "Results", target: Path, reports: Sequence[Path], at_least_ns: int) -> None:
    """Write every gap to a file, or print them."""
    from nsysflow.cli.output import show_gaps
    from nsysflow.runs.files import write_gaps

    if target == Path("-"):
        show_gaps(results, at_least_ns=at_least_ns)
        return
    rows = write_gaps(results, target, reports, at_least_ns=at_least_ns)
    click.echo(f"wrote {target}: {rows} gaps", err=True)


def _draw(results: "Results", target: Path, reports: Sequence[Path]) -> None:
    """Write the idle flame graph."""
    from nsysflow.report.flamegraph import draw
    from nsysflow.runs.files import write_text

    write_text(draw(results, target), target, reports)
    opened = "speedscope.app" if target.suffix == ".json" else "a browser"
    click.echo(f"wrote {target}: open it in {opened}", err=True)
