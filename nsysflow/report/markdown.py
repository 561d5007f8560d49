"""The page as Markdown: summary.md, to paste into a review."""

import re
from collections.abc import Iterator
from typing import Final

from nsysflow.report.layout import Block, printable, shorten, without_bars
from nsysflow.report.page import Page, compose
from nsysflow.report.results import Results

_INDENT: Final = "\N{NO-BREAK SPACE}" * 2
"""For each leading space of a cell, which Markdown would drop."""

_MARKUP: Final = re.compile(r"[\\|<>*`\[\]]|(?<!\w)_|_(?!\w)")
"""What Markdown reads as markup; it ignores a `_` inside a word."""

_LONGEST: Final = 2_000
"""C++ templates stay whole; a name of 100 kB on every line would make the page unreadable."""


def summary(results: Results, *, top: int | None = None, at_least_ns: int = 0) -> str:
    """The page of a run.

    Args:
        results: the run.
        top: rows of each block; None for each block's own number.
        at_least_ns: the shortest gap to show.
    """
    return set_page(compose(results, "summary", top=top, at_least_ns=at_least_ns))


def set_page(page: Page) -> str:
    """A page as Markdown."""
    lines = [f"# {_escaped(page.reports)}", ""]
    if page.selection:
        lines += [f"Only {_escaped(page.selection)}.", ""]
    for index, headline in enumerate(page.headlines):
        lines += [f"**{_escaped(headline.sentence)}**", ""]
        for remark in page.remarks if index == 0 else ():
            lines += [f"{_escaped(remark)}.", ""]
        lines += [f"Next: {_escaped(headline.advice)}", ""]
    for sentence in page.sentences:
        lines += [f"{_escaped(sentence)}.", ""]
    for block in page.blocks:
        lines += block_lines(block)
    lines += [f"- {_escaped(note)}" for note in page.notes]
    return "\n".join(lines).rstrip() + "\n"


def block_lines(block: Block) -> Iterator[str]:
    """A block as a heading and a table; nothing where it has no rows."""
    if not block.rows:
        return
    yield from (f"## {block.title}", "")
    if block.caption:
        yield from (f"{_escaped(block.caption)}.", "")
    yield from table_lines(without_bars(block))
    yield ""
    for line in block.more:
        yield from (_escaped(line), "")


def table_lines(block: Block) -> Iterator[str]:
    """A block's columns and rows as a Markdown table."""
    yield _row([_escaped(column.head) for column in block.columns])
    yield _row(["---:" if column.right else "---" for column in block.columns])
    for cells in block.rows:
        yield _row([_cell(cell) for cell in cells])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    stripped = text.lstrip(" ")
    return _INDENT * (len(text) - len(stripped)) + _escaped(stripped)


def _escaped(text: str) -> str:
    """The text without markup: names contain `<`, `|` and `*`."""
    return _MARKUP.sub(r"\\\g<0>", printable(shorten(text, _LONGEST)))
