"""`nsysflow cache`: the answers that are kept; and `--no-cache`, to do without them."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from nsysflow.cli.options import HOW_TO_RUN, Command, Decorated, option

if TYPE_CHECKING:
    from nsysflow.runs.cache import CacheEntry, Store

_DAY: Final = "%Y-%m-%d %H:%M"

_SHOWN: Final = 20
"""At most so many are listed, as a run may have a thousand ranks."""


def _without(ctx: click.Context, _param: click.Parameter, typed: bool) -> None:
    if typed:
        ctx.find_root().with_resource(_switched_off())


@contextmanager
def _switched_off() -> Iterator[None]:
    """Keep and look up nothing until the command ends."""
    from nsysflow.runs.cache import OFF, VARIABLE

    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = OFF
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def cache_option(command: Decorated) -> Decorated:
    """Add the option that does without the cache."""
    return option(
        "--no-cache",
        section=HOW_TO_RUN,
        is_flag=True,
        expose_value=False,
        callback=_without,
        help="Analyse the report again, and keep no answers.",
    )(command)


@click.command(cls=Command)
@click.option(
    "--prune",
    is_flag=True,
    help="Remove what this nsysflow cannot use, and the longest unused above the limit.",
)
@click.option("--clear", is_flag=True, help="Remove all that is kept.")
def cache(*, prune: bool, clear: bool) -> None:
    """List the reports whose answers are kept.

    What an analysis of more than a second prints is kept in your cache folder. Where it writes its
    files, the page, each finding in full and the tables are kept too, so that the next question is
    answered at once. A report that has changed is analysed again. The longest unused make room for
    new ones. NSYSFLOW_CACHE names another folder; with `off` nothing is kept.

    \b
    Example:
        nsysflow cache
        nsysflow cache --prune
    """
    if prune and clear:
        msg = "--prune and --clear cannot be combined"
        raise click.UsageError(msg)
    from nsysflow.runs.cache import VARIABLE, Store

    store = Store.here()
    if store is None:
        click.echo(f"nothing is kept: {VARIABLE} is off")
    elif prune or clear:
        removed = store.clear() if clear else store.prune()
        click.echo(f"removed {len(removed)} from {store.folder}; {_sum(store.entries())}")
    else:
        _show(store)


def _show(store: "Store") -> None:
    """Say how much is kept, and list what was used last."""
    from datetime import datetime

    from nsysflow.base.screen import line_width
    from nsysflow.base.units import size
    from nsysflow.report.layout import figure, set_in_columns, words

    entries = store.entries()
    limit = size(store.most_bytes)
    click.echo(f"{store.folder}: {_sum(entries)}")
    click.echo(f"at most {limit}, or a tenth of the free space")
    rows = []
    for entry in entries[:_SHOWN]:
        used = datetime.fromtimestamp(entry.used_s).strftime(_DAY)
        rows.append((size(entry.size), used, entry.reports or "(damaged)"))
    if rows:
        columns = (figure("size"), words("last used"), words("what"))
        for line in set_in_columns(columns, rows, line_width()):
            click.echo(line)
    if entries[_SHOWN:]:
        click.echo(f"longer unused: {_sum(entries[_SHOWN:])}")


def _sum(entries: "Sequence[CacheEntry]") -> str:
    from nsysflow.base.units import size

    return f"{len(entries)} kept ({size(sum(entry.size for entry in entries))})"
