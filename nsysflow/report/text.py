"""The page as text: lines for a terminal, and Markdown for summary.md, to paste into a review."""

import re
from collections.abc import Iterator
from itertools import chain, repeat
from operator import add
from typing import TYPE_CHECKING, Final

from rich.text import Text

from nsysflow.base.names import printable
from nsysflow.base.units import wrapped
from nsysflow.report.layout import Block, set_in_columns, shorten, without_bars

if TYPE_CHECKING:
    from nsysflow.report.findings import Suggestion, Suggestions
    from nsysflow.report.page import Length, Page
    from nsysflow.report.ranks import RankSummary
    from nsysflow.report.results import Results

_GAP = "  "
_BAR_STYLES = {"█+": "green", "▓+": "magenta", "▒+": "cyan", "░+": "red"}


def page_lines(
    results: "Results",
    *,
    width: int,
    length: "Length" = "page",
    top: int | None,
    at_least_ns: int = 0,
) -> Iterator[Text]:
    """The page of a run, line by line.

    Args:
        results: the run.
        width: columns to fill; names are shortened where they are too few.
        length: one screen, or all of it.
        top: rows of each block; None for each block's own number.
        at_least_ns: the shortest gap to show.
    """
    from nsysflow.report.page import compose  # blocks alone need no analysis

    return set_page(compose(results, length, top=top, at_least_ns=at_least_ns), width)


def set_page(page_lines: "Page", width: int) -> Iterator[Text]:
    """A page as lines."""
    only = f"only {page_lines.selection}" if page_lines.selection else ""
    titles = [page_lines.reports, page_lines.gpus, only, page_lines.steps]
    yield from sentence_lines(printable(" · ".join(filter(None, titles))), width)
    if page_lines.ledger:
        yield from sentence_lines(printable(page_lines.ledger), width, style="dim")
    yield Text()
    yield from told_lines(page_lines.told, width)
    for index, headline in enumerate(page_lines.headlines):
        yield from sentence_lines(headline.sentence, width, style="bold")
        for remark in page_lines.remarks if index == 0 else ():
            yield from sentence_lines(remark, width)
        if headline.advice:
            yield from sentence_lines(f"next: {headline.advice}", width)
    for sentence in (*page_lines.sentences, *map(printable, page_lines.loops)):
        yield from sentence_lines(sentence, width)
    yield from suggestion_lines(page_lines.suggestions, width)
    for block in page_lines.blocks:
        yield from set_block(block, width)
    for note in page_lines.notes:
        yield from sentence_lines(f"note: {printable(note)}", width)


def told_lines(told: "RankSummary", width: int) -> Iterator[Text]:
    """What the ranks tell; nothing where that is nothing."""
    if told.first:
        yield from sentence_lines(told.first, width, style="bold")
    for sentence in told.more:
        yield from (Text("  ") + line for line in sentence_lines(sentence, width - 2))


def suggestion_lines(found: "Suggestions", width: int) -> Iterator[Text]:
    """The findings in two lines each; none where there are none."""
    if not found.rows:
        return
    yield Text()
    yield from _title("Findings", found.caption, "", width - 2)
    short = [len(each.saving) for each in found.rows if len(each.saving) <= _LONGEST_SAVING]
    for each in found.rows:
        yield from _suggestion_lines(each, max(short, default=0), width)
    yield from (Text(f"  {line}", style="dim") for line in wrapped(found.more, width - 2))


_LONGEST_SAVING = 30
"""A title stands below a saving that takes more cells."""

_CHANGE = "     "


def _suggestion_lines(found: "Suggestion", savings: int, width: int) -> Iterator[Text]:
    """The saving, beside or above the title, and below them the change."""
    head = f"  {found.number}  {found.saving:<{savings}}  "
    if len(found.saving) > _LONGEST_SAVING or width < 2 * len(head):
        marks = chain([f"  {found.number}  "], repeat(_CHANGE))
        yield from map(Text, map(add, marks, wrapped(found.saving, width - len(_CHANGE))))
        head = _CHANGE
    title = f"{found.title}, {found.steps}" if found.steps else found.title
    titles = wrapped(printable(title), width - len(head))
    yield Text(head).append(titles[0], style="bold")
    yield from (Text(" " * len(head)).append(line, style="bold") for line in titles[1:])
    changes = wrapped(printable(found.change), width - len(_CHANGE))
    yield from (Text(f"{_CHANGE}{line}", style="dim") for line in changes)


def set_block(block: Block, width: int | None) -> Iterator[Text]:
    """A block as lines; none where it has no rows."""
    if not block.rows:
        return
    yield Text()
    inner = None if width is None else width - 2
    yield from _title(block.title, block.caption, block.rest, inner)
    head, *rows = set_in_columns(block.columns, block.rows, inner)
    yield from (Text(f"  {line}", style="dim") for line in head.split("\n"))
    bars = any(column.letter for column in block.columns)
    for line in "\n".join(rows).split("\n"):
        yield _coloured(f"  {line}") if bars else Text(f"  {line}")
    for more in block.more:
        for line in wrapped(more, inner) if inner else [more]:
            yield Text(f"  {line}", style="dim")


def _title(title: str, caption: str, rest: str, inner: int | None) -> Iterator[Text]:
    """A title, its caption, and at the right edge how many rows are left out: on one line, or on
    lines below where they have no room."""
    beside, *below = _around_title(caption, rest, inner, inner and inner - len(title))
    line = Text(title, style="bold")
    yield line.append(f"  {beside}", style="not bold dim") if beside else line
    yield from (Text(f"  {each}", style="dim") for each in below)


