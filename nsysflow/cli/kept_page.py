"""The page of reports that was printed before with the same options."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.text import Text

    from nsysflow.cli.look import Look
    from nsysflow.report.results import Results

WORTH_S: Final = 1.0
"""A page that takes less is made anew."""


def print_page(
    reports: tuple[Path, ...], look: "Look", analysed: Callable[[], "Results"], *, full: bool
) -> None:
    """Print the page of reports, the kept one if it was printed before.

    Args:
        reports: what was typed.
        look: how it is looked at.
        analysed: analyses the reports.
        full: whether the page is longer than a screen.
    """
    from nsysflow.base.screen import console
    from nsysflow.cli.output import page_lines, print_lines

    def made() -> Iterator["Text"]:
        return page_lines(analysed(), full=full, top=look.top, at_least_ns=look.at_least_ns)

    typed = sorted(click.get_current_context().params.items())
    print_lines(console(), kept_lines(reports, [look, typed], made))


def kept_lines(
    reports: Sequence[Path], asked: Sequence[object], make: Callable[[], Iterable["Text"]]
) -> list["Text"]:
    """The kept page; or the one that is made now, which is kept if that takes long.

    Args:
        reports: what was typed.
        asked: all else that the page depends on, as values whose `repr` says all of them.
        make: makes the page.
    """
    from nsysflow.base.screen import line_width
    from nsysflow.runs.cache import Store, lines_of, page_key, page_of
    from nsysflow.runs.sources import distinct_sources

    store = Store.here()
    if store is None:
        return [*make()]

    def name_it() -> str | None:
        sources = distinct_sources(reports)
        files = [source.path for source in sources]
        return page_key(files, [sources, *asked, line_width(), Path.cwd()])

    key = name_it()
    kept = None if key is None else store.page(key)
    if kept is not None:
        return lines_of(kept)
    begin_s = time.monotonic()
    lines = [*make()]
    worth = time.monotonic() - begin_s >= WORTH_S
    if worth and key is not None and key == name_it():  # did a report change meanwhile?
        store.put_page(key, page_of(reports, lines))
    return lines
