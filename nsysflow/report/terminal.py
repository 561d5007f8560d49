"""The terminal page: one screen that says what costs most and why."""

import re
from collections import Counter
from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from nsysflow.report import sections
from nsysflow.report.communication import communication, ranks
from nsysflow.report.details import steps_line
from nsysflow.report.fullness import fullness
from nsysflow.report.layout import Block, printable, set_in_columns
from nsysflow.report.odd_steps import odd_step_lines
from nsysflow.report.results import Results
from nsysflow.report.utilization import mfu_lines, rates
from nsysflow.report.verdict import verdicts

_NO_BREAK = "\N{NO-BREAK SPACE}"
_BAR_STYLES = {"█+": "green", "▓+": "magenta", "▒+": "cyan", "░+": "red"}


def page(results: Results, *, width: int, top: int | None, at_least_ns: int = 0) -> Iterator[Text]:
    """The page, line by line.

    Args:
        results: what to show.
        width: columns to fill; names give way where they are too few.
        top: rows of each list; None fits all lists on one screen.
        at_least_ns: the shortest gap to list.
    """
    yield from _sentence(" · ".join(filter(None, _titles(results))), width)
    yield Text()
    for verdict in verdicts(results):
        yield from _sentence(verdict.sentence, width, style="bold")
        yield from _sentence(f"next: {verdict.advice}", width)
    for line in (*odd_step_lines(results), *mfu_lines(results)):
        yield from _sentence(line, width)
    # the names and the smaller parts of several GPUs take room
    bar_width = 30 if results.table("accounting").height == 1 else 15
    for block in (
        sections.devices(results, bar_width=bar_width),
        sections.dearest(results, top or 7),
        sections.phases(results, top or 10),
        sections.stalls(results, top or 4),
        sections.longest_gaps(results, top or 3, at_least_ns=at_least_ns),
        rates(results, top or 6),
        communication(results, top or 4),
        ranks(results, top or 8),
        fullness(results, top or 6),
        sections.integrity(results),
    ):
        yield from set_block(block, width)
    for note in results.notes:
        yield from _sentence(f"note: {printable(note.text)}", width)


def set_block(block: Block, width: int | None) -> Iterator[Text]:
    """A block as lines; nothing where it has no rows."""
    if not block.rows:
        return
    yield Text()
    title = Text(block.title, style="bold")
    inner = None if width is None else width - 2
    if inner is None or len(block.title) + len(block.caption) <= inner:
        yield title.append(f"  {block.caption}", style="not bold dim") if block.caption else title
    else:
        yield title
        yield from (Text(f"  {line}", style="dim") for line in _wrapped(block.caption, inner))
    head, *rows = set_in_columns(block.columns, block.rows, inner)
    yield Text(f"  {head}", style="dim")
    for row in rows:
        yield _coloured(f"  {row}")
    for more in block.more:
        for line in _wrapped(more, inner) if inner else [more]:
            yield Text(f"  {line}", style="dim")


def _titles(results: Results) -> list[str]:
    names = ", ".join(results.reports)
    gpus = Counter(results.table("accounting")["name"].drop_nulls())
    hardware = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in gpus.items())
    only = f"only {results.selection}" if results.selection else ""
    return [printable(names), hardware, only, printable(steps_line(results))]


def _sentence(text: str, width: int, style: str = "") -> Iterator[Text]:
    for index, line in enumerate(_wrapped(text, width - 2)):
        yield Text(f"  {line}" if index else line, style=style)


def _wrapped(text: str, width: int) -> list[str]:
    # a number stays on one line with its unit
    joined = re.sub(r"(?<=\d) (?=(?:%|[num]?s\b))", _NO_BREAK, text)
    lines = wrap(joined, width, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _coloured(line: str) -> Text:
    text = Text(line)
    for letters, style in _BAR_STYLES.items():
        text.highlight_regex(letters, style)
    return text
