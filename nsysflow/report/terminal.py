"""The page as lines for a terminal."""

import re
from collections.abc import Iterator
from textwrap import wrap

from rich.text import Text

from nsysflow.report.findings import Suggestions
from nsysflow.report.layout import Block, printable, set_in_columns, shorten, shorten_middle
from nsysflow.report.page import Length, Page, compose
from nsysflow.report.results import Results

_NO_BREAK = "\N{NO-BREAK SPACE}"
_GAP = "  "
_BAR_STYLES = {"█+": "green", "▓+": "magenta", "▒+": "cyan", "░+": "red"}


def page(
    results: Results, *, width: int, length: Length = "page", top: int | None, at_least_ns: int = 0
) -> Iterator[Text]:
    """The page of a run, line by line.

    Args:
        results: the run.
        width: columns to fill; names are shortened where they are too few.
        length: one screen, or all of it.
        top: rows of each block; None for each block's own number.
        at_least_ns: the shortest gap to show.
    """
    return set_page(compose(results, length, top=top, at_least_ns=at_least_ns), width)


def set_page(page: Page, width: int) -> Iterator[Text]:
    """A page as lines."""
    only = f"only {page.selection}" if page.selection else ""
    titles = [printable(page.reports), page.gpus, only, printable(page.steps)]
    yield from _sentence(" · ".join(filter(None, titles)), width)
    yield Text()
    for index, headline in enumerate(page.headlines):
        yield from _sentence(headline.sentence, width, style="bold")
        for remark in page.remarks if index == 0 else ():
            yield from _sentence(remark, width)
        if headline.advice:
            yield from _sentence(f"next: {headline.advice}", width)
    for sentence in page.sentences:
        yield from _sentence(sentence, width)
    yield from _suggestions(page.suggestions, width)
    for block in page.blocks:
        yield from set_block(block, width)
    for note in page.notes:
        yield from _sentence(f"note: {printable(note)}", width)


def _suggestions(found: Suggestions, width: int) -> Iterator[Text]:
    """The findings in two lines each; none where there are none."""
    if not found.rows:
        return
    yield Text()
    yield Text("Findings", style="bold").append(f"  {found.caption}", style="not bold dim")
    savings = max(len(each.saving) for each in found.rows)
    for each in found.rows:
        head = f"  {each.number}  {each.saving:<{savings}}  "
        title = shorten_middle(printable(each.title), width - len(head))
        yield Text(head).append(title, style="bold")
        change = shorten(printable(each.change), width - 7 - len(each.steps))
        line = f"     {change}"
        yield Text(f"{line}{each.steps:>{width - len(line)}}".rstrip(), style="dim")
    yield from (Text(f"  {line}", style="dim") for line in wrapped(found.more, width - 2))


def set_block(block: Block, width: int | None) -> Iterator[Text]:
    """A block as lines; none where it has no rows."""
    if not block.rows:
        return
    yield Text()
    inner = None if width is None else width - 2
    beside, below = _around_title(block, inner)
    title = Text(block.title, style="bold")
    yield title.append(f"  {beside}", style="not bold dim") if beside else title
    yield from (Text(f"  {line}", style="dim") for line in below)
    head, *rows = set_in_columns(block.columns, block.rows, inner)
    yield Text(f"  {head}", style="dim")
    for row in rows:
        yield _coloured(f"  {row}")
    for more in block.more:
        for line in wrapped(more, inner) if inner else [more]:
            yield Text(f"  {line}", style="dim")


def _around_title(block: Block, inner: int | None) -> tuple[str, list[str]]:
    """What stands on the line of a block's title, and on lines below it: the caption, and at the
    right edge how many rows are left out."""
    if inner is None:
        return _GAP.join(filter(None, [block.caption, block.rest])), []
    room = inner - len(block.title)
    if len(block.caption) + len(_GAP) + len(block.rest) <= room:
        return f"{block.caption}{block.rest:>{room - len(block.caption)}}".rstrip(), []
    below = [f"{block.rest:>{inner}}"] if block.rest else []
    if len(block.caption) <= room:
        return block.caption, below
    caption = wrapped(block.caption, inner)
    if block.rest and len(caption[-1]) + len(_GAP) + len(block.rest) <= inner:
        *caption, last = caption
        return "", [*caption, f"{last}{block.rest:>{inner - len(last)}}"]
    return "", [*caption, *below]


def _sentence(text: str, width: int, style: str = "") -> Iterator[Text]:
    for index, line in enumerate(wrapped(text, width - 2)):
        yield Text(f"  {line}" if index else line, style=style)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines; a number stays on one line with its unit."""
    joined = re.sub(r"(?<=\d) (?=(?:%|[num]?s\b))", _NO_BREAK, text)
    lines = wrap(joined, width, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _coloured(line: str) -> Text:
    text = Text(line)
    for letters, style in _BAR_STYLES.items():
        text.highlight_regex(letters, style)
    return text