def _around_title(caption: str, rest: str, inner: int | None, room: int | None) -> list[str]:
    """What stands on the line of a title, which leaves that much room, and on lines below it."""
    if inner is None or room is None:
        return [_GAP.join(filter(None, [caption, rest]))]
    first, *lines = [caption] if len(caption) <= room else ["", *wrapped(caption, inner)]
    if not rest:
        return [first, *lines]
    last, width = (lines[-1], inner) if lines else (first, room)
    if last and len(last) + len(_GAP) + len(rest) > width:
        return [first, *lines, f"{rest:>{inner}}"]
    both = f"{last}{rest:>{width - len(last)}}"
    return [first, *lines[:-1], both] if lines else [both]


def sentence_lines(text: str, width: int, style: str = "") -> Iterator[Text]:
    """A sentence in lines, those after the first indented."""
    for index, line in enumerate(wrapped(text, width - 2)):
        yield Text(f"  {line}" if index else line, style=style)


def _coloured(line: str) -> Text:
    text = Text(line)
    for letters, style in _BAR_STYLES.items():
        text.highlight_regex(letters, style)
    return text


_INDENT: Final = "\N{NO-BREAK SPACE}" * 2
"""For each leading space of a cell, which Markdown would drop."""

_MARKUP: Final = re.compile(r"[\\|<>*`\[\]]|(?<!\w)_|_(?!\w)")
"""What Markdown reads as markup; it ignores a `_` inside a word."""

_LONGEST_NAME: Final = 2_000
"""C++ templates stay whole; a name of 100 kB on every line would make the page unreadable."""


def summary(results: "Results", *, top: int | None = None, at_least_ns: int = 0) -> str:
    """The page of a run.

    Args:
        results: the run.
        top: rows of each block; None for each block's own number.
        at_least_ns: the shortest gap to show.
    """
    from nsysflow.report.page import compose

    return markdown_page(compose(results, "full", top=top, at_least_ns=at_least_ns))


def markdown_page(page: "Page") -> str:
    """A page as Markdown: what matters in a few lines, the rest folded."""
    lines = [f"# {escaped(page.reports)}", "", *_headlines(page)]
    body = [*_suggestion_table(page.suggestions)]
    body += [f"{escaped(sentence)}.\n" for sentence in page.sentences]
    for block in page.blocks:
        body += block_lines(block)
    body += [f"- {escaped(note)}" for note in page.notes]
    if body:
        lines += ["<details>", f"<summary>{_what_is_folded(page)}</summary>", "", *body]
        lines += ["", "</details>"]
    return "\n".join(lines).rstrip() + "\n"


def _headlines(page: "Page") -> Iterator[str]:
    """What the ranks tell, the verdict, what ran, how long a step takes, and what to change
    first."""
    if page.told.first:
        yield from (f"**{escaped(page.told.first)}**", "")
    for sentence in page.told.more:
        yield from (f"{escaped(sentence)}.", "")
    for index, headline in enumerate(page.headlines):
        yield from (f"**{escaped(headline.sentence)}**", "")
        for remark in page.remarks if index == 0 else ():
            yield from (f"{escaped(remark)}.", "")
        if headline.advice:
            yield from (f"Next: {escaped(headline.advice)}", "")
    only = f"only {page.selection}" if page.selection else ""
    about = " · ".join(filter(None, [page.gpus, *page.recorded, only]))
    for line in filter(None, [about, page.steps, page.ledger, *page.loops]):
        yield from (f"{escaped(line)}  ", "")
    for first in page.suggestions.rows[:1]:
        yield from (f"First: {escaped(f'{first.saving}: {first.title}')}  ", "")


def _what_is_folded(page: "Page") -> str:
    titles = ["Findings"] if page.suggestions.rows else []
    return ", ".join([*titles, *(block.title for block in page.blocks)]) or "Notes"


def _suggestion_table(found: "Suggestions") -> Iterator[str]:
    """The findings as a table; nothing without."""
    if not found.rows:
        return
    yield from ("## Findings", "", f"Savings are {escaped(found.caption)}.", "")
    yield _row(["", "saving", "what", "change", "steps"])
    yield _row(["---:", "---", "---", "---", "---"])
    for each in found.rows:
        saving = each.saving.removeprefix("save ")
        yield _row([str(each.number), *map(escaped, (saving, each.title, each.change, each.steps))])
    yield from ("", escaped(found.more), "")


def block_lines(block: Block, *, heading: str = "##") -> Iterator[str]:
    """A block as a heading and a table; nothing where it has no rows."""
    if not block.rows:
        return
    yield from (f"{heading} {block.title}", "")
    if block.caption:
        yield from (f"{escaped(block.caption)}.", "")
    yield from table_lines(without_bars(block))
    yield ""
    for line in (*without_bars(block).more, block.rest):
        yield from (escaped(line), "") if line else ()


def table_lines(block: Block) -> Iterator[str]:
    """A block's columns and rows as a Markdown table."""
    yield _row([escaped(column.head) for column in block.columns])
    yield _row(["---:" if column.right else "---" for column in block.columns])
    for cells in block.rows:
        yield _row([_cell(cell) for cell in cells])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    stripped = text.lstrip(" ")
    return _INDENT * (len(text) - len(stripped)) + escaped(stripped)


def escaped(text: str) -> str:
    """The text without markup: names contain `<`, `|` and `*`."""
    return _MARKUP.sub(r"\\\g<0>", printable(shorten(text, _LONGEST_NAME)))
