"""The page as Markdown: summary.md, to paste into a review."""

import re
from collections.abc import Iterator
from typing import Final

from nsysflow.base.names import printable
from nsysflow.report.findings import Suggestions
from nsysflow.report.layout import Block, shorten, without_bars
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
    return set_page(compose(results, "full", top=top, at_least_ns=at_least_ns))


def set_page(page: Page) -> str:
    """A page as Markdown: what matters in a few lines, the rest folded."""
    lines = [f"# {escaped(page.reports)}", "", *_headlines(page)]
    body = [*_suggestions(page.suggestions)]
    body += [f"{escaped(sentence)}.\n" for sentence in page.sentences]
    for block in page.blocks:
        body += block_lines(block)
    body += [f"- {escaped(note)}" for note in page.notes]
    if body:
        lines += ["<details>", f"<summary>{_what_is_folded(page)}</summary>", "", *body]
        lines += ["", "</details>"]
    return "\n".join(lines).rstrip() + "\n"


def _headlines(page: Page) -> Iterator[str]:
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


def _what_is_folded(page: Page) -> str:
    titles = ["Findings"] if page.suggestions.rows else []
    return ", ".join([*titles, *(block.title for block in page.blocks)]) or "Notes"


def _suggestions(found: Suggestions) -> Iterator[str]:
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
    return _MARKUP.sub(r"\\\g<0>", printable(shorten(text, _LONGEST)))
